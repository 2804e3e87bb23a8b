"""A run's state after an epoch in one file: no pickle, whole or absent, bound to what it was made from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.storage import read_tensors, write_tensors
from fiveshot.tuning.results import EpochRecord

KIND = "tuning checkpoint"
VERSION = 1


@dataclass(frozen=True)
class Keeping:
    """Where a run's checkpoint lies, what it is bound to, and whether to go on from it."""

    path: Path
    bound_to: Mapping[str, Any]
    resume: bool = False


@dataclass(frozen=True)
class Checkpoints:
    """The folder with the checkpoints of a tuning, one file for each of its runs; None keeps none."""

    folder: Path | None
    resume: bool = False

    @classmethod
    def beside(cls, folder: str | os.PathLike[str] | None, out: Path | None, *, resume: bool) -> Checkpoints:
        """Return those in ``folder``, or else in a folder beside the result."""
        if folder is None and out is None and resume:
            raise InputError("resume needs checkpoints to go on from", hint="name out or checkpoint_folder")
        if folder is None and out is not None:
            folder = out.with_name(f"{out.name}.checkpoints")
        return cls(Path(folder) if folder is not None else None, resume)

    def keeping(self, name: str, bound_to: Mapping[str, Any]) -> Keeping | None:
        """Return where the run called ``name`` keeps its checkpoint."""
        if self.folder is None:
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make the folder {self.folder}: {error.strerror or error}") from error
        return Keeping(self.folder / f"{name}.safetensors", {"run": name, **bound_to}, self.resume)

    def remove(self, names: Iterable[str]) -> None:
        """Remove the checkpoints of these runs, and the folder if nothing else is in it."""
        if self.folder is None:
            return
        for name in names:
            (self.folder / f"{name}.safetensors").unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after the last epoch of ``history``, and the adapters of the best epoch so far."""

    history: tuple[EpochRecord, ...]
    best_epoch: int
    state: Mapping[str, Tensor]
    best: Mapping[str, Tensor]
    seconds: float


def write_checkpoint(path: Path, checkpoint: Checkpoint, *, bound_to: Mapping[str, Any]) -> None:
    """Write a checkpoint; ``bound_to`` are the JSON values that a run must share to go on from it."""
    tensors = {f"state:{name}": tensor for name, tensor in checkpoint.state.items()}
    tensors |= {f"best:{name}": tensor for name, tensor in checkpoint.best.items()}
    meta = {
        "bound_to": dict(bound_to),
        "history": [record.to_json() for record in checkpoint.history],
        "best_epoch": checkpoint.best_epoch,
        "seconds": checkpoint.seconds,
    }
    write_tensors(path, tensors, kind=KIND, version=VERSION, meta=meta)


def read_checkpoint(path: Path, *, bound_to: Mapping[str, Any]) -> Checkpoint:
    """Read a checkpoint, refusing one of another run and saying what differs."""
    file = read_tensors(path, kind=KIND, version=VERSION)
    with damage_reported(path):
        found, wanted = dict(file.meta["bound_to"]), json.loads(json.dumps(dict(bound_to)))
    if found != wanted:
        raise InputError(
            f"{path} is a checkpoint of another run: {'; '.join(_differences(found, wanted))}. "
            "Go on with the same values, or start afresh without resume"
        )
    with damage_reported(path):
        parts: dict[str, dict[str, Tensor]] = {"state": {}, "best": {}}
        for name, array in file.tensors.items():
            part, _, rest = name.partition(":")
            parts[part][rest] = torch.from_numpy(array)
        history = tuple(EpochRecord.from_json(record) for record in file.meta["history"])
        best, seconds = int(file.meta["best_epoch"]), float(file.meta["seconds"])
        if best not in {record.epoch for record in history}:
            raise ValueError(f"nothing about its best epoch, {best}")
    return Checkpoint(history, best, parts["state"], parts["best"], seconds)


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Report what is missing or of another kind in a checkpoint as damage of its file."""
    try:
        yield
    except FiveshotError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{path} is damaged ({type(error).__name__}: {error}); start afresh without resume"
        ) from error


def data_mark(names: Sequence[str], labels: Sequence[int]) -> str:
    """Return a digest of which images were trained on, and as what.

    >>> data_mark(["a.jpg", "b.jpg"], [0, 1]) == data_mark(["a.jpg", "b.jpg"], [1, 0])
    False
    """
    listing = json.dumps([list(names), [int(label) for label in labels]])
    return hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> list[str]:
    lines = []
    for key in sorted(set(found) | set(wanted)):
        there, here = found.get(key), wanted.get(key)
        if isinstance(there, dict) and isinstance(here, dict):
            lines += _differences(there, here, f"{prefix}{key} ")
        elif there != here:
            lines.append(f"{prefix}{key} is {_short(there)} there and {_short(here)} here")
    return lines


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:12]}..." if len(text) > 64 - 1 else text

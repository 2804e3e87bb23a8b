"""One training run of fresh adapters: measures after every epoch, the choice of an epoch, and checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fiveshot.backbones import adapter_state
from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.loggers import flat
from fiveshot.storage import make_folder, read_tensors, write_tensors
from fiveshot.tuning._recipes import TuneRecipe
from fiveshot.tuning._trainer import OnStep, Trainer, make_network
from fiveshot.tuning.material import Fold, Material, few_shot_score
from fiveshot.tuning.results import EpochRecord, FewShotScore, OnProgress, TuneProgress

EpochChoice = Literal["last", "held-out", "few-shot"]
KIND = "tuning checkpoint"
VERSION = 1


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: its measures, and the adapters of the chosen epoch.

    Parameters
    ----------
    history : tuple of EpochRecord
        Its epochs.
    best_epoch : int
        The epoch whose adapters are kept.
    adapters : mapping of str to Tensor
        These adapters.
    seconds : float
        How long it took.

    Examples
    --------
    >>> from fiveshot.tuning import EpochRecord, Run
    >>> run = Run((EpochRecord(1, loss=0.7), EpochRecord(2, loss=0.4)), best_epoch=2, adapters={}, seconds=9.5)
    >>> run.history[-1].loss
    0.4
    """

    history: tuple[EpochRecord, ...]
    best_epoch: int
    adapters: Mapping[str, Tensor]
    seconds: float

    @property
    def best(self) -> EpochRecord:
        """Measures of the chosen epoch."""
        return next(record for record in self.history if record.epoch == self.best_epoch)


class TuningRun:
    """Fresh adapters in the backbone, trained on the rows of a fold.

    Parameters
    ----------
    material : Material
        The backbone and the images.
    fold : Fold
        Which rows train.
    recipe : TuneRecipe
        How to train.
    choose : {"last", "held-out", "few-shot"}
        Which epoch's adapters are kept: the last, or the best by held-out images or few-shot classes.

    Examples
    --------
    >>> import numpy as np, timm
    >>> from fiveshot.backbones import Backbone, Preprocessing
    >>> from fiveshot.data import ArraySource, ImageSplit
    >>> from fiveshot.tuning import Execution, Fold, TuneRecipe, TuningRun, open_material
    >>> vit = timm.create_model("test_vit", img_size=32, num_classes=0)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=32, resize=36))
    >>> black, white = (ArraySource(np.full((40, 40, 3), gray, np.uint8), str(gray)) for gray in (0, 255))
    >>> split = ImageSplit((black, white) * 4, np.array([0, 1] * 4))
    >>> material = open_material(backbone, split, Execution().resolved(backbone.device, images=len(split)))
    >>> fold = Fold.of(train=np.arange(6), held_out=np.arange(6, 8))
    >>> run = TuningRun(material, fold, TuneRecipe(epochs=1, bottleneck=8)).train()
    >>> run.best_epoch, len(run.history)
    (1, 1)
    """

    def __init__(
        self, material: Material, fold: Fold, recipe: TuneRecipe, *, choose: EpochChoice = "last"
    ) -> None:
        self.material, self.fold, self.recipe, self.choose = material, fold, recipe, choose
        self.classes, labels = np.unique(material.labels[fold.train], return_inverse=True)
        self.trainer = Trainer(
            make_network(material.backbone, len(self.classes), recipe, precision=material.execution.precision),
            material.views,
            fold.train,
            labels.astype(np.int64),
            recipe=recipe,
            execution=material.execution,
            accelerator=material.accelerator,
        )
        self.found = Run((), 0, {}, 0.0)  # so far

    def train(
        self,
        *,
        epochs: int | None = None,
        checkpoint: CheckpointFile | None = None,
        phase: str = "tuning",
        progress: OnProgress | None = None,
    ) -> Run:
        """Train for the recipe's epochs, or stop after fewer, and load the chosen adapters."""
        epochs = self.recipe.epochs if epochs is None else epochs
        if checkpoint is not None and checkpoint.resume and checkpoint.path.is_file():
            with damage_reported(checkpoint.path):
                self.found, state = read_checkpoint(checkpoint)
                self.trainer.restore(state)
        elif self.choose != "last" or epochs == 0:
            self._note(self._measured(EpochRecord(0)))
        for number in range(self.found.history[-1].epoch if self.found.history else 0, epochs):
            started = time.perf_counter()
            record = self._measured(self.trainer.epoch(number, on_step=_reporter(phase, number, epochs, progress)))
            self._note(record)
            self.found = replace(self.found, seconds=self.found.seconds + time.perf_counter() - started)
            if checkpoint is not None and self.material.is_main:
                write_checkpoint(checkpoint, self.found, self.trainer.state())
            if progress is not None:
                progress(_finished(phase, epochs, record, len(self.fold.train)))
        self.material.backbone.model.load_state_dict(self.found.adapters, strict=False)
        self.trainer.network.eval()
        self.material.backbone.model.requires_grad_(False)
        return self.found

    def _note(self, record: EpochRecord) -> None:
        """Add an epoch's measures, and keep its adapters if they are the best so far."""
        found = replace(self.found, history=(*self.found.history, record))
        if not found.adapters or self._score(record) > self._score(found.best):
            state = adapter_state(self.material.backbone.model)
            kept = {name: tensor.detach().clone() for name, tensor in state.items()}
            found = replace(found, best_epoch=record.epoch, adapters=kept)
        self.found = found

    def _score(self, record: EpochRecord) -> float:
        score = record.score(self.choose, self.material.few_shot.metric)
        return -np.inf if score is None else score

    def _measured(self, record: EpochRecord) -> EpochRecord:
        """Return the record with the accuracies on images that were not trained on."""
        fold, labels = self.fold, self.material.labels
        held = self.trainer.features(fold.held_out)
        accuracy = None
        if record.epoch and len(held):
            cosines = self.trainer.network.classifier.cosines(held)
            truth = np.searchsorted(self.classes, labels[fold.held_out])
            accuracy = float(np.mean(cosines.argmax(dim=1).cpu().numpy() == truth))
        score = self._few_shot(held) if len(fold.new) else None
        return replace(record, held_out_accuracy=accuracy, few_shot=score)

    def _few_shot(self, held: Tensor) -> FewShotScore:
        fold, labels, test = self.fold, self.material.labels, self.material.few_shot
        return few_shot_score(
            self.trainer.features(fold.train),
            labels[fold.train],
            self.trainer.features(fold.new),
            labels[fold.new],
            held,
            labels[fold.held_out],
            shots=test.shots,
            draws=test.draws,
            rng=np.random.default_rng([self.recipe.seed, 2]),  # the same shots after every epoch
        )


def _finished(phase: str, epochs: int, record: EpochRecord, images: int) -> TuneProgress:
    """Return the progress of a run at the end of an epoch."""
    rate = record.images_per_second
    left = (epochs - record.epoch) * images / rate if rate else None
    figures = (record.loss, record.train_accuracy, rate, left)
    return TuneProgress(phase, record.epoch, epochs, images, images, *figures, finished=record)


def _reporter(phase: str, number: int, epochs: int, progress: OnProgress | None) -> OnStep | None:
    if progress is None:
        return None
    started = time.perf_counter()

    def report(done: int, total: int, loss: float, accuracy: float) -> None:
        rate = done / (time.perf_counter() - started)
        left = (total - done + (epochs - number - 1) * total) / rate
        progress(TuneProgress(phase, number + 1, epochs, done, total, loss, accuracy, rate, left))

    return report


@dataclass(frozen=True)
class CheckpointFile:
    """A run's checkpoint file, the JSON values that must match to resume from it, and whether to resume."""

    path: Path
    bound_to: Mapping[str, Any]
    resume: bool = False


@dataclass(frozen=True)
class Checkpoints:
    """The folder with the checkpoints of a tuning, one file for each run; None keeps no checkpoints."""

    folder: Path | None
    resume: bool = False

    @classmethod
    def beside(cls, folder: str | os.PathLike[str] | None, out: Path | None, *, resume: bool) -> Checkpoints:
        """Return the checkpoints in ``folder``, or else in a folder next to the result."""
        if folder is None and out is None and resume:
            raise InputError("resume needs checkpoints", hint="give out or checkpoint_folder")
        if folder is None and out is not None:
            folder = out.with_name(f"{out.name}.checkpoints")
        return cls(Path(folder) if folder is not None else None, resume)

    def checkpoint_of(self, name: str, bound_to: Mapping[str, Any]) -> CheckpointFile | None:
        """Return the checkpoint of the run ``name``."""
        if self.folder is None:
            return None
        return CheckpointFile(
            make_folder(self.folder) / f"{name}.safetensors", {"run": name, **bound_to}, self.resume
        )

    def remove(self, names: Iterable[str]) -> None:
        """Remove the checkpoints of these runs, and the folder if nothing else is in it."""
        if self.folder is None:
            return
        for name in names:
            (self.folder / f"{name}.safetensors").unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


def write_checkpoint(checkpoint: CheckpointFile, run: Run, state: Mapping[str, Tensor]) -> None:
    """Write the current state of a run and of its trainer, to resume from there."""
    tensors = {f"state:{name}": tensor for name, tensor in state.items()}
    tensors |= {f"best:{name}": tensor for name, tensor in run.adapters.items()}
    meta = {
        "bound_to": dict(checkpoint.bound_to),
        "history": [record.to_json() for record in run.history],
        "best_epoch": run.best_epoch,
        "seconds": run.seconds,
    }
    write_tensors(checkpoint.path, tensors, kind=KIND, version=VERSION, meta=meta)


def read_checkpoint(checkpoint: CheckpointFile) -> tuple[Run, Mapping[str, Tensor]]:
    """Read a checkpoint; refuse that of another run, with the differences."""
    file = read_tensors(checkpoint.path, kind=KIND, version=VERSION)
    found, wanted = dict(file.meta["bound_to"]), json.loads(json.dumps(dict(checkpoint.bound_to)))
    if found != wanted:
        raise InputError(
            f"{checkpoint.path} is a checkpoint of another run: {'; '.join(_differences(found, wanted))}. "
            "Use the same values, or start again without resume"
        )
    parts: dict[str, dict[str, Tensor]] = {"state": {}, "best": {}}
    for name, array in file.tensors.items():
        part, _, rest = name.partition(":")
        parts[part][rest] = torch.from_numpy(array)
    history = tuple(EpochRecord.from_json(record) for record in file.meta["history"])
    best, seconds = int(file.meta["best_epoch"]), float(file.meta["seconds"])
    if best not in {record.epoch for record in history}:
        raise ValueError(f"nothing about its best epoch, {best}")
    return Run(history, best, parts["best"], seconds), parts["state"]


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Report missing or wrong entries of a checkpoint as a damaged file."""
    try:
        yield
    except FiveshotError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{path} is damaged ({type(error).__name__}: {error}); start again without resume"
        ) from error


def data_mark(names: Sequence[str], labels: Sequence[int]) -> str:
    """Return a digest of the names and labels of the training images.

    >>> data_mark(["a.jpg", "b.jpg"], [0, 1]) == data_mark(["a.jpg", "b.jpg"], [1, 0])
    False
    """
    listing = json.dumps([list(names), [int(label) for label in labels]])
    return hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    there, here = flat(found), flat(wanted)
    different = [key for key in sorted({*there, *here}) if there.get(key) != here.get(key)]
    shown = [(key.replace(".", " "), _short(there.get(key)), _short(here.get(key))) for key in different]
    return [f"{name} is {theirs} there and {ours} here" for name, theirs, ours in shown]


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:12]}..." if len(text) > 64 - 1 else text

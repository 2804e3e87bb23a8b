"""A model as one file to carry elsewhere: statistics and photos as tensors, the rest as JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.store.contents import Contents, summary_tensors
from fiveshot.recognizer.store.manifest import MANIFEST
from fiveshot.recognizer.store.rows import PhotoRecord, read_class
from fiveshot.recognizer.store.schema import DATABASE
from fiveshot.storage import FilePath, file_kind, write_tensors

KIND, VERSION = "recognizer", 1
PICTURES = ("thumbnail", "original")
DIGESTS = "original.sha256"  # a kept photo need not be the file that was given, so it has a digest of its own


def check_target(
    target: Path,
    is_export: Callable[[Path], bool],
    *,
    beside: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Refuse a target inside a model's directory, and one that something else has taken.

    ``is_export`` tells an earlier export, which is replaced; any other file is replaced with ``overwrite`` alone,
    and what is not a file never. ``beside`` is the file that was named, where this one only goes with it.
    """
    shown = str(target) if beside is None else f"{target}, which is written beside {beside.name},"
    for place in (target.parent.resolve() / target.name, target.resolve()):  # a link, and where it leads
        around = _model_around(place)
        if around is not None:
            raise InputError(
                f"{shown} lies inside the model {around}, which an export must not change",
                hint="name a file outside of it",
            )
    if not target.exists():
        return
    if not target.is_file():
        raise StorageError(f"{shown} exists already and is not a file", hint="choose another name", code="exists")
    if not overwrite and not is_export(target):
        raise StorageError(
            f"{shown} exists already and is not an earlier export of this kind",
            hint="choose another name, or replace it with overwrite=True (--force)",
            code="exists",
        )


def _model_around(place: Path) -> Path | None:
    """Return the directory of a model that a path lies in, be it the one that is exported or another."""
    folders = (one for one in place.parents if (one / MANIFEST).is_file() and (one / DATABASE).is_file())
    return next(folders, None)


def write_portable(
    path: FilePath,
    folder: Path,
    contents: Contents,
    connection: sqlite3.Connection,
    *,
    originals: bool,
) -> None:
    """Write the model to one file, atomically; equal models give equal bytes. The history stays behind."""
    rows = sorted(contents.classes.values(), key=lambda row: row.name)
    records = [read_class(connection, row.id, contents.width) for row in rows]
    photos = [photo for record in records for photo in record.photos]
    tensors = {
        **summary_tensors([record.summary for record in records]),
        **photo_tensors(photos, contents.width, originals),
    }
    manifest = contents.manifest
    for key, file in (("base", manifest.base.file), ("adapter", manifest.backbone.adapter)):
        if file:
            tensors[f"file.{key}"] = as_bytes([_content(folder / file)])
    meta: dict[str, Any] = {
        "manifest": manifest.to_toml(),
        "names": [record.name for record in records],
        "created": [record.created for record in records],
        "base": [record.base for record in records],
        "photos": [[photo.sha256, photo.added] for photo in photos],
    }
    write_tensors(path, tensors, kind=KIND, version=VERSION, meta=meta)


def is_portable(path: Path) -> bool:
    """Tell whether a file was written by ``write_portable``, in any version."""
    return file_kind(path) == KIND


def photo_tensors(photos: list[PhotoRecord], width: int, originals: bool) -> dict[str, Tensor]:
    """Return features and pictures of photos, one below the other; a length of 0 says there is no picture."""
    features = np.stack([photo.feature for photo in photos]) if photos else np.zeros((0, width), np.float32)
    tensors = {"features": torch.from_numpy(features)}
    for kind in PICTURES if originals else PICTURES[:1]:
        parts = [getattr(photo, kind) or b"" for photo in photos]
        tensors[f"{kind}.lengths"] = torch.tensor([len(part) for part in parts], dtype=torch.int64)
        tensors[f"{kind}.bytes"] = as_bytes(parts)
        if kind == "original":
            tensors[DIGESTS] = as_bytes(sha256(part).digest() for part in parts).reshape(-1, 32)
    return tensors


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot read {path}: {reason}", hint="try again, or run: fiveshot check") from error


def as_bytes(parts: Iterable[bytes]) -> Tensor:
    """Return bytes as a tensor."""
    return torch.from_numpy(np.frombuffer(b"".join(parts), dtype=np.uint8).copy())


def pictures(tensors: dict[str, Tensor], kind: str) -> list[bytes | None]:
    """Return the pictures that ``photo_tensors`` laid down; the lengths are checked already."""
    lengths = tensors[f"{kind}.lengths"].tolist()
    data = tensors[f"{kind}.bytes"].numpy()
    ends = list(accumulate(lengths))
    return [data[end - n : end].tobytes() if n else None for n, end in zip(lengths, ends, strict=True)]

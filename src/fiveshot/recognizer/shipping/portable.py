"""A model as one file to carry elsewhere: statistics and photos as tensors, the rest as JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import ClassStatistics
from fiveshot.core.statistics import statistics_arrays
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.store.contents import Contents
from fiveshot.recognizer.store.manifest import MANIFEST
from fiveshot.recognizer.store.rows import PhotoRecord, photo_features, read_class
from fiveshot.recognizer.store.schema import DATABASE
from fiveshot.storage import FilePath, file_kind, write_tensors

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
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
        around = model_around(place)
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


def model_around(place: Path) -> Path | None:
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
    thumbnails: bool = True,
) -> None:
    """Write the model to one file, atomically; equal models give equal bytes. The history stays behind."""
    rows = sorted(contents.rows.values(), key=lambda row: row.name)
    records = [read_class(connection, row.id, contents.width, originals=originals) for row in rows]
    photos = [photo for record in records for photo in record.photos]
    if not thumbnails:
        photos = [replace(photo, thumbnail=None) for photo in photos]
    arrays = {
        **statistics_arrays(ClassStatistics.of({record.name: record.summary for record in records})),
        **photo_arrays(photos, contents.width, originals),
    }
    manifest = contents.manifest
    for key, file in (("base", manifest.base.file), ("adapter", manifest.backbone.adapter)):
        if file:
            arrays[f"file.{key}"] = as_bytes([_content(folder / file)])
    meta: dict[str, Any] = {
        "manifest": manifest.to_toml(),
        "names": [record.name for record in records],
        "created": [record.created for record in records],
        "base": [record.base for record in records],
        "photos": [[photo.sha256, photo.added] for photo in photos],
    }
    write_tensors(path, arrays, kind=KIND, version=VERSION, meta=meta)


def is_portable(path: Path) -> bool:
    """Tell whether a file was written by ``write_portable``, in any version."""
    return file_kind(path) == KIND


def photo_arrays(photos: list[PhotoRecord], width: int, originals: bool) -> Arrays:
    """Return features and pictures of photos, one below the other; a length of 0 says there is no picture."""
    arrays: Arrays = {"features": photo_features(photos) if photos else np.zeros((0, width), np.float32)}
    for kind in PICTURES if originals else PICTURES[:1]:
        parts = [getattr(photo, kind) or b"" for photo in photos]
        arrays[f"{kind}.lengths"] = np.array([len(part) for part in parts], dtype=np.int64)
        arrays[f"{kind}.bytes"] = as_bytes(parts)
        if kind == "original":
            arrays[DIGESTS] = as_bytes(sha256(part).digest() for part in parts).reshape(-1, 32)
    return arrays


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot read {path}: {reason}", hint="try again, or run: fiveshot check") from error


def as_bytes(parts: Iterable[bytes]) -> NDArray[np.uint8]:
    """Return bytes as an array."""
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


def pictures(arrays: Arrays, kind: str) -> list[bytes | None]:
    """Return the pictures that ``photo_arrays`` laid down; the lengths are checked already."""
    lengths = arrays[f"{kind}.lengths"].tolist()
    data, ends = arrays[f"{kind}.bytes"], list(accumulate(lengths))
    return [data[end - n : end].tobytes() if n else None for n, end in zip(lengths, ends, strict=True)]

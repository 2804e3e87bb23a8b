"""A model as one file to carry elsewhere: statistics and photos as tensors, the rest as JSON."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiveshot.errors import StorageError
from fiveshot.recognizer.class_record import ClassRecord, PhotoRecord
from fiveshot.recognizer.contents import Contents
from fiveshot.recognizer.rows import read_class
from fiveshot.storage import file_kind, write_tensors

KIND, VERSION = "recognizer", 2
WITHOUT_ORIGINALS = 1  # the version of files without kept photos: they have not changed since
PICTURES = ("thumbnail", "original")
DIGESTS = "original.sha256"  # a kept photo need not be the file that was given, so it has a digest of its own


def write_portable(
    path: str | os.PathLike[str],
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
        **class_tensors(records),
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
    write_tensors(path, tensors, kind=KIND, version=VERSION if originals else WITHOUT_ORIGINALS, meta=meta)


def is_portable(path: Path) -> bool:
    """Tell whether a file was written by ``write_portable``, in any version."""
    return file_kind(path) == KIND


def class_tensors(records: list[ClassRecord]) -> dict[str, Tensor]:
    """Return the statistics of classes, one below the other."""
    summaries = [record.summary for record in records]
    empty = torch.zeros(0, len(summaries[0].mean) if summaries else 0)
    return {
        "counts": torch.tensor([summary.count for summary in summaries], dtype=torch.int64),
        "means": torch.stack([summary.mean for summary in summaries]) if summaries else empty,
        "ranks": torch.tensor([len(summary.factor) for summary in summaries], dtype=torch.int64),
        "factors": torch.cat([empty, *(summary.factor for summary in summaries)]),  # (Σ r, d)
    }


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
        raise StorageError(
            f"cannot read {path}: {error.strerror or error}; try again, or run: fiveshot check"
        ) from error


def as_bytes(parts: Iterable[bytes]) -> Tensor:
    """Return bytes as a tensor."""
    return torch.from_numpy(np.frombuffer(b"".join(parts), dtype=np.uint8).copy())


def pictures(tensors: dict[str, Tensor], kind: str) -> list[bytes | None]:
    """Return the pictures that ``photo_tensors`` laid down; the lengths are checked already."""
    lengths = tensors[f"{kind}.lengths"].tolist()
    data = tensors[f"{kind}.bytes"].numpy()
    ends = list(accumulate(lengths))
    return [data[end - n : end].tobytes() if n else None for n, end in zip(lengths, ends, strict=True)]

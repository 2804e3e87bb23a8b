"""The layout of a feature file: arrays, image names and metadata in one safetensors file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError, StorageError
from fiveshot.features.provenance import Provenance
from fiveshot.storage import Blocks, FilePath, read_tensors, write_tensors

KIND, VERSION = "features", 1
ARRAYS = ("train_x", "train_y", "test_x", "test_y")
NAMES = ("train_names", "test_names")


def write(
    path: FilePath,
    arrays: Mapping[str, NDArray[Any] | Blocks],
    names: Mapping[str, tuple[str, ...] | None],
    meta: Mapping[str, Any],
) -> None:
    """Write arrays as they are and image names as UTF-8 bytes (a file's header has a limited size)."""
    encoded = {name: _encoded(texts) for name, texts in names.items() if texts is not None}
    write_tensors(path, {**arrays, **encoded}, kind=KIND, version=VERSION, meta=meta)


def read(
    path: FilePath,
) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[str, ...]], dict[str, Any]]:
    """Return arrays (mapped, not read), image names and metadata."""
    file = read_tensors(path, kind=KIND, version=VERSION)
    unknown = set(file.tensors) - {*ARRAYS, *NAMES}
    if unknown:
        raise InputError(f"unknown tensors {sorted(unknown)}")
    arrays = {name: file.tensors[name] for name in ARRAYS}
    names = {name: _decoded(file.tensors[name]) for name in NAMES if name in file.tensors}
    return arrays, names, file.meta


def write_feature_file(
    path: FilePath,
    arrays: Mapping[str, NDArray[Any] | Blocks],
    names: Mapping[str, tuple[str, ...]],
    *,
    class_names: tuple[str, ...],
    provenance: Provenance,
) -> None:
    """Write what ``FeatureSet.save`` would write; the caller has checked the vectors."""
    write(path, arrays, names, {"class_names": list(class_names), "provenance": provenance.as_dict()})


@contextmanager
def damaged(path: FilePath) -> Iterator[None]:
    """Turn whatever a file with the right header and wrong contents causes into one clear error."""
    try:
        yield
    except (InputError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise StorageError(
            f"{path} is a fiveshot feature file with damaged contents ({error})", hint="get a fresh copy of it"
        ) from error


def _encoded(texts: tuple[str, ...]) -> NDArray[np.uint8]:
    if any("\0" in text for text in texts):
        raise InputError("image names must not contain NUL characters")
    # surrogateescape: names of files on disk need not be valid Unicode, and must come back as they were.
    data = "".join(f"{text}\0" for text in texts).encode("utf-8", "surrogateescape")
    return np.frombuffer(bytearray(data), dtype=np.uint8)


def _decoded(data: NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(data.tobytes().decode("utf-8", "surrogateescape").split("\0")[:-1])

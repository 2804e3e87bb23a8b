"""The layout of a feature file: arrays, image names and metadata in one safetensors file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fiveshot.errors import InputError, StorageError
from fiveshot.storage import read_tensors, write_tensors
from fiveshot.storage.tensorfile import FRESH_COPY

KIND, VERSION = "features", 1
ARRAYS = ("train_x", "train_y", "test_x", "test_y")
NAMES = ("train_names", "test_names")


def write(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    names: Mapping[str, tuple[str, ...] | None],
    meta: Mapping[str, Any],
) -> None:
    """Write arrays as they are and image names as UTF-8 bytes (a file's header has a limited size)."""
    # safetensors refuses tensors that share memory, PyTorch warns about arrays that cannot be written to.
    tensors: dict[str, torch.Tensor] = {}
    taken: set[int] = set()
    for name, array in arrays.items():
        own = array.copy() if array.ctypes.data in taken else np.require(array, requirements=["C", "W"])
        taken.add(own.ctypes.data)
        tensors[name] = torch.from_numpy(own)
    for name, texts in names.items():
        if texts is not None:
            tensors[name] = torch.from_numpy(_encoded(texts))
    write_tensors(path, tensors, kind=KIND, version=VERSION, meta=meta)


def read(
    path: str | os.PathLike[str],
) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[str, ...]], dict[str, Any]]:
    """Return arrays (mapped, not read), image names and metadata."""
    file = read_tensors(path, kind=KIND, version=VERSION)
    unknown = set(file.tensors) - {*ARRAYS, *NAMES}
    if unknown:
        raise InputError(f"unknown tensors {sorted(unknown)}")
    arrays = {name: file.tensors[name].numpy() for name in ARRAYS}
    names = {name: _decoded(file.tensors[name].numpy()) for name in NAMES if name in file.tensors}
    return arrays, names, file.meta


@contextmanager
def damaged(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever a file with the right header and wrong contents causes into one clear error."""
    try:
        yield
    except (InputError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise StorageError(
            f"{path} is a fiveshot feature file with damaged contents ({error}){FRESH_COPY}"
        ) from error


def _encoded(texts: tuple[str, ...]) -> NDArray[np.uint8]:
    if any("\0" in text for text in texts):
        raise InputError("image names must not contain NUL characters")
    # surrogateescape: names of files on disk need not be valid Unicode, and must come back as they were.
    data = "".join(f"{text}\0" for text in texts).encode("utf-8", "surrogateescape")
    return np.frombuffer(bytearray(data), dtype=np.uint8)


def _decoded(data: NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(data.tobytes().decode("utf-8", "surrogateescape").split("\0")[:-1])

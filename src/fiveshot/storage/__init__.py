"""Files that are either whole or absent: atomic writes, and tensors with checked metadata."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fiveshot.storage.atomic import atomic_path, atomic_paths, confirm_place, part_beside

if TYPE_CHECKING:
    from fiveshot.storage.tensorfile import TensorFile, read_tensors, write_tensors

FilePath = str | os.PathLike[str]
"""A path as people give it: a text, or anything that stands for one."""

__all__ = [
    "FilePath",
    "TensorFile",
    "atomic_path",
    "atomic_paths",
    "confirm_place",
    "part_beside",
    "read_tensors",
    "write_tensors",
]


def __getattr__(name: str) -> Any:
    """Import what is about tensors when it is asked for: it brings torch, and unpacking archives must not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fiveshot.storage import tensorfile

    return getattr(tensorfile, name)

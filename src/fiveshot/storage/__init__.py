"""Files that are either whole or absent: atomic writes, and arrays with checked metadata."""

from fiveshot.storage.atomic import FilePath, atomic_path, atomic_paths, confirm_place, part_beside
from fiveshot.storage.tensorfile import (
    Blocks,
    TensorFile,
    begins_as_ours,
    file_kind,
    read_tensors,
    write_tensors,
)

__all__ = [
    "Blocks",
    "FilePath",
    "TensorFile",
    "atomic_path",
    "atomic_paths",
    "begins_as_ours",
    "confirm_place",
    "file_kind",
    "part_beside",
    "read_tensors",
    "write_tensors",
]

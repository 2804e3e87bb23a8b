"""Files that are either whole or absent: atomic writes, and tensors with checked metadata."""

from fiveshot.storage.atomic import atomic_path
from fiveshot.storage.tensorfile import TensorFile, read_tensors, write_tensors

__all__ = ["TensorFile", "atomic_path", "read_tensors", "write_tensors"]

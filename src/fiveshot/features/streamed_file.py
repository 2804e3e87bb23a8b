"""Write a feature file whose vectors come block by block, so that they need never be in memory together."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import StorageError
from fiveshot.features import feature_file
from fiveshot.features.provenance import Provenance
from fiveshot.storage import atomic_path
from fiveshot.storage.tensorfile import HEADER

# As safetensors names them, in the order of their alignment: that is how its files are laid out.
DTYPES = {np.dtype(kind): name for kind, name in (("<i8", "I64"), ("<f4", "F32"), ("<f2", "F16"), ("u1", "U8"))}


@dataclass(frozen=True, eq=False)
class Streamed:
    """An array whose rows come in blocks."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    blocks: Iterable[NDArray[Any]]

    @classmethod
    def whole(cls, array: NDArray[Any]) -> Streamed:
        """Return an array that is there already."""
        return cls(array.dtype, array.shape, (array,))

    @property
    def nbytes(self) -> int:
        """Size of all blocks together."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_feature_file(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Streamed],
    names: Mapping[str, tuple[str, ...]],
    *,
    class_names: tuple[str, ...],
    provenance: Provenance,
) -> None:
    """Write what ``FeatureSet.save`` would write; the caller has checked the vectors."""
    encoded = {name: Streamed.whole(feature_file._encoded(texts)) for name, texts in names.items()}
    meta = {"class_names": list(class_names), "provenance": provenance.as_dict()}
    _write({**arrays, **encoded}, path, meta)


def _write(arrays: Mapping[str, Streamed], path: str | os.PathLike[str], meta: Mapping[str, Any]) -> None:
    ordered = dict(sorted(arrays.items(), key=lambda item: (list(DTYPES).index(item[1].dtype), item[0])))
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        header = _header(ordered, meta)
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for name, array in ordered.items():
            if _write_blocks(file, array) != array.nbytes:
                raise StorageError(f"cannot write {path}: {name} does not have the {array.shape} values expected")


def _header(arrays: Mapping[str, Streamed], meta: Mapping[str, Any]) -> bytes:
    about = {"kind": feature_file.KIND, "version": feature_file.VERSION, "meta": dict(meta)}
    header: dict[str, Any] = {"__metadata__": {HEADER: json.dumps(about, allow_nan=False)}}
    start = 0
    for name, array in arrays.items():
        offsets = [start, start + array.nbytes]
        header[name] = {"dtype": DTYPES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        start += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _write_blocks(file: BinaryIO, array: Streamed) -> int:
    written = 0
    for block in array.blocks:
        if block.size:  # an empty one has no bytes to point at
            written += file.write(np.ascontiguousarray(block, array.dtype).data.cast("B"))
    return written

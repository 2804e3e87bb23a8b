"""Open a feature file of either format, told apart by what is in it and not by its name."""

from __future__ import annotations

import os
from pathlib import Path

from fiveshot.errors import StorageError
from fiveshot.features.feature_set import FeatureSet
from fiveshot.features.npz import load_npz

ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
NPY_START = b"\x93NUMPY"


def load_features(path: str | os.PathLike[str]) -> FeatureSet:
    """Load a feature file of ours (safetensors) or an ``.npz`` of any program.

    >>> load_features("nowhere.npz")
    Traceback (most recent call last):
    fiveshot.errors.StorageError: no such file: nowhere.npz
    """
    path = Path(path)
    if path.is_dir():
        raise StorageError(f"{path} is a folder; give a feature file (.safetensors or .npz)")
    if not path.is_file():
        raise StorageError(f"no such file: {path}")
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    if not start:
        raise StorageError(f"{path} is empty; get a fresh copy of it")
    if start.startswith((*ZIP_STARTS, NPY_START)):
        return load_npz(path)
    # A safetensors file begins with the length of its header in 8 bytes; the header is a JSON object.
    if start[8:9] == b"{":
        return FeatureSet.load(path)
    raise StorageError(
        f"{path} is no feature file: it is neither safetensors nor .npz; "
        "save features with FeatureSet.save, or with numpy.savez as train_x, train_y, test_x, test_y"
    )

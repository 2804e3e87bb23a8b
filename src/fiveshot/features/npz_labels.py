"""Labels as other programs write them, turned into indices into class names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError
from fiveshot.features.checks import Labels, listing


def label_array(name: str, y: NDArray[Any]) -> NDArray[Any]:
    """Return labels as int64 or as texts; bytes are taken as UTF-8."""
    if y.dtype.kind == "S":
        return np.char.decode(y, "utf-8")
    if y.dtype.kind == "u" and y.size and y.max() > np.iinfo(np.int64).max:
        raise InputError(f"{name} holds the label {y.max()}, which is more than 64 signed bits can hold")
    if y.dtype.kind not in "iuU":
        raise InputError(f"{name} must hold integers or texts, not {y.dtype}; convert it, e.g. with .astype(int)")
    return y if y.dtype.kind == "U" else y.astype(np.int64)


def class_indices(
    train_y: NDArray[Any], test_y: NDArray[Any], names: tuple[str, ...] | None
) -> tuple[Labels, Labels, tuple[str, ...]]:
    """Return both label vectors as indices into the class names, and the names.

    >>> class_indices(np.array([7, 3, 7]), np.array([3]), None)
    (array([1, 0, 1]), array([0]), ('3', '7'))
    """
    if (train_y.dtype.kind == "U") != (test_y.dtype.kind == "U"):
        raise InputError(f"train_y holds {train_y.dtype} and test_y {test_y.dtype}; use integers or texts in both")
    distinct = np.unique(np.concatenate([np.unique(train_y), np.unique(test_y)]))
    if names is None:
        position, names = np.arange(len(distinct)), tuple(str(label) for label in distinct)
    elif distinct.dtype.kind == "U":
        unnamed = sorted(set(distinct.tolist()) - set(names))
        if unnamed:
            raise InputError(f"labels that are not in class_names: {listing(unnamed)}")
        position = np.array([names.index(label) for label in distinct.tolist()], dtype=np.int64)
    elif len(distinct) == 0 or (distinct[0] >= 0 and distinct[-1] < len(names)):
        position = distinct
    elif len(distinct) == len(names):
        position = np.arange(len(distinct))
    else:
        raise InputError(
            f"labels from {distinct[0]} to {distinct[-1]} ({len(distinct)} distinct) do not fit "
            f"{len(names)} class_names; use indices from 0, or one name for every distinct label"
        )
    position = position.astype(np.int64)
    return position[np.searchsorted(distinct, train_y)], position[np.searchsorted(distinct, test_y)], names

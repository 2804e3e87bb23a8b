"""What the arrays of a feature set must be; each check names the value that is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError

Vectors: TypeAlias = NDArray[np.floating[Any]]
Labels: TypeAlias = NDArray[np.int64]

FLOATS = (np.float16, np.float32, np.float64)
BLOCK_ROWS = 4096  # vectors are checked in blocks, so that no second array of their size is made


def check_class_names(names: tuple[str, ...]) -> None:
    """Require distinct texts."""
    if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
        raise InputError("class_names must be a tuple of texts, none of them empty")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"class names given more than once: {listing(twice)}")


def check_vectors(split: str, x: Vectors, *, finite: bool) -> None:
    """Require a matrix of floating-point numbers and, with ``finite``, no NaN or infinity in it."""
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.dtype not in FLOATS:
        found = f"{x.dtype} of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InputError(f"{split}_x must be a matrix of float16, float32 or float64, not {found}")
    for start in range(0, len(x) if finite else 0, BLOCK_ROWS):
        good = np.isfinite(x[start : start + BLOCK_ROWS]).all(axis=1)
        if not good.all():
            raise InputError(f"{split}_x holds NaN or infinity, first in row {start + int(good.argmin())}")


def checked_labels(split: str, y: Labels, n_classes: int) -> Labels:
    """Return the labels as int64 after requiring indices into ``n_classes`` names."""
    if not isinstance(y, np.ndarray) or y.ndim != 1 or y.dtype.kind not in "iu":
        found = f"{y.dtype} of shape {y.shape}" if isinstance(y, np.ndarray) else type(y).__name__
        raise InputError(f"{split}_y must be a vector of integers (indices into class_names), not {found}")
    wrong = y[(y < 0) | (y >= n_classes)]
    if len(wrong):
        raise InputError(f"{split}_y holds the label {wrong[0]}; labels are indices into {n_classes} class names")
    return y.astype(np.int64, copy=False)


def listing(names: Sequence[str], limit: int = 8) -> str:
    """Join names for a message, the first few of many.

    >>> listing(["rook", "wren", "ani"], limit=2)
    'ani, rook and 1 more'
    """
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(sorted(names)[:limit]) + more

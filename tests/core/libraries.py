"""Arrays of the library that a test runs with; every test of the core runs with each."""

from __future__ import annotations

from typing import Any

import numpy as np

LIBRARIES = ("numpy", "torch")
chosen = ["numpy"]


def made(array: Any, dtype: Any = None) -> Any:
    """Return an array of NumPy in the library of this test."""
    array = np.array(np.asarray(array), dtype=dtype)
    if chosen[0] == "numpy":
        return array
    import torch

    return torch.from_numpy(array)


def same(one: Any, other: Any) -> bool:
    """Tell whether two arrays are of one library and hold the same numbers."""
    return type(one) is type(other) and bool(np.array_equal(np.asarray(one), np.asarray(other)))

"""Class labels: any strings or any integers, never a mixture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from fiveshot.errors import InputError

Label = str | int
Labels = NDArray[Any]  # (n,) of int64 or of str


def as_labels(y: ArrayLike | Tensor) -> Labels:
    """Return labels as a one-dimensional array of int64 or of str.

    >>> as_labels(["wren", "owl"]).tolist(), as_labels([3.0, 1.0]).tolist()
    (['wren', 'owl'], [3, 1])
    """
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    if isinstance(y, list | tuple):
        _refuse_mixture(y)
    array: Labels = column_or_1d(np.asarray(y), warn=True)
    if array.dtype.kind == "O":
        _refuse_mixture(array)
        array = np.array(array.tolist())
    if array.dtype.kind == "f":
        return _integral(array)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind in "UT":
        return array.astype(np.str_)
    raise InputError(
        f"labels must be strings or integers, got {array.dtype}; convert them with y.astype(int) or y.astype(str)"
    )


def same_kind(first: Labels, second: Labels) -> bool:
    """Tell whether two label arrays are both strings or both integers; an empty one fits any."""
    return first.size == 0 or second.size == 0 or first.dtype.kind == second.dtype.kind


def refuse_other_kind(known: Labels, given: Labels) -> None:
    """Raise if labels of one type meet known labels of the other."""
    if not same_kind(known, given):
        raise InputError(
            f"label {python_label(given[0])!r} does not fit: the classes known so far are "
            f"{_kind(known)} (for example {python_label(known[0])!r}); use one label type throughout"
        )


def python_label(label: Any) -> Label:
    """Return a NumPy scalar label as the plain Python value that JSON and error messages show."""
    value: Label = label.item() if isinstance(label, np.generic) else label
    return value


def python_labels(labels: Labels) -> list[Label]:
    """Return labels as plain Python values."""
    values: list[Label] = labels.tolist()
    return values


def _kind(labels: Labels) -> str:
    return "strings" if labels.dtype.kind == "U" else "integers"


def _refuse_mixture(values: Iterable[Any]) -> None:
    first_text = next((v for v in values if isinstance(v, str)), None)
    first_other = next((v for v in values if not isinstance(v, str)), None)
    if first_text is not None and first_other is not None:
        raise InputError(
            f"labels mix types: {first_text!r} is a string, {first_other!r} is not; use one type for all classes"
        )


def _integral(array: NDArray[Any]) -> Labels:
    if not np.isfinite(array).all():
        raise InputError("Input y contains NaN or infinity; every sample needs a label")
    if (array != np.round(array)).any():
        wrong = array[array != np.round(array)][0]
        raise InputError(
            f"Unknown label type: continuous value {wrong!r}; classes are named by strings or integers"
        )
    return array.astype(np.int64)

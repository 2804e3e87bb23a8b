"""Class labels: any strings, any integers or booleans, never a mixture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.arrays import as_numpy
from fiveshot.errors import InputError

Label = str | int
Labels = NDArray[Any]  # (n,) of int64, of str or of bool


def as_labels(y: Any) -> Labels:
    """Return labels as a one-dimensional array of int64, of str or of bool.

    >>> as_labels(["wren", "owl"]).tolist(), as_labels([3.0, 1.0]).tolist(), as_labels([True, False]).tolist()
    (['wren', 'owl'], [3, 1], [True, False])
    """
    if isinstance(y, list | tuple):
        _refuse_mixture(y)
    array = _one_dimensional(y)
    if array.dtype.kind == "O":
        _refuse_mixture(array)
        array = np.array(array.tolist())
    if array.dtype.kind in "fiu":
        return _integral(array)
    if array.dtype.kind in "UT":
        return np.array(array.tolist(), dtype=np.str_)
    if array.dtype.kind == "b":
        return array.astype(np.bool_)
    raise InputError(
        f"labels must be strings, integers or booleans, got {array.dtype}; convert them with y.astype(int) or "
        "y.astype(str)"
    )


def _one_dimensional(y: Any) -> NDArray[Any]:
    try:
        array = as_numpy(y)
    except ValueError as error:  # lists of different lengths
        raise InputError(f"{error}; give one label per sample, as a flat list") from error
    if array.ndim != 1:
        raise InputError(
            f"y should be a 1d array, got an array of shape {array.shape} instead",
            hint="give one label per sample, as a flat list",
        )
    return array


def as_label_list(labels: Label | Iterable[Label]) -> list[Label]:
    """Return one label, or several, as a list of plain values."""
    if isinstance(labels, str | int | np.generic):
        return [python_label(labels)]
    return [python_label(label) for label in labels]


def same_kind(first: Labels, second: Labels) -> bool:
    """Tell whether two label arrays have the same kind (strings, integers or booleans); an empty one fits any."""
    return first.size == 0 or second.size == 0 or first.dtype.kind == second.dtype.kind


def refuse_other_kind(known: Labels, given: Labels) -> None:
    """Raise if the given labels have another type than the known ones."""
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
    return {"U": "strings", "b": "booleans"}.get(labels.dtype.kind, "integers")


def _refuse_mixture(values: Iterable[Any]) -> None:
    values = list(values)
    texts = [value for value in values if isinstance(value, str)]
    others = [value for value in values if not isinstance(value, str)]
    if texts and others:
        raise InputError(
            f"labels mix types: {texts[0]!r} is a string, {others[0]!r} is not; use one type for all classes"
        )
    booleans = [isinstance(value, bool | np.bool_) for value in others]
    if any(booleans) and not all(booleans):
        first, other = (others[booleans.index(kind)] for kind in (True, False))
        raise InputError(
            f"labels mix types: {first!r} is a boolean, {other!r} is not; use one type for all classes"
        )


def _integral(array: NDArray[Any]) -> Labels:
    if not np.isfinite(array).all():
        raise InputError("Input y contains NaN or infinity; every sample needs a label")
    if (array != np.round(array)).any():
        wrong = array[array != np.round(array)][0]
        raise InputError(
            f"Unknown label type: continuous value {wrong!r}; classes are named by strings or integers"
        )
    if array.size and (array.max() >= 2**63 or array.min() < -(2**63)):
        raise InputError(f"label {array[np.abs(array).argmax()]!r} does not fit 64 bits; use strings instead")
    return array.astype(np.int64)

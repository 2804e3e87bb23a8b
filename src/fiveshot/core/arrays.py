"""Arrays of any library that follows the array API standard: NumPy by default, torch tensors where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array, is_torch_array, to_device
from numpy.typing import NDArray

Array = Any
"""An array of NumPy or a tensor of torch; the standard has no common type for them."""

Item = TypeVar("Item")
FOLLOWS_STANDARD = hasattr(np, "__array_api_version__")  # from NumPy 2 on
TINY = 1e-12  # lengths below are taken for this one, so that a zero vector stays a zero vector


def namespace(*arrays: Array) -> Any:
    """Return the functions of the library that these arrays belong to."""
    if FOLLOWS_STANDARD and all(type(array) is np.ndarray for array in arrays):
        return np  # at once: what array_api_compat wraps it in takes longer to import than NumPy itself
    return array_namespace(*arrays)


def as_numpy(array: Array) -> NDArray[Any]:
    """Return an array as one of NumPy; what lies on another device is copied from there."""
    if is_torch_array(array):
        array = array.detach().cpu().numpy()
    found: NDArray[Any] = np.asarray(array)
    return found


def placed(array: Array, like: Array) -> Array:
    """Return an array in the library, the precision and on the device of another."""
    return namespace(like).astype(beside(array, like), like.dtype, copy=False)


def beside(array: Array, like: Array) -> Array:
    """Return an array in the library and on the device of another, in its own precision."""
    if is_numpy_array(like):
        return as_numpy(array)
    if is_numpy_array(array):
        array = namespace(like).asarray(array if array.flags.writeable else array.copy())
    return to_device(array, device(like))


def values_like(values: Any, like: Array, *, dtype: Any = None) -> Array:
    """Return Python or NumPy values as an array beside ``like``, of its precision unless another is given."""
    xp = namespace(like)
    return xp.asarray(values, dtype=like.dtype if dtype is None else dtype, device=device(like))


def positions(rows: Any, like: Array) -> Array:
    """Return integers that pick rows or columns of an array, beside it."""
    rows = np.asarray(rows, dtype=np.int64)
    return rows if is_numpy_array(like) else values_like(rows, like, dtype=namespace(like).int64)


def mask(flags: Any, like: Array) -> Array:
    """Return truth values beside an array."""
    flags = np.asarray(flags, dtype=np.bool_)
    return flags if is_numpy_array(like) else values_like(flags, like, dtype=namespace(like).bool)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Return zeros of the precision and on the device of an array."""
    return namespace(like).zeros(shape, dtype=like.dtype, device=device(like))


def empty(shape: tuple[int, ...], like: Array) -> Array:
    """Return memory of the precision and on the device of an array."""
    return namespace(like).empty(shape, dtype=like.dtype, device=device(like))


def epsilon(like: Array) -> float:
    """Return the distance from one to the next larger number of an array's precision."""
    return float(namespace(like).finfo(like.dtype).eps)


def squared_lengths(rows: Array) -> Array:
    """Return ‖x‖² of each row, (..., d) → (...)."""
    return namespace(rows).vecdot(rows, rows, axis=-1)


def unit_rows(rows: Array) -> Array:
    """Return rows scaled to length one; a zero row stays zero."""
    xp = namespace(rows)
    return rows / at_least(xp.sqrt(squared_lengths(rows)), TINY)[..., None]


def at_least(values: Array, least: float) -> Array:
    """Return values with smaller ones raised to ``least``."""
    return np.maximum(values, values.dtype.type(least)) if is_numpy_array(values) else values.clamp(min=least)


def mean_row(rows: Array) -> Array:
    """Return the mean of rows, (n, d) → (d,), summed so that many rows lose no digits."""
    if is_numpy_array(rows):  # NumPy adds row after row; in double precision the order does not matter
        return rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
    return namespace(rows).mean(rows, axis=0)


def softmax(logits: Array) -> Array:
    """Return e^x / Σ e^x along the last axis."""
    xp = namespace(logits)
    powers = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def log_softmax(logits: Array) -> Array:
    """Return the logarithm of :func:`softmax`, which does not underflow."""
    xp = namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def one_hot(codes: Any, width: int, like: Array) -> Array:
    """Return a row for each code with a one in its column, (n, width)."""
    found = np.zeros((len(codes), width), dtype=np.float32)
    found[np.arange(len(codes)), codes] = 1
    return values_like(found, like)


def add_to_diagonal(matrix: Array, value: Any) -> None:
    """Add a number, or one for each, to the entries on the diagonal of a square matrix, in place."""
    if is_numpy_array(matrix):
        rows = np.arange(len(matrix))
        matrix[rows, rows] += value
    else:  # without indices, which would have to travel to its device
        matrix.diagonal().add_(value)


def chunks(rows: Array, size: int) -> Iterator[Array]:
    """Yield views of so many rows at a time; an array without rows is one such view."""
    for start in range(0, max(len(rows), 1), size):
        yield rows[start : start + size]


def parts(rows: Array, counts: Iterable[int]) -> list[Array]:
    """Return views of the rows, the first so many, the next so many, and so on."""
    ends = np.cumsum(list(counts)).tolist()
    return [rows[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def grouped(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Yield items in groups of a bounded total size; an item that is larger is a group of its own."""
    group: list[Item] = []
    total = 0
    for item in items:
        if group and total + size(item) > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group

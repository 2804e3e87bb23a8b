"""Arrays of any library that follows the array API standard, and linear algebra that the standard lacks.

On the CPU, triangular solves, symmetric products and Cholesky factors use SciPy's BLAS and LAPACK, for NumPy
arrays and for torch tensors, whose memory is shared. Row-major matrices are passed transposed: these views are in
Fortran order, so nothing is copied, and their upper triangle is our lower one. On other devices the library's own
functions are used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array, is_torch_array, to_device
from numpy.typing import NDArray

from fiveshot.work import library_imported

Array = Any
"""An array of NumPy or a tensor of torch; the standard has no common type for them."""

Item = TypeVar("Item")
FOLLOWS_STANDARD = hasattr(np, "__array_api_version__")  # from NumPy 2 on
TINY = 1e-12  # smallest length to divide by, so that a zero vector stays a zero vector
BLOCK = 1024
TILE = 128  # rows and columns that are transposed at a time; both tiles fit into a core's cache


def namespace(*arrays: Array) -> Any:
    """Return the function namespace of the library of these arrays."""
    if FOLLOWS_STANDARD and set(map(type, arrays)) == {np.ndarray}:
        return np  # a shortcut: the wrapper of array_api_compat takes longer to import than NumPy
    return array_namespace(*arrays)


def as_numpy(array: Array) -> NDArray[Any]:
    """Return an array as a NumPy array; an array on another device is copied."""
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
    """Return values as an array in the library, on the device and by default in the precision of ``like``."""
    xp = namespace(like)
    return xp.asarray(values, dtype=like.dtype if dtype is None else dtype, device=device(like))


def positions(rows: Any, like: Array) -> Array:
    """Return integer indices in the library and on the device of an array."""
    rows = np.asarray(rows, dtype=np.int64)
    return rows if is_numpy_array(like) else values_like(rows, like, dtype=namespace(like).int64)


def mask(flags: Any, like: Array) -> Array:
    """Return truth values in the library and on the device of an array."""
    flags = np.asarray(flags, dtype=np.bool_)
    return flags if is_numpy_array(like) else values_like(flags, like, dtype=namespace(like).bool)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Return zeros with the precision and on the device of an array."""
    return namespace(like).zeros(shape, dtype=like.dtype, device=device(like))


def empty(shape: tuple[int, ...], like: Array) -> Array:
    """Return uninitialized memory with the precision and on the device of an array."""
    return namespace(like).empty(shape, dtype=like.dtype, device=device(like))


def epsilon(like: Array) -> float:
    """Return the machine epsilon of an array's precision."""
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
    if is_numpy_array(rows):  # NumPy adds row after row, which is accurate enough in double precision
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


def in_rows(matrix: Array) -> Array:
    """Return the matrix in row-major order."""
    return matrix.contiguous() if is_torch_array(matrix) else np.ascontiguousarray(matrix)


def add_to_diagonal(matrix: Array, value: Any) -> None:
    """Add a number, or a vector, to the diagonal of a square matrix, in place."""
    if is_numpy_array(matrix):
        rows = np.arange(len(matrix))
        matrix[rows, rows] += value
    else:  # without indices, which would have to be copied to the device
        matrix.diagonal().add_(value)


def chunks(rows: Array, size: int) -> Iterator[Array]:
    """Yield views of at most ``size`` rows; an array without rows gives one empty view."""
    for start in range(0, max(len(rows), 1), size):
        yield rows[start : start + size]


def parts(rows: Array, counts: Iterable[int]) -> list[Array]:
    """Split the rows into consecutive views with these counts."""
    ends = np.cumsum(list(counts)).tolist()
    return [rows[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def grouped(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Yield items in groups of a bounded total size; an item above the bound is its own group."""
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


def on_cpu(array: Array) -> bool:
    """Tell whether SciPy can work on the memory of an array."""
    return not is_torch_array(array) or array.device.type == "cpu"


def in_sums(array: Array) -> Array:
    """Return an array in the precision for large sums of products: double on a GPU.

    On a GPU, the error of single-precision sums over many thousand rows exceeds the λ of a ridge regression, so
    its matrix would no longer be positive definite. The sums of a CPU's BLAS are far more accurate.
    """
    return array if on_cpu(array) else array.double()


def add_gram_(gram: Array, rows: Array) -> None:
    """Add rowsᵀ · rows to the lower triangle of ``gram``, in place; the upper triangle does not change."""
    if on_cpu(gram):
        target = _view(gram)
        source = _ordered(rows, target.dtype)
        found = _blas("syrk", gram)(1.0, source.T, beta=1.0, c=target.T, overwrite_c=1)
        if not target.flags.c_contiguous:  # SciPy worked on a copy
            target[...] = found.T
        return
    for start in range(0, len(gram), BLOCK):
        stop = min(start + BLOCK, len(gram))
        gram[start:stop, :stop].addmm_(rows[:, start:stop].T, rows[:, :stop])


def column_gram(rows: Array) -> Array:
    """Return rowsᵀ · rows, (d, d), in its lower triangle; the upper one is zero on the CPU."""
    gram = zeros((rows.shape[1], rows.shape[1]), rows)
    add_gram_(gram, rows)
    return gram


def row_gram(rows: Array) -> Array:
    """Return rows · rowsᵀ, (n, n), in its lower triangle; the upper triangle is undefined."""
    if not on_cpu(rows):
        return rows @ rows.T
    return _back(_blas("syrk", rows)(1.0, _ordered(rows).T, trans=1).T, rows)


def lower_norm(matrix: Array) -> float:
    """Return the Frobenius norm of a symmetric matrix from its lower triangle."""
    xp, total = namespace(matrix), 0.0
    for start in range(0, len(matrix), BLOCK):
        stop = start + BLOCK
        below, corner = matrix[stop:, start:stop], xp.tril(matrix[start:stop, start:stop])
        on_diagonal = xp.linalg.diagonal(corner)
        total += 2 * float(xp.sum(below * below) + xp.sum(corner * corner)) - float(xp.sum(on_diagonal**2))
    return float(total**0.5)


def solve_lower_(lower: Array, rows: Array) -> Array:
    """Return L⁻¹ x for each row x, (n, d); ``rows`` may be overwritten."""
    if not on_cpu(rows):
        return _torch().linalg.solve_triangular(lower.T, rows, upper=True, left=False)
    return _solved(lower, rows, transposed=1)


def solve_upper_(lower: Array, rows: Array) -> Array:
    """Return L⁻ᵀ x for each row x, (n, d), given the lower L; ``rows`` may be overwritten."""
    if not on_cpu(rows):
        return _torch().linalg.solve_triangular(lower, rows, upper=False, left=False)
    return _solved(lower, rows, transposed=0)


def _solved(lower: Array, rows: Array, *, transposed: int) -> Array:
    given = _ordered(rows)
    matrix = _ordered(lower, given.dtype)
    return _back(_blas("trsm", rows)(1.0, matrix.T, given.T, trans_a=transposed, overwrite_b=1).T, rows)


def multiply_lower_(lower: Array, rows: Array) -> Array:
    """Return L x for each row x, (n, d); ``rows`` may be overwritten."""
    if not on_cpu(rows):
        return rows @ lower.T
    multiply = _blas("trmm", rows)
    return _back(multiply(1.0, _view(lower).T, _ordered(rows).T, lower=0, trans_a=1, overwrite_b=1).T, rows)


def cholesky_(matrix: Array) -> Array | None:
    """Return the lower L of L Lᵀ, or None if the matrix is not positive definite.

    Only its lower triangle is read, and it may be overwritten. Above the diagonal L is zero.
    """
    if not on_cpu(matrix):
        return _cuda_cholesky(matrix)
    factor, failed = _lapack("potrf", matrix)(_view(matrix).T, lower=0, clean=1, overwrite_a=1)
    return None if failed else _back(factor.T, matrix)


def _cuda_cholesky(matrix: Array) -> Array | None:
    """Return the lower factor, or None. For a nearly singular matrix, CUDA may report success and return NaN."""
    factor, failed = _torch().linalg.cholesky_ex(matrix)
    return factor if not int(failed) and bool(factor.diagonal().isfinite().all()) else None


def inverse_of_cholesky(lower: Array) -> Array:
    """Return (L Lᵀ)⁻¹ in its lower triangle; the upper triangle is undefined."""
    if not on_cpu(lower):
        return _torch().cholesky_inverse(lower)
    inverse, _ = _lapack("potri", lower)(_view(lower).T, lower=0)  # cannot fail: no pivot of a factor is zero
    return _back(inverse.T, lower)


def eigh(matrix: Array) -> tuple[Array, Array]:
    """Return the eigenvalues, ascending, and eigenvectors of a symmetric matrix from its lower triangle."""
    if not on_cpu(matrix):
        found = _torch().linalg.eigh(matrix, UPLO="L")
        return found[0], found[1]
    view = _view(matrix)
    work, iwork, failed = _lapack("syevd_lwork", matrix)(len(view), lower=0)
    values, vectors, failed = _lapack("syevd", matrix)(view.T, lower=0, lwork=int(work), liwork=int(iwork))
    if failed:
        raise ArithmeticError(f"the eigenvalues of a matrix were not found (LAPACK error {failed})")
    return _back(values, matrix), _back(vectors, matrix)


def triangle(rows: Array) -> Array:
    """Return the R of rows = QR, (min(n, d), d), for which RᵀR = rowsᵀ · rows."""
    if not len(rows):
        return rows
    if not on_cpu(rows):
        return _torch().linalg.qr(rows, mode="r").R
    view = _view(rows)
    work, _ = _lapack("geqrf_lwork", rows)(*view.shape)
    # In row-major order like all other matrices here: the order affects the last bits of later results.
    found = np.ascontiguousarray(_lapack("geqrf", rows)(view, lwork=int(work))[0][: min(view.shape)])
    found[:, : len(found)] = np.triu(found[:, : len(found)])  # columns to the right of the square stay
    return _back(found, rows)


def product_into(left: Array, right: Array, out: Array) -> Array:
    """Write a matrix product into ``out``, and return it."""
    if is_torch_array(out):
        return _torch().mm(left, right, out=out)
    return np.matmul(left, right, out=out)


def clip_negative_(values: Array) -> Array:
    """Set negative numbers to zero, in place, and return the array."""
    if is_torch_array(values):
        return values.clamp_min_(0)
    return np.maximum(values, 0, out=values)


def solve_shifted(gram: Array, targets: Array, shift: float) -> Array | None:
    """Return targets · (gram + shift · I)⁻¹, (C, M), or None if the matrix is not positive definite.

    Only the lower triangle of ``gram`` is read. On the CPU ``gram`` is the workspace, so no second M × M matrix is
    needed. Afterwards its lower triangle is unchanged.
    """
    if on_cpu(gram):
        return _solve_in_place(gram, targets, shift)
    shifted = gram.clone()
    shifted.diagonal().add_(shift)
    factor = _cuda_cholesky(shifted)
    return None if factor is None else _torch().cholesky_solve(targets.T, factor).T.contiguous()


def _solve_in_place(gram: Array, targets: Array, shift: float) -> Array | None:
    matrix = _view(gram)
    diagonal = matrix.diagonal().copy()
    _copy_to_upper_(matrix)
    try:
        add_to_diagonal(matrix, shift)
        # The lower triangle of the transposed view is our upper one, which is not used otherwise.
        factor, failed = _lapack("potrf", gram)(matrix.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            return None
        given = np.array(_view(targets), dtype=matrix.dtype, order="C")
        solution, _ = _lapack("potrs", gram)(factor, given.T, lower=1, overwrite_b=1)
    finally:
        np.fill_diagonal(matrix, diagonal)
    return _back(solution.T, gram)


def _copy_to_upper_(matrix: NDArray[Any]) -> None:
    """Copy the lower triangle of a square matrix to the upper one, tile by tile in place."""
    for start in range(0, len(matrix), TILE):
        stop = start + TILE
        corner = matrix[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        for row in range(stop, len(matrix), TILE):
            matrix[start:stop, row : row + TILE] = matrix[row : row + TILE, start:stop].T


def _view(array: Array) -> NDArray[Any]:
    """Return the same memory as an array of NumPy."""
    found: NDArray[Any] = array.numpy() if is_torch_array(array) else array
    return found


def _ordered(rows: Array, dtype: Any = None) -> NDArray[Any]:
    return np.ascontiguousarray(_view(rows), dtype=dtype)


def _back(array: NDArray[Any], like: Array) -> Array:
    """Return the same memory in the library of ``like``."""
    return _torch().from_numpy(array) if is_torch_array(like) else array


def _torch() -> Any:
    """Return torch; it is already imported if there is a tensor."""
    return sys.modules["torch"]


def _blas(name: str, like: Array) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(_library("blas"), _letter(like) + name)
    return function


def _lapack(name: str, like: Array) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(_library("lapack"), _letter(like) + name)
    return function


@cache
def _library(name: str) -> Any:
    """Return SciPy's BLAS or LAPACK; imported on first use, because the import is slow."""
    found = import_module(f"scipy.linalg.{name}")
    library_imported()
    return found


def _letter(like: Array) -> str:
    return "s" if like.dtype == namespace(like).float32 else "d"

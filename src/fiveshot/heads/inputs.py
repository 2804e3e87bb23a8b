"""Features in, as a user has them (NumPy, lists, data frames, torch on any device), checked once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array, is_torch_array
from numpy.typing import NDArray

from fiveshot.core.arrays import Array, as_numpy, namespace
from fiveshot.core.labels import Labels, as_labels, python_labels, refuse_other_kind
from fiveshot.errors import InputError


def as_features(head: Any, X: Any, *, reset: bool) -> Array:
    """Return X as a finite float32 or float64 matrix: half precision becomes float32, lists and integers float64.

    Tensors of torch stay where they are, everything else becomes an array of NumPy. With ``reset`` the head learns
    the number of features; without it X must have that number.
    """
    if is_torch_array(X):
        return _checked_tensor(head, X, reset)
    if isinstance(X, list | tuple):
        X = _as_matrix(X)
    named = hasattr(head, "feature_names_in_")
    simple = is_numpy_array(X) and X.dtype.kind in "fiub" and X.ndim == 2 and X.size and not named
    array = _checked_array(head, X, reset) if simple else _checked_by_sklearn(head, X, reset)
    return np.ascontiguousarray(array)


def _as_matrix(X: Any) -> Any:
    """Return nested lists of numbers as a matrix, and anything else as it is."""
    try:
        array = np.asarray(X)
    except (TypeError, ValueError):
        return X
    return array if array.dtype.kind in "fiub" else X


def _checked_array(head: Any, X: NDArray[Any], reset: bool) -> NDArray[Any]:
    """Check the usual case by ourselves: a matrix of numbers."""
    array = np.asarray(X, dtype=_precision(X.dtype))
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        what = "NaN" if np.isnan(array).any() else f"infinity or a value too large for {array.dtype!r}"
        raise InputError(
            f"Input X contains {what}, first in row {row}",
            hint="leave that row out or extract its features again",
        )
    _count_features(head, array, reset)
    return array


def _precision(dtype: Any) -> Any:
    return np.float32 if dtype in (np.float16, np.float32) else np.float64


def _checked_by_sklearn(head: Any, X: Any, reset: bool) -> NDArray[Any]:
    """Check what is rarer with scikit-learn: data frames and their column names, objects, wrong shapes."""
    from sklearn.utils.validation import validate_data

    if is_numpy_array(X) and X.dtype == np.float16:
        X = X.astype(np.float32)
    try:
        found = validate_data(head, X, reset=reset, dtype=[np.float64, np.float32], order="C")
    except ValueError as error:
        raise InputError(str(error)) from error
    return as_numpy(found)


def _checked_tensor(head: Any, X: Array, reset: bool) -> Array:
    xp = namespace(X)
    if X.ndim != 2 or 0 in X.shape:
        raise InputError(
            f"expected features of shape (n_samples, n_features), got {tuple(X.shape)}",
            hint="reshape a single vector with x[None]",
        )
    if not X.is_floating_point():
        raise InputError(f"expected floating-point features, got {X.dtype}", hint="convert them with X.float()")
    X = X.detach()
    if X.dtype not in (xp.float32, xp.float64):
        X = X.float()
    _count_features(head, X, reset)
    finite = xp.all(xp.isfinite(X), axis=1)
    if not xp.all(finite):
        row = int(np.flatnonzero(~as_numpy(finite))[0])
        raise InputError(f"Input X contains NaN or infinity, first in row {row}", hint="leave that row out")
    return X.contiguous()


def _count_features(head: Any, X: Array, reset: bool) -> None:
    if reset:
        head.n_features_in_ = int(X.shape[1])
        head.__dict__.pop("feature_names_in_", None)
    elif X.shape[1] != head.n_features_in_:
        raise InputError(
            f"X has {X.shape[1]} features, but {type(head).__name__} is expecting "
            f"{head.n_features_in_} features as input",
            hint="extract them with the same backbone",
        )


def as_session_labels(head: Any, y: Any, *, n_samples: int, known: Labels, classes: Any) -> Labels:
    """Return the labels of a session, one per sample, of the type of the classes known so far.

    ``classes`` may announce the classes of the session; one without a sample is an error.
    """
    if y is None:
        raise InputError(f"{type(head).__name__} requires y to be passed, but the target y is None")
    labels = as_labels(flat_labels(y))
    if len(labels) != n_samples:
        raise InputError(f"X has {n_samples} rows, but y has {len(labels)} labels", hint="give one label per row")
    refuse_other_kind(known, labels)
    if classes is not None:
        _compare_with_announced(labels, as_labels(classes))
    return labels


def flat_labels(y: Any) -> Any:
    """Return labels that came as a column in one dimension, with scikit-learn's warning."""
    if getattr(y, "ndim", 1) != 2 or y.shape[1] != 1:
        return y
    from sklearn.exceptions import DataConversionWarning

    warnings.warn(
        "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
        "(n_samples,), for example using ravel().",
        DataConversionWarning,
        stacklevel=2,
    )
    return as_numpy(y).reshape(-1)


def _compare_with_announced(labels: Labels, announced: Labels) -> None:
    refuse_other_kind(announced, labels)
    missing = python_labels(np.setdiff1d(announced, labels))
    if missing:
        raise InputError(
            f"no sample of class {missing[0]!r}, which classes= announces "
            f"({len(missing)} of {len(announced)} are missing); add samples of it or leave it out"
        )
    unexpected = python_labels(np.setdiff1d(labels, announced))
    if unexpected:
        raise InputError(f"label {unexpected[0]!r} is not among the announced classes=; add it there")

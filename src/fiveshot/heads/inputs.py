"""Features in, as a user has them (NumPy, lists, data frames, torch on any device), checked once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor

from fiveshot.errors import InputError
from fiveshot.statistics.labels import Labels, as_labels, python_labels, refuse_other_kind


def as_features(head: BaseEstimator, X: ArrayLike | Tensor, *, reset: bool) -> Tensor:
    """Return X as a finite float32 or float64 matrix: half precision becomes float32, lists and integers float64.

    With ``reset`` the head learns the number of features; without it X must have that number.
    """
    return _checked_tensor(head, X, reset) if isinstance(X, Tensor) else _checked_array(head, X, reset)


def _checked_array(head: BaseEstimator, X: Any, reset: bool) -> Tensor:
    if isinstance(X, np.ndarray) and X.dtype == np.float16:
        X = X.astype(np.float32)
    try:
        array = validate_data(head, X, reset=reset, dtype=[np.float64, np.float32], order="C")
    except ValueError as error:
        raise InputError(f"{error}{_first_bad_row(X)}") from error
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _first_bad_row(X: Any) -> str:
    if not isinstance(X, np.ndarray) or X.dtype.kind != "f" or X.ndim != 2 or np.isfinite(X).all():
        return ""
    row = int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])
    return f"\nThe first such row is {row}; leave it out or extract its features again."


def _checked_tensor(head: Any, X: Tensor, reset: bool) -> Tensor:
    if X.ndim != 2 or 0 in X.shape:
        raise InputError(
            f"expected features of shape (n_samples, n_features), got {tuple(X.shape)}; "
            "reshape a single vector with x[None]"
        )
    if not X.is_floating_point():
        raise InputError(f"expected floating-point features, got {X.dtype}; convert them with X.float()")
    X = X.detach()
    if X.dtype not in (torch.float32, torch.float64):
        X = X.float()
    if reset:
        head.n_features_in_ = X.shape[1]
        head.__dict__.pop("feature_names_in_", None)
    elif X.shape[1] != head.n_features_in_:
        raise InputError(
            f"X has {X.shape[1]} features, but {type(head).__name__} is expecting "
            f"{head.n_features_in_} features as input; extract them with the same backbone"
        )
    finite = torch.isfinite(X).all(dim=1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        raise InputError(f"Input X contains NaN or infinity, first in row {row}; leave that row out")
    return X


def as_session_labels(
    head: BaseEstimator, y: Any, *, n_samples: int, known: Labels, classes: ArrayLike | None
) -> Labels:
    """Return the labels of a session, one per sample, of the type of the classes known so far.

    ``classes`` may announce the classes of the session; one without a sample is an error.
    """
    if y is None:
        raise InputError(f"{type(head).__name__} requires y to be passed, but the target y is None")
    labels = as_labels(y)
    if len(labels) != n_samples:
        raise InputError(f"X has {n_samples} rows, but y has {len(labels)} labels; give one label per row")
    refuse_other_kind(known, labels)
    if classes is not None:
        _compare_with_announced(labels, as_labels(classes))
    return labels


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

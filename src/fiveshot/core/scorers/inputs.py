"""Checks of the inputs of scorers: finite matrices of features, as NumPy arrays or torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import is_numpy_array, is_torch_array

from fiveshot.core.arrays import Array, as_numpy, namespace
from fiveshot.errors import InputError
from fiveshot.extras import import_extra


def as_features(X: Any, n_features: int | None, owner: str) -> Array:
    """Return X as a finite matrix of float32 or float64: half precision becomes float32, integers become float64.

    Torch tensors stay on their device; everything else becomes a NumPy array. ``n_features`` is the number of
    columns that ``owner`` has learned, or None for any number.

    >>> as_features([[1, 2]], None, "NCM").dtype
    dtype('float64')
    """
    if not is_torch_array(X):
        X = np.asarray(X)
    if X.ndim != 2 or 0 in X.shape:
        raise InputError(
            f"expected features of shape (n_samples, n_features), got {tuple(X.shape)}",
            hint="reshape a single vector with x[None]",
        )
    X = _in_precision(X)
    if n_features is not None and X.shape[1] != n_features:
        raise InputError(
            f"X has {X.shape[1]} features, but {owner} is expecting {n_features} features as input",
            hint="extract them with the same backbone",
        )
    refuse_not_finite(X)
    return np.ascontiguousarray(X) if is_numpy_array(X) else X.contiguous()


def refuse_not_finite(X: Array) -> None:
    """Raise an error for features with NaN or infinity."""
    xp = namespace(X)
    finite = xp.isfinite(X)
    if xp.all(finite):
        return
    row = int(np.flatnonzero(~as_numpy(finite).all(axis=1))[0])
    what = "NaN" if xp.any(xp.isnan(X)) else f"infinity or a value too large for {X.dtype!r}"
    raise InputError(
        f"Input X contains {what}, first in row {row}", hint="leave that row out or extract its features again"
    )


def _in_precision(X: Array) -> Array:
    if is_torch_array(X):
        if not X.is_floating_point():
            raise InputError(
                f"expected floating-point features, got {X.dtype}", hint="convert them with X.float()"
            )
        X, xp = X.detach(), namespace(X)
        return X if X.dtype in (xp.float32, xp.float64) else X.float()
    if X.dtype.kind not in "fiub":
        raise InputError(f"expected features as numbers, got {X.dtype}", hint="convert them with X.astype(float)")
    return np.asarray(X, dtype=np.float32 if X.dtype in (np.float16, np.float32) else np.float64)


def on_device(X: Array, device: Any) -> Array:
    """Return features on the device of a scorer: unchanged without a device, else as torch tensors."""
    if device is None or (is_numpy_array(X) and str(device) == "cpu"):
        return X
    torch = import_extra("torch", extra="torch")
    if is_numpy_array(X):
        X = torch.from_numpy(X if X.flags.writeable else X.copy())
    return X.to(device)

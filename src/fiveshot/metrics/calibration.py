"""Whether probabilities mean what they say: the expected calibration error."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fiveshot.errors import InputError

SUM_TOLERANCE = 1e-3  # wide enough for rows summed in half precision


def expected_calibration_error(probabilities: ArrayLike, y_true: ArrayLike, bins: int = 15) -> float:
    """Return ECE = sum over bins of (n_bin / n) |accuracy(bin) - mean confidence(bin)|.

    The confidence of a sample is its largest probability, and its prediction is the column of that (the first
    of equal ones).

    Parameters
    ----------
    probabilities : array-like of shape (n_samples, n_classes)
        Rows that sum to 1.
    y_true : array-like of shape (n_samples,)
        Column indices of the true classes.
    bins : int
        Number of equally wide intervals of (0, 1], open on the left and closed on the right.

    Returns
    -------
    float
        The expected calibration error.

    Raises
    ------
    InputError
        If the shapes do not fit, a label is not a column, or a row is not a distribution.

    Examples
    --------
    >>> from fiveshot.metrics import expected_calibration_error
    >>> expected_calibration_error([[0.75, 0.25], [0.75, 0.25]], [0, 1], bins=10)
    0.25
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(y_true)  # (n, classes), (n,)
    if p.ndim != 2 or y.shape != p.shape[:1] or p.size == 0:
        raise InputError(f"one row of probabilities per label is needed, not shapes {p.shape} and {y.shape}")
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= p.shape[1]:
        raise InputError(f"labels must be column indices from 0 to {p.shape[1] - 1}")
    if not ((p >= 0).all() and np.allclose(p.sum(axis=1), 1, rtol=0, atol=SUM_TOLERANCE)):
        raise InputError(
            "each row of probabilities must be non-negative and sum to 1", hint="apply a softmax first"
        )
    if bins < 1:
        raise InputError(f"bins must be at least 1, not {bins}")
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    # n_bin |accuracy - confidence| = |sum of (right - confidence) over the bin|.
    gaps = np.bincount(place, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))

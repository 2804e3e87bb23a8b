"""Accuracy of predictions: overall, of old and new classes, per class, where errors go, what probabilities say.

All values are unrounded fractions between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.errors import InputError

SUM_TOLERANCE = 1e-3  # wide enough for rows summed in half precision


class OldNewAccuracy(NamedTuple):
    """A_old and A_new after a session.

    Attributes
    ----------
    old, new : float or None
        The accuracy on old and on new classes; None where there is no test sample to measure it on.

    Examples
    --------
    >>> from fiveshot.metrics import old_new_accuracy
    >>> measured = old_new_accuracy([0, 0, 1, 2], [0, 0, 1, 0], new_classes=[1, 2])
    >>> measured.old, measured.new
    (1.0, 0.5)
    """

    old: float | None
    new: float | None


@dataclass(frozen=True)
class BaseNewConfusion:
    """How many samples of base and of new classes were predicted right, or as which kind of class.

    Attributes
    ----------
    base_right, new_right : int
        Right predictions of samples of base and of new classes.
    base_to_base, new_to_new : int
        Errors within a group.
    base_to_new, new_to_base : int
        Errors from one group to the other.

    Examples
    --------
    >>> from fiveshot.metrics import base_new_confusion
    >>> counts = base_new_confusion([0, 0, 1, 2], [0, 1, 0, 0], base_classes=[0], new_classes=[1, 2])
    >>> counts.base_to_new, counts.new_to_base
    (1, 2)
    """

    base_right: int
    base_to_base: int
    base_to_new: int
    new_right: int
    new_to_new: int
    new_to_base: int

    def as_dict(self) -> dict[str, int]:
        """Return the six counts."""
        return asdict(self)


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the fraction of samples whose predicted label is the true one.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        True and predicted labels.

    Returns
    -------
    float
        The accuracy.

    Raises
    ------
    InputError
        If the labels are not two vectors of equal length with at least one entry.

    Examples
    --------
    >>> from fiveshot.metrics import accuracy
    >>> accuracy([0, 1, 2, 2], [0, 1, 1, 2])
    0.75
    """
    true, predicted = label_pair(y_true, y_pred)
    return float(np.mean(true == predicted))


def old_new_accuracy(y_true: ArrayLike, y_pred: ArrayLike, new_classes: Iterable[Any]) -> OldNewAccuracy:
    """Return A_old and A_new after a session, both with all classes seen so far as candidates.

    A_old is the accuracy on the classes of all earlier sessions, the base session included.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        True and predicted labels.
    new_classes : iterable of labels
        The classes of the current session.

    Returns
    -------
    OldNewAccuracy
        Both accuracies.

    Examples
    --------
    >>> from fiveshot.metrics import old_new_accuracy
    >>> old_new_accuracy([0, 0, 1, 2], [0, 1, 1, 0], new_classes=[2])
    OldNewAccuracy(old=0.6666666666666666, new=0.0)
    """
    true, predicted = label_pair(y_true, y_pred)
    is_new = _member(true, new_classes)
    right = true == predicted
    old, new = (float(right[part].mean()) if part.any() else None for part in (~is_new, is_new))
    return OldNewAccuracy(old, new)


def harmonic_mean(a_old: float, a_new: float) -> float:
    """Return A_HM = 2 A_old A_new / (A_old + A_new), and 0 when both are 0.

    Parameters
    ----------
    a_old, a_new : float
        Accuracies between 0 and 1.

    Returns
    -------
    float
        Their harmonic mean, equation (10) of the paper.

    Raises
    ------
    InputError
        If an accuracy does not lie between 0 and 1.

    Examples
    --------
    >>> from fiveshot.metrics import harmonic_mean
    >>> harmonic_mean(0.75, 0.25)
    0.375
    """
    if not (0 <= a_old <= 1 and 0 <= a_new <= 1):
        raise InputError(f"accuracies must lie between 0 and 1, not {a_old} and {a_new}")
    return 2 * a_old * a_new / (a_old + a_new) if a_old + a_new > 0 else 0.0


def per_class_accuracy(
    y_true: ArrayLike, y_pred: ArrayLike, classes: Iterable[Any]
) -> NDArray[np.float64]:  # (n_classes,)
    """Return for each class the fraction of its samples that were predicted as it (its recall).

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        True and predicted labels.
    classes : iterable of labels
        The classes to look at.

    Returns
    -------
    ndarray of shape (n_classes,)
        The recall of each class; NaN for a class without samples.

    Examples
    --------
    >>> from fiveshot.metrics import per_class_accuracy
    >>> per_class_accuracy([0, 0, 1], [0, 1, 1], classes=[0, 1, 2])
    array([0.5, 1. , nan])
    """
    true, predicted = label_pair(y_true, y_pred)
    right = true == predicted
    chosen = (true == label for label in classes)
    return np.array([right[own].mean() if own.any() else np.nan for own in chosen], dtype=np.float64)


def base_new_confusion(
    y_true: ArrayLike, y_pred: ArrayLike, base_classes: Iterable[Any], new_classes: Iterable[Any]
) -> BaseNewConfusion:
    """Count errors between the base classes and all classes added later, and within each group.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n_samples,)
        True and predicted labels.
    base_classes, new_classes : iterable of labels
        The classes of the base session, and those of all later sessions.

    Returns
    -------
    BaseNewConfusion
        The counts.

    Raises
    ------
    InputError
        If a label belongs to neither group.

    Examples
    --------
    >>> from fiveshot.metrics import base_new_confusion
    >>> base_new_confusion([0, 1, 2, 3], [0, 2, 3, 0], base_classes=[0, 1], new_classes=[2, 3]).as_dict()
    {'base_right': 1, 'base_to_base': 0, 'base_to_new': 1, 'new_right': 0, 'new_to_new': 1, 'new_to_base': 1}
    """
    true, predicted = label_pair(y_true, y_pred)
    base_classes, new_classes = list(base_classes), list(new_classes)
    for labels in (true, predicted):
        stray = labels[~_member(labels, [*base_classes, *new_classes])]
        if len(stray):
            raise InputError(f"the label {stray[0]!r} belongs neither to a base class nor to a new one")
    right = true == predicted
    from_base, to_base = _member(true, base_classes), _member(predicted, base_classes)

    def count(chosen: NDArray[np.bool_]) -> int:
        return int(np.count_nonzero(chosen))

    return BaseNewConfusion(
        base_right=count(right & from_base),
        base_to_base=count(~right & from_base & to_base),
        base_to_new=count(from_base & ~to_base),
        new_right=count(right & ~from_base),
        new_to_new=count(~right & ~from_base & ~to_base),
        new_to_base=count(~from_base & to_base),
    )


def label_pair(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return true and predicted labels as arrays; both must have the same length, at least one."""
    true, predicted = np.asarray(y_true), np.asarray(y_pred)
    if true.ndim != 1 or true.shape != predicted.shape or len(true) == 0:
        raise InputError(
            "true and predicted labels must be vectors of equal length with at least one entry, "
            f"not of shapes {true.shape} and {predicted.shape}"
        )
    if (true.dtype.kind in "US") != (predicted.dtype.kind in "US"):
        raise InputError(f"true labels are {true.dtype}, predicted ones {predicted.dtype}", hint="use one kind")
    return true, predicted


def _member(labels: NDArray[Any], classes: Iterable[Any]) -> NDArray[np.bool_]:
    """Tell for each label whether it is one of these classes."""
    wanted = list(classes)
    given = np.array(wanted) if wanted else labels[:0]
    if (given.dtype.kind in "US") != (labels.dtype.kind in "US"):
        raise InputError(f"classes are {given.dtype}, labels {labels.dtype}", hint="use one kind")
    return np.isin(labels, given)


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

"""Accuracy of predictions: overall, of old and new classes and their trade-off, per class, and of probabilities.

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
LEVELS = 51  # points of a curve that are kept


class OldNewAccuracy(NamedTuple):
    """A_old and A_new after a session.

    Attributes
    ----------
    old, new : float or None
        The accuracy on old and on new classes; None if there are no test samples.

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
    """Return the fraction of samples with the right label.

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
        The classes.

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


def open_set_area(known: ArrayLike, right: ArrayLike, unknown: ArrayLike) -> float:
    """Return OSCR: how well known samples are told apart from each other and from unknown ones.

    A sample is accepted if its familiarity reaches a threshold. As the threshold falls, the share of known samples
    that are accepted and right, over the share of accepted unknown ones, forms a curve. The area under it is the
    share of pairs in which the known sample is right and more familiar; equal values count half.

    Parameters
    ----------
    known : array-like of shape (n_known,)
        The familiarity of samples of known classes.
    right : array-like of shape (n_known,)
        Whether their predicted classes are right.
    unknown : array-like of shape (n_unknown,)
        The familiarity of samples of unknown classes.

    Returns
    -------
    float
        At most the accuracy on known samples; if all are right, the AUROC.

    Raises
    ------
    InputError
        If one kind of samples is missing, or the shapes do not fit.

    Examples
    --------
    >>> from fiveshot.metrics import open_set_area
    >>> open_set_area([0.9, 0.8, 0.1], [True, False, True], [0.2, 0.0])
    0.5
    """
    familiar, rights, strange = np.asarray(known), np.asarray(right, dtype=np.bool_), np.sort(np.asarray(unknown))
    if familiar.ndim != 1 or strange.ndim != 1 or familiar.shape != rights.shape:
        raise InputError(
            f"one row of values is needed, not shapes {familiar.shape}, {rights.shape}, {strange.shape}"
        )
    if not familiar.size or not strange.size:
        raise InputError("samples of known and of unknown classes are needed")
    below = np.searchsorted(strange, familiar, "left") + np.searchsorted(strange, familiar, "right")
    return float((rights * below).mean() / 2 / len(strange))


@dataclass(frozen=True)
class GeneralizedAccuracy:
    """Accuracy as a function of the weight of the base session.

    Attributes
    ----------
    weights : tuple of float
        Weights of the base session, from 0 to the ratio of its classes to those of a later session.
    values : tuple of float
        The accuracy at each weight, averaged over all sessions.
    area : float
        The area under the curve, divided by the largest weight: gAcc.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import generalized_accuracy
    >>> found = generalized_accuracy([[0.8, np.nan], [0.6, 0.2]], ratio=2)
    >>> found.weights, [round(value, 3) for value in found.values]
    ((0.0, 1.0, 2.0), [0.1, 0.6, 0.633])
    """

    weights: tuple[float, ...]
    values: tuple[float, ...]
    area: float


def generalized_accuracy(matrix: ArrayLike, ratio: float) -> GeneralizedAccuracy:
    """Return gAcc, the generalized average accuracy of Tang et al. (ECCV 2024), with its curve.

    After session t, with weight α on the base session, it is (α R[t, 0] + R[t, 1] + ... + R[t, t]) / (α + t):
    every later session has the same weight. This is averaged over all sessions, including session 0 (it is 0 at
    α = 0, as in the authors' code), and integrated over α from 0 to ``ratio`` by the trapezoid rule in steps of 1.

    Parameters
    ----------
    matrix : array-like of shape (n_sessions, n_sessions)
        R, the :func:`~fiveshot.metrics.accuracy_matrix`.
    ratio : float
        Base classes per class of a later session: 10 for 100 and 10.

    Returns
    -------
    GeneralizedAccuracy
        The curve and its area.

    Raises
    ------
    InputError
        If the matrix lacks a value or has only one session, or the ratio is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import generalized_accuracy
    >>> round(generalized_accuracy([[0.8, np.nan], [0.6, 0.2]], ratio=1).area, 3)
    0.35
    """
    table = checked_matrix(matrix)
    if len(table) < 2 or not ratio > 0:
        raise InputError(f"gAcc needs two sessions and a positive ratio, not {len(table)} and {ratio}")
    weights = np.unique(np.append(np.arange(np.floor(ratio) + 1), float(ratio)))  # (n_weights,)
    later = np.array([row[1 : number + 1].sum() for number, row in enumerate(table)])  # (n_sessions,)
    counted = np.arange(len(table)) + weights[:, None]  # (n_weights, n_sessions)
    sums = weights[:, None] * table[:, 0] + later
    values = np.divide(sums, counted, out=np.zeros_like(sums), where=counted > 0).mean(axis=1)
    area = float((np.diff(weights) * (values[1:] + values[:-1]) / 2).sum() / ratio)
    return GeneralizedAccuracy(tuple(weights.tolist()), tuple(values.tolist()), area)


def checked_matrix(matrix: ArrayLike) -> NDArray[np.float64]:
    """Return an accuracy matrix as an array; it must have every value on and below its diagonal."""
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) == 0:
        raise InputError(f"an accuracy matrix is square with at least one session, not of shape {table.shape}")
    if np.isnan(table[np.tril_indices(len(table))]).any():
        raise InputError("the accuracy matrix has no value for a learned session")
    return table


@dataclass(frozen=True)
class TradeOff:
    """Accuracy on base and on new classes as scores of new classes are raised or lowered together.

    Attributes
    ----------
    base, new : tuple of float
        Points of the curve: accuracy on base classes in even steps from 0 to its best, and on new classes there.
    area : float
        The area under the curve, between 0 and 1.

    Examples
    --------
    >>> from fiveshot.metrics import trade_off
    >>> found = trade_off([[2.0, 1.0], [0.0, 1.0]], [0, 1], new=[False, True])
    >>> found.area, found.base[-1], found.new[-1]
    (1.0, 1.0, 1.0)
    """

    base: tuple[float, ...]
    new: tuple[float, ...]
    area: float


def trade_off(scores: ArrayLike, y_true: ArrayLike, new: ArrayLike) -> TradeOff:
    """Return the base/new trade-off curve and its area (AUSUC: Chao et al., ECCV 2016).

    A number is added to the scores of all new classes. From minus to plus infinity, accuracy on base classes falls
    from its best (no new class is a candidate) to 0, and that on new classes rises from 0 to its best. The area
    does not depend on a classifier's preference for one side; A_HM and A_last do.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_classes)
        Higher is more likely.
    y_true : array-like of shape (n_samples,)
        Column indices of the true classes.
    new : array-like of bool, shape (n_classes,)
        Which columns are new classes.

    Returns
    -------
    TradeOff
        The curve and its area.

    Raises
    ------
    InputError
        If the shapes do not fit, or one kind has no class or no sample.

    Examples
    --------
    >>> from fiveshot.metrics import trade_off
    >>> trade_off([[2.0, 1.0], [3.0, 1.0]], [0, 1], new=[False, True]).area
    0.0
    """
    values, y, is_new = np.asarray(scores, dtype=np.float64), np.asarray(y_true), np.asarray(new, dtype=bool)
    if values.ndim != 2 or y.shape != values.shape[:1] or is_new.shape != values.shape[1:]:
        shapes = f"{values.shape}, {y.shape} and {is_new.shape}"
        raise InputError(f"one row of scores per label and one column per class are needed, not shapes {shapes}")
    of_new = is_new[y] if len(y) else np.zeros(0, dtype=bool)
    if not is_new.any() or is_new.all() or not of_new.any() or of_new.all():
        raise InputError("a trade-off needs base and new classes, and test samples of both")
    columns = {kind: np.flatnonzero(is_new == kind) for kind in (False, True)}
    winners = {kind: own[values[:, own].argmax(axis=1)] for kind, own in columns.items()}
    margin = values[:, columns[False]].max(axis=1) - values[:, columns[True]].max(axis=1)  # (n_samples,)
    # At a shift above a sample's margin the answer is its best new class, else its best base class.
    order = np.argsort(margin, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(margin[order])), len(order) - 1)  # equal margins turn together
    base, gained = (_turned(winners[kind] == y, of_new == kind, order, ends) for kind in (False, True))
    base = base[-1] - base  # answers that are still a base class
    area = float((-np.diff(base) * (gained[1:] + gained[:-1]) / 2).sum())
    levels = np.linspace(0, base[0], LEVELS)
    reached, best = np.unique(base[::-1], return_index=True)  # at one accuracy on base classes, the best
    kept = np.interp(levels, reached, gained[::-1][best])
    return TradeOff(tuple(levels.tolist()), tuple(kept.tolist()), area)


def _turned(
    right: NDArray[np.bool_], own: NDArray[np.bool_], order: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return, before the first shift and after each, the share of a kind's samples that turned and were right."""
    shares = np.cumsum((right & own)[order]) / own.sum()
    return np.concatenate([[0.0], shares[ends]])

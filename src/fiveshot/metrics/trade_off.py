"""How a classifier weighs base classes against those that came later: gAcc, and the curve between the two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.errors import InputError

LEVELS = 51  # points of a curve that are kept


@dataclass(frozen=True)
class GeneralizedAccuracy:
    """Accuracy as a function of how much the base session counts.

    Attributes
    ----------
    weights : tuple of float
        Weights of the base session, from 0 to its classes per later session's classes.
    values : tuple of float
        The accuracy at each weight, averaged over all sessions.
    area : float
        The area under them, divided by the largest weight: gAcc.

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
    every later session counts alike. This is averaged over all sessions, session 0 among them (it counts 0 at
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
        If the matrix lacks a value, has one session alone, or the ratio is not positive.

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
        raise InputError("the accuracy matrix has no value for a session that had been learned")
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
    does not depend on how far a classifier leans to either side, which A_HM and A_last do.

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
    base = base[-1] - base  # what has not turned yet
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

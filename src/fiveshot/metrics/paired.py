"""Confidence intervals over draws, and paired tests of two heads on the same draws or the same images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.errors import InputError
from fiveshot.metrics._sessions import Spread, mean_std

CONFIDENCE = 0.95
RESAMPLES = 1000


@dataclass(frozen=True)
class PairedDifference:
    """The difference of two heads in one measure.

    Attributes
    ----------
    mean : float
        The first minus the second.
    low, high : float or None
        Ends of the 95 % interval; None if it cannot be estimated.
    p : float or None
        Probability of a difference at least this large, in either direction, if there is no true difference.
    n : int
        Number of pairs.
    over : {"draws", "images"}
        What varied between the pairs.

    Examples
    --------
    >>> from fiveshot.metrics import paired_difference
    >>> found = paired_difference([0.62, 0.60, 0.61], [0.58, 0.58, 0.58])
    >>> f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}], p = {found.p:.3f}, {found.n} {found.over}"
    '0.030 [0.005, 0.055], p = 0.035, 3 draws'
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int
    over: Literal["draws", "images"] = "draws"


def mean_interval(spread: Spread, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return the interval of a mean over draws, by Student's distribution.

    Parameters
    ----------
    spread : Spread
        Mean, deviation and number of the values.
    confidence : float
        Share of such intervals that contain the true mean.

    Returns
    -------
    tuple of float or None
        Its ends; None for a single value.

    Examples
    --------
    >>> from fiveshot.metrics import mean_interval, mean_std
    >>> low, high = mean_interval(mean_std([0.5, 0.6, 0.7]))
    >>> round(low, 3), round(high, 3)
    (0.352, 0.848)
    """
    from scipy.special import stdtrit  # a slow import that few commands need

    if spread.std is None:
        return None
    half = float(stdtrit(spread.n - 1, (1 + confidence) / 2)) * spread.std / spread.n**0.5
    return spread.mean - half, spread.mean + half


def paired_difference(first: Iterable[float], second: Iterable[float]) -> PairedDifference:
    """Return the mean difference over draws, its 95 % interval and p, by Student's paired t-test.

    Parameters
    ----------
    first, second : iterable of float
        One value per draw, of the same draws in the same order.

    Returns
    -------
    PairedDifference
        With one draw it has no interval and no p.

    Raises
    ------
    InputError
        If the numbers of values differ, or there are none.

    Examples
    --------
    >>> from fiveshot.metrics import paired_difference
    >>> paired_difference([0.5], [0.25])
    PairedDifference(mean=0.25, low=None, high=None, p=None, n=1, over='draws')
    """
    from scipy.special import stdtr

    one, other = np.array(list(first), dtype=np.float64), np.array(list(second), dtype=np.float64)
    if one.shape != other.shape:
        raise InputError(
            f"{len(one)} values cannot be paired with {len(other)}", hint="give the same draws of both"
        )
    spread = mean_std(one - other)
    interval = mean_interval(spread)
    if spread.std is None or interval is None:
        return PairedDifference(spread.mean, None, None, None, 1)
    if spread.std == 0:  # the same difference in every draw
        return PairedDifference(spread.mean, *interval, float(spread.mean == 0), spread.n)
    t = spread.mean / (spread.std / spread.n**0.5)
    return PairedDifference(spread.mean, *interval, float(2 * stdtr(spread.n - 1, -abs(t))), spread.n)


def resampled_measures(
    y_true: ArrayLike,
    predictions: ArrayLike,
    session_classes: Sequence[Sequence[Any]],
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> dict[str, NDArray[np.float64]]:
    """Return measures of one run on resampled test images, drawn with replacement within the classes of a session.

    With generators of the same seed, two heads are measured on the same resamples.

    Parameters
    ----------
    y_true : array-like of shape (n_test,)
        True labels.
    predictions : array-like of shape (n_sessions, n_test)
        Predicted labels after each session; samples of later classes are ignored.
    session_classes : sequence of sequence of labels
        The new classes of each session.
    rng : numpy.random.Generator
        Draws the resamples.
    resamples : int
        How many.

    Returns
    -------
    dict of str to ndarray of shape (resamples,)
        ``a_last``, ``a_inc`` and, if there are later sessions, ``a_hm_mean``.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import resampled_measures
    >>> y, predicted = [0, 0, 1, 1], [[0, 0, -1, -1], [0, 0, 1, 0]]
    >>> found = resampled_measures(y, predicted, [[0], [1]], rng=np.random.default_rng(0), resamples=50)
    >>> sorted(found), found["a_last"].shape, bool(found["a_last"].min() >= 0.5)
    (['a_hm_mean', 'a_inc', 'a_last'], (50,), True)
    """
    labels, predicted = np.asarray(y_true), np.asarray(predictions)  # (n,), (sessions, n)
    new = np.stack([np.isin(labels, list(classes)) for classes in session_classes])  # (sessions, n)
    seen = np.logical_or.accumulate(new)
    right, old, weights = predicted == labels, seen & ~new, _resampled(new.argmax(axis=0), rng, resamples)
    accuracies = _shares(weights, right, seen)  # (resamples, sessions)
    found = {"a_last": accuracies[:, -1], "a_inc": accuracies.mean(axis=1)}
    if len(predicted) == 1:
        return found
    a_old, a_new = (_shares(weights, right[1:], part[1:]) for part in (old, new))
    total = a_old + a_new
    harmonic = np.divide(2 * a_old * a_new, total, out=np.zeros_like(total), where=total > 0)
    return found | {"a_hm_mean": harmonic.mean(axis=1)}


def resampled_difference(difference: float, resampled: NDArray[np.float64], n: int) -> PairedDifference:
    """Return a difference with the interval between the outer quantiles of its resamples, and p from their signs.

    Parameters
    ----------
    difference : float
        What was measured.
    resampled : ndarray of shape (resamples,)
        The same on resampled test images.
    n : int
        Number of test images.

    Returns
    -------
    PairedDifference
        Over images.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import resampled_difference
    >>> found = resampled_difference(0.1, np.linspace(-0.02, 0.22, 999), n=400)
    >>> round(found.low, 3), round(found.high, 3), round(found.p, 2)
    (-0.014, 0.214, 0.17)
    """
    low, high = resampled_interval(resampled)
    beyond = min((resampled <= 0).sum(), (resampled >= 0).sum())
    p = min(1.0, 2 * (1 + int(beyond)) / (1 + len(resampled)))
    return PairedDifference(difference, low, high, p, n, "images")


def resampled_interval(resampled: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Return the outer quantiles of measures on resamples; NaN values are ignored.

    >>> [round(end, 3) for end in resampled_interval(np.linspace(0, 1, 1001))]
    [0.025, 0.975]
    """
    low, high = np.nanquantile(np.asarray(resampled), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _resampled(groups: NDArray[Any], rng: np.random.Generator, resamples: int) -> NDArray[np.float32]:
    """Return how often each sample is in each resample; the size of every group stays the same."""
    weights = np.zeros((resamples, len(groups)), dtype=np.float32)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        drawn = rng.integers(len(rows), size=(resamples, len(rows))) + len(rows) * np.arange(resamples)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=resamples * len(rows))
        weights[:, rows] = counts.reshape(resamples, len(rows))
    return weights


def _shares(
    weights: NDArray[np.float32], right: NDArray[np.bool_], part: NDArray[np.bool_]
) -> NDArray[np.float64]:  # (resamples, sessions)
    """Return the accuracy of each resample after each session, on the samples of a part."""
    # Resampling within sessions does not change the number of samples of a session.
    counts: NDArray[np.float32] = weights @ (right & part).T.astype(np.float32)
    shares: NDArray[np.float64] = counts / part.sum(axis=1, dtype=np.float64)
    return shares

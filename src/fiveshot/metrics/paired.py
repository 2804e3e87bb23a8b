"""Confidence intervals over draws and test images, and paired tests of two heads on the same of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.errors import InputError
from fiveshot.metrics._sessions import Spread, mean_std

CONFIDENCE = 0.95
POWER = 0.8  # the probability with which a "detectable" difference is found
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
    over : {"draws", "images", "draws and images"}
        What varied between the pairs.
    detectable : float or None
        The true difference that as many pairs find (p < 0.05) with a probability of 80 %.
    corrected : float or None
        p after Holm's correction, if this is one of several comparisons.

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
    over: Literal["draws", "images", "draws and images"] = "draws"
    detectable: float | None = None
    corrected: float | None = None


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
        If the numbers of values differ or are zero.

    Examples
    --------
    >>> from fiveshot.metrics import paired_difference
    >>> paired_difference([0.5], [0.25])
    PairedDifference(mean=0.25, low=None, high=None, p=None, n=1, over='draws', detectable=None, corrected=None)
    """
    one, other = np.array(list(first), dtype=np.float64), np.array(list(second), dtype=np.float64)
    if one.shape != other.shape:
        raise InputError(
            f"{len(one)} values cannot be paired with {len(other)}", hint="give the same draws of both"
        )
    spread = mean_std(one - other)
    if spread.std is None:
        return PairedDifference(spread.mean, None, None, None, 1)
    return _students(spread.mean, StandardError(spread.std / spread.n**0.5, spread.n - 1), spread.n, "draws")


@dataclass(frozen=True)
class StandardError:
    """The standard error of a mean, and the degrees of freedom of Student's distribution that go with it.

    Attributes
    ----------
    value : float
        The error.
    freedom : float
        Degrees of freedom; infinite if the error is known exactly.

    Examples
    --------
    >>> from fiveshot.metrics import StandardError
    >>> round(StandardError(0.01, freedom=4).width(0.975), 4)
    0.0278
    """

    value: float
    freedom: float

    def width(self, probability: float) -> float:
        """Return how far from the mean Student's distribution reaches this probability."""
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, probability)) * self.value


def hierarchical_error(values: ArrayLike, resampled: ArrayLike) -> StandardError:
    """Return the standard error of a mean over draws, if both other shots and other test images could have come.

    The deviation between draws comes from the shots, and from images that are right in one draw and wrong in
    another. The resampled test images add what all draws share: images that are hard in each of them. A plain
    bootstrap of draws and images counts chance within single draws twice. The degrees of freedom are
    Satterthwaite's: n − 1 if all variation is between draws, more if the test images matter.

    Parameters
    ----------
    values : array-like of shape (n_draws,)
        What was measured in each draw; two or more.
    resampled : array-like of shape (n_draws, resamples)
        The same on resampled test images, from :func:`resampled_measures`; the same resamples for all draws.

    Returns
    -------
    StandardError
        Of the mean of the values.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import hierarchical_error
    >>> values = np.array([0.62, 0.60, 0.61])
    >>> images = np.random.default_rng(0).normal(0, 0.01, 1000)
    >>> error = hierarchical_error(values, values[:, None] + images)
    >>> round(error.value, 3), round(error.freedom)
    (0.011, 30)
    """
    one, measured = np.asarray(values, dtype=np.float64), np.asarray(resampled, dtype=np.float64)
    n = len(measured)
    if n < 2:
        raise InputError("one draw does not show how draws vary", hint="give the values of two or more draws")
    draws = float(one.var(ddof=1)) / n
    # Variance over images: of one draw it is shared + own, of the mean of all draws shared + own / n.
    single, mean = float(measured.var(axis=1, ddof=1).mean()), float(measured.mean(axis=0).var(ddof=1))
    shared = max(mean - (single - mean) / (n - 1), 0.0)
    variance = draws + shared
    return StandardError(variance**0.5, (n - 1) * (variance / draws) ** 2 if draws > 0 else np.inf)


def hierarchical_interval(values: ArrayLike, resampled: ArrayLike) -> tuple[float, float]:
    """Return the 95 % interval of a mean over draws and test images; see :func:`hierarchical_error`.

    >>> images = np.random.default_rng(0).normal(0, 0.01, 1000)
    >>> low, high = hierarchical_interval([0.6, 0.62], [0.6 + images, 0.62 + images])
    >>> 0.5 < low < 0.6 and 0.62 < high < 0.7
    True
    """
    mean, error = mean_std(np.asarray(values)).mean, hierarchical_error(values, resampled)
    half = error.width((1 + CONFIDENCE) / 2)
    return mean - half, mean + half


def hierarchical_difference(values: ArrayLike, resampled: ArrayLike) -> PairedDifference:
    """Return the mean of paired differences with an interval and p over draws and test images together.

    Parameters
    ----------
    values : array-like of shape (n_draws,)
        The first less the second in each draw; two draws or more.
    resampled : array-like of shape (n_draws, resamples)
        The same on resampled test images.

    Returns
    -------
    PairedDifference
        By Student's distribution with the error of :func:`hierarchical_error`.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.metrics import hierarchical_difference
    >>> values = np.array([0.04, 0.02, 0.03])
    >>> images = np.random.default_rng(0).normal(0, 0.01, 1000)
    >>> found = hierarchical_difference(values, values[:, None] + images)
    >>> f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}], p = {found.p:.3f} over {found.over}"
    '0.030 [0.007, 0.053], p = 0.013 over draws and images'
    """
    error = hierarchical_error(values, resampled)
    spread = mean_std(np.asarray(values))
    return _students(spread.mean, error, spread.n, "draws and images")


def _students(
    mean: float, error: StandardError, n: int, over: Literal["draws", "draws and images"]
) -> PairedDifference:
    """Return a difference with interval, p and what could be detected, by Student's distribution."""
    from scipy.special import stdtr

    if error.value == 0:  # the same difference wherever one looks
        return PairedDifference(mean, mean, mean, float(mean == 0), n, over, 0.0)
    half = error.width((1 + CONFIDENCE) / 2)
    p = float(2 * stdtr(error.freedom, -abs(mean) / error.value))
    return PairedDifference(mean, mean - half, mean + half, p, n, over, half + error.width(POWER))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number by Holm's method.

    If all are compared with 0.05 after the correction, the probability of one or more false findings is at most
    0.05, however the tests depend on each other.

    Parameters
    ----------
    p_values : sequence of float
        One for each comparison.

    Returns
    -------
    list of float
        In the same order.

    Examples
    --------
    >>> from fiveshot.metrics import holm
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values)
    # The smallest is multiplied by the number of tests, the next by one less, and none falls below an earlier one.
    scaled = values[order] * np.arange(len(values), 0, -1)
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return [float(value) for value in corrected]


def holm_corrected(differences: Sequence[PairedDifference]) -> list[PairedDifference]:
    """Return differences with ``corrected`` p values, if two or more have one.

    >>> found = holm_corrected([PairedDifference(0.1, 0.0, 0.2, p, 5) for p in (0.01, 0.04)])
    >>> [difference.corrected for difference in found]
    [0.02, 0.04]
    """
    known = [difference.p for difference in differences if difference.p is not None]
    if len(known) < 2:
        return list(differences)
    corrected = iter(holm(known))
    return [each if each.p is None else replace(each, corrected=next(corrected)) for each in differences]


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

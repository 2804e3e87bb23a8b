"""Calibration of a new class by similar base classes: equations (1) to (4) of the paper.

A class with five samples has a noisy mean and a covariance of rank four. The base classes near it have many
samples and good estimates. Each function takes the raw statistics of *one* new class and those of the base
classes. So the result does not depend on other new classes or on the order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from fiveshot.core.arrays import (
    Array,
    add_gram_,
    as_numpy,
    at_least,
    cholesky_,
    eigh,
    epsilon,
    namespace,
    softmax,
    unit_rows,
    values_like,
    zeros,
)
from fiveshot.core.ranges import Allowed, OneOf, Range, check_values
from fiveshot.core.statistics import ClassStatistics, ClassSummary, canonical

Similarity = Literal["cosine", "dot"]
Prototypes = Literal["raw", "unit"]
CLASSES_AT_ONCE = (
    16  # classes in one matrix product; always this many, so that a class's result is exactly reproducible
)


@dataclass(frozen=True)
class Calibration:
    """How strongly, and by which base classes, a new class is calibrated.

    Parameters
    ----------
    alpha : float
        Share of the class's own mean; with 1 the mean is not calibrated.
    beta : float or None
        Scales the sum of its own and the borrowed covariance; None leaves the covariance unchanged.
    tau : float
        A larger value gives more weight to the most similar base classes.
    similarity : {"cosine", "dot"}
        ``"cosine"`` as in the paper's text, ``"dot"`` as in the published C-RanPAC.
    prototypes : {"raw", "unit"}
        ``"unit"`` mixes unit vectors and normalizes the borrowed mean again, as in the published TEEN and C-FeCAM.

    Examples
    --------
    >>> from fiveshot.core import Calibration
    >>> Calibration(alpha=0.8, beta=None)
    Calibration(alpha=0.8, beta=None, tau=16.0, similarity='cosine', prototypes='raw')
    >>> Calibration(alpha=1.5)
    Traceback (most recent call last):
    fiveshot.errors.InputError: alpha must lie in [0, 1], got 1.5; the paper uses 0.9
    """

    alpha: float = 0.9
    beta: float | None = 1.0
    tau: float = 16.0
    similarity: Similarity = "cosine"
    prototypes: Prototypes = "raw"

    def __post_init__(self) -> None:
        check_values(self, CALIBRATION_RANGES)


CALIBRATION_RANGES: dict[str, Allowed] = {
    "alpha": Range(0, 1, hint="the paper uses 0.9"),
    "beta": Range(0, none=True, hint="None leaves covariances unchanged"),
    "tau": Range(hint="the paper uses 16"),
    "similarity": OneOf(get_args(Similarity)),
    "prototypes": OneOf(get_args(Prototypes), kind="kind of prototypes"),
}


@dataclass(frozen=True, eq=False)
class ClassGaussian:
    """A mean and a factored covariance of a class.

    Attributes
    ----------
    mean : array of shape (d,)
        The mean.
    factor : array of shape (r, d)
        A, with AᵀA the covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import ClassGaussian
    >>> gaussian = ClassGaussian(mean=np.zeros(2), factor=np.array([[3.0, 4.0]]))
    >>> (gaussian.factor.T @ gaussian.factor).tolist()  # the covariance
    [[9.0, 12.0], [12.0, 16.0]]
    """

    mean: Array  # (d,)
    factor: Array  # (r, d) with factorᵀ · factor = covariance


@dataclass(frozen=True, eq=False)
class SummedGaussian:
    """A mean and a dense covariance, for a class whose factor would have more rows than columns.

    Attributes
    ----------
    mean : array of shape (d,)
        The mean.
    covariance : array of shape (d, d)
        In its lower triangle; the upper triangle is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import SummedGaussian
    >>> gaussian = SummedGaussian(mean=np.zeros(2), covariance=np.array([[9.0, 0.0], [12.0, 20.0]]))
    >>> gaussian.factor.tolist()
    [[3.0, 4.0], [0.0, 2.0]]
    """

    mean: Array  # (d,)
    covariance: Array  # (d, d), lower triangle

    @cached_property
    def factor(self) -> Array:
        """The factor that is triangular with a positive diagonal, (d, d)."""
        xp = namespace(self.covariance)
        lower = cholesky_(xp.asarray(self.covariance, copy=True))
        if lower is not None:
            return lower.T
        values, vectors = eigh(self.covariance)  # singular: some directions have no variance
        return canonical(xp.sqrt(at_least(values, 0.0))[:, None] * vectors.T)


Gaussian = ClassGaussian | SummedGaussian


def similarity_weights(
    mean: Array, base_means: Array, *, tau: float = 16.0, similarity: Similarity = "cosine"
) -> Array:
    """Equations (1) and (2): softmax over the base classes of τ · similarity.

    Parameters
    ----------
    mean : array of shape (d,)
        That of the new class.
    base_means : array of shape (B, d)
        Those of the base classes.
    tau : float
        A larger value gives more weight to the most similar base classes.
    similarity : {"cosine", "dot"}
        What is multiplied.

    Returns
    -------
    array of shape (B,)
        Weights, which sum to one.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import similarity_weights
    >>> similarity_weights(np.array([1.0, 0.0]), np.eye(2), tau=1.0).round(4).tolist()
    [0.7311, 0.2689]
    """
    if similarity == "cosine":
        mean, base_means = unit_rows(mean), unit_rows(base_means)
    return softmax(tau * (base_means @ mean))


def calibrated_mean(mean: Array, base_means: Array, weights: Array, *, alpha: float) -> Array:
    """Equation (3): α μₙ + (1 − α) Σ_b w_b μ_b.

    Parameters
    ----------
    mean : array of shape (d,)
        That of the new class.
    base_means : array of shape (B, d)
        Those of the base classes.
    weights : array of shape (B,)
        Of the base classes.
    alpha : float
        The share of the class's own mean.

    Returns
    -------
    array of shape (d,)

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import calibrated_mean
    >>> calibrated_mean(np.array([4.0, 0.0]), np.eye(2), np.array([0.5, 0.5]), alpha=0.5).tolist()
    [2.25, 0.25]
    """
    return alpha * mean + (1 - alpha) * (weights @ base_means)


def calibrated_factor(factor: Array, base_factors: Array, owners: Array, weights: Array, *, beta: float) -> Array:
    """Equation (4), β (Σₙ + Σ_b w_b Σ_b), in factored form: the factors stacked, each scaled by √w.

    Rows with weight zero (a softmax can underflow) are left out.

    Parameters
    ----------
    factor : array of shape (r, d)
        That of the new class.
    base_factors : array of shape (R, d)
        Those of all base classes, one below the other.
    owners : array of shape (R,)
        The base class of each row.
    weights : array of shape (B,)
        Of the base classes.
    beta : float
        The factor of the sum.

    Returns
    -------
    array of shape (r + R, d)

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import calibrated_factor
    >>> own, base = np.array([[2.0, 0.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])  # two base classes
    >>> A = calibrated_factor(own, base, np.array([0, 1]), np.array([0.25, 0.75]), beta=1.0)
    >>> (A.T @ A).round(3).tolist()
    [[7.0, 0.0], [0.0, 1.0]]
    """
    xp = namespace(factor)
    row_weights = weights[owners]
    if not xp.all(row_weights > 0):
        base_factors, row_weights = base_factors[row_weights > 0], row_weights[row_weights > 0]
    borrowed = base_factors * xp.sqrt(beta * row_weights)[:, None]
    return xp.concat([math.sqrt(beta) * factor, borrowed])  # (r + R, d)


def calibrate(summary: ClassSummary, base: ClassStatistics, calibration: Calibration | None) -> Gaussian:
    """Return the mean and covariance that a head uses for a new class, from its raw statistics.

    Without a calibration or without base classes, both are the class's own.

    Parameters
    ----------
    summary : ClassSummary
        Raw statistics of the new class.
    base : ClassStatistics
        Those of the base classes.
    calibration : Calibration or None
        How.

    Returns
    -------
    ClassGaussian or SummedGaussian

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import Calibration, calibrate, class_statistics, summarize
    >>> features = np.array([[0.0, 1.0], [0.0, 3.0], [1.0, 0.0], [3.0, 0.0]])
    >>> base = class_statistics(features, ["owl", "owl", "wren", "wren"])
    >>> kite = calibrate(summarize(np.array([[0.0, 4.0]])), base, Calibration(alpha=0.5))
    >>> kite.mean.round(3).tolist(), (kite.factor.T @ kite.factor).diagonal().round(3).tolist()  # much like an owl
    ([0.0, 3.0], [0.0, 2.0])
    """
    return next(calibrate_all([summary], base, calibration))


def calibrate_all(
    summaries: Sequence[ClassSummary], base: ClassStatistics, calibration: Calibration | None
) -> Iterator[Gaussian]:
    """Yield the result of :func:`calibrate` for several new classes, faster than one by one.

    Parameters
    ----------
    summaries : sequence of ClassSummary
        Raw statistics of the new classes.
    base : ClassStatistics
        Those of the base classes.
    calibration : Calibration or None
        How.

    Yields
    ------
    ClassGaussian or SummedGaussian

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import Calibration, calibrate_all, class_statistics, summarize
    >>> base = class_statistics(np.array([[0.0, 1.0], [0.0, 3.0]]), ["owl", "owl"])
    >>> shots = [summarize(np.array([[0.0, 4.0]])), summarize(np.array([[2.0, 2.0]]))]
    >>> [gaussian.mean.tolist() for gaussian in calibrate_all(shots, base, Calibration(alpha=0.5))]
    [[0.0, 3.0], [1.0, 2.0]]
    """
    beta = calibration.beta if calibration is not None and len(base) else None
    ranks = [len(summary.factor) for summary in base.summaries]
    for start in range(0, len(summaries), CLASSES_AT_ONCE):
        group = summaries[start : start + CLASSES_AT_ONCE]
        means, weights = zip(*(calibrate_mean(summary, base, calibration) for summary in group), strict=True)
        if beta is None:
            yield from map(ClassGaussian, means, (summary.covariance_factor for summary in group))
            continue
        weights = tuple(map(_that_count, weights))
        summed = [
            len(summary.factor) + int(np.dot(as_numpy(own) > 0, ranks)) > len(summary.mean)
            for summary, own in zip(group, weights, strict=True)
        ]
        borrowed = _weighted_covariances(weights, base) if any(summed) else []
        for i, summary in enumerate(group):
            if not summed[i]:
                factor = calibrated_factor(summary.covariance_factor, *base.stacked_factors, weights[i], beta=beta)
                yield ClassGaussian(means[i], factor)
                continue
            covariance = borrowed[i]
            add_gram_(covariance, summary.factor / math.sqrt(max(summary.count - 1, 1)))
            covariance *= beta
            yield SummedGaussian(means[i], covariance)


def _that_count(weights: Array) -> Array:
    """Return weights, with those below the rounding error of the others set to zero."""
    xp = namespace(weights)
    return xp.where(weights > epsilon(weights), weights, xp.zeros_like(weights))


def _weighted_covariances(weights: Sequence[Array], base: ClassStatistics) -> list[Array]:
    """Return Σ_b w_b Σ_b for up to ``CLASSES_AT_ONCE`` sets of weights, (d, d) each, in the lower triangle.

    One matrix product sums the base covariances for all of them. It always has the same shape, with zero rows for
    missing classes. So the sum of a class does not depend on the other classes.
    """
    width, d = len(base), base.n_features
    dof = values_like([max(summary.count - 1, 1) for summary in base.summaries], base.means)
    shares = zeros((CLASSES_AT_ONCE, width), base.means)
    for share, own in zip(shares, weights, strict=False):
        share[...] = own / dof
    sums = [zeros((d, d), base.means) for _ in weights]
    for rows in base.scatters():  # (B, size, stop)
        size, stop = rows.shape[1:]
        summed = shares @ rows.reshape(width, -1)  # (CLASSES_AT_ONCE, size · stop)
        for total, part in zip(sums, summed, strict=False):
            total[stop - size : stop, :stop] = part.reshape(size, stop)
    return sums


def calibrate_mean(
    summary: ClassSummary, base: ClassStatistics, calibration: Calibration | None
) -> tuple[Array, Array]:
    """Return the mean that a head uses for a new class, and the weights of the base classes.

    Parameters
    ----------
    summary : ClassSummary
        Raw statistics of the new class.
    base : ClassStatistics
        Those of the base classes.
    calibration : Calibration or None
        How.

    Returns
    -------
    tuple of arrays
        Of shapes (d,) and (B,).

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.core import Calibration, calibrate_mean, class_statistics, summarize
    >>> base = class_statistics(np.array([[0.0, 2.0], [2.0, 0.0]]), ["owl", "wren"])
    >>> mean, weights = calibrate_mean(summarize(np.array([[4.0, 4.0]])), base, Calibration(alpha=0.5))
    >>> mean.round(3).tolist(), weights.round(3).tolist()
    ([2.5, 2.5], [0.5, 0.5])
    """
    if calibration is None or not len(base):
        return summary.mean, zeros((len(base),), summary.mean)
    unit_mean = unit_rows(summary.mean)
    if calibration.similarity == "cosine" or calibration.prototypes == "unit":
        # The dot product of unit vectors is the cosine; those of the base are computed once.
        weights = similarity_weights(unit_mean, base.unit_means, tau=calibration.tau, similarity="dot")
    else:
        weights = similarity_weights(summary.mean, base.means, tau=calibration.tau, similarity="dot")
    if calibration.prototypes == "unit":
        borrowed = unit_rows(weights @ base.unit_means)
        return calibration.alpha * unit_mean + (1 - calibration.alpha) * borrowed, weights
    return calibrated_mean(summary.mean, base.means, weights, alpha=calibration.alpha), weights

"""Distances from samples to classes, and what the noise of an estimated mean adds to them.

Mahalanobis distances come from factored covariances: factored once per class, never inverted. With S = Σ + γI and
s = √diag S, the correlation-normalized distance of the paper's equation (5) is

    (x − μ)ᵀ [S / (s sᵀ)]⁻¹ (x − μ) = uᵀ S⁻¹ u,   u = s ∘ (x − μ),

so the normalization is a scaling of the axes, and S keeps the factored form of Σ = BᵀB.

The mean of n samples is off by noise of covariance Σ/n, and E‖x − x̄‖² = E‖x − μ‖² + tr(Σ)/n: a class of five
samples looks farther away than one of thirty. The same holds in any fixed metric M, with tr(MΣ)/n. After mean
calibration, x̄ ↦ α x̄ + ..., the noise is α² as large; that the weights of the base classes depend on x̄ is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fiveshot.core.arrays import (
    TINY,
    Array,
    add_to_diagonal,
    empty,
    epsilon,
    grouped,
    namespace,
    one_hot,
    positions,
    squared_lengths,
    values_like,
    zeros,
)
from fiveshot.core.calibration import Calibration
from fiveshot.core.linalg import cholesky_, clip_negative_, column_gram, eigh, solve_lower_
from fiveshot.core.statistics import ClassStatistics, ClassSummary, compress
from fiveshot.errors import InputError, unknown_name

Normalization = Literal["correlation", "rows", "none"]

# Subtracting in low rank loses as many digits as trace(Σ) / γ has; three are left to spare in float32.
WELL_CONDITIONED = 1e3
COLUMNS_AT_ONCE = 2048  # projected columns per matrix product, which bounds the memory


@dataclass(frozen=True, eq=False)
class LowRankMetric:
    """uᵀ S⁻¹ u = (‖u‖² − ‖P u‖²) / γ with P = L⁻¹ B and L Lᵀ = γI + B Bᵀ, a matrix of rank(Σ) rows."""

    mean: Array  # (d,)
    scale: Array  # (d,)
    projection: Array  # (r, d): P with the scale folded in
    gamma: float
    inflation: float = 0.0  # what the noise of the mean adds in expectation, to be subtracted


@dataclass(frozen=True, eq=False)
class CholeskyMetric:
    """uᵀ S⁻¹ u = ‖L⁻¹ u‖² with S = L Lᵀ."""

    mean: Array  # (d,)
    scale: Array  # (d,)
    cholesky: Array  # (d, d), lower
    inflation: float = 0.0

    def squared_distances(self, X: Array) -> Array:
        """Return one squared distance per row of X."""
        u = X - self.mean  # (n, d)
        u *= self.scale
        return squared_lengths(solve_lower_(self.cholesky, u))


@dataclass(frozen=True, eq=False)
class SpectralMetric:
    """‖E (x − μ)‖² where EᵀE is the pseudo-inverse of a singular metric."""

    mean: Array  # (d,)
    whitener: Array  # (k, d): E
    inflation: float = 0.0

    def squared_distances(self, X: Array) -> Array:
        """Return one squared distance per row of X."""
        return squared_lengths((X - self.mean) @ self.whitener.T)


Metric = LowRankMetric | CholeskyMetric | SpectralMetric


def make_metric(mean: Array, factor: Array, *, gamma: float, normalization: Normalization) -> Metric:
    """Return the metric of a class with covariance factorᵀ · factor, shrunk by γI and normalized.

    ``"correlation"`` is Σ_ij / (s_i s_j); ``"rows"`` is what the published code computes, the correlations
    between the rows of the shrunk covariance, which is singular; ``"none"`` leaves the covariance as it is.
    """
    if normalization not in get_args(Normalization):
        raise unknown_name("normalization", normalization, get_args(Normalization))
    if normalization == "rows":
        covariance = factor.T @ factor
        add_to_diagonal(covariance, gamma)
        return SpectralMetric(mean, _row_correlation_whitener(covariance))
    xp = namespace(factor)
    squares = xp.sum(factor * factor, axis=0)
    variances = squares + gamma  # diagonal of S
    scale = xp.sqrt(variances) if normalization == "correlation" else xp.ones_like(variances)
    rows, d = factor.shape
    if gamma > 0 and 2 * rows < d and float(xp.sum(squares)) <= WELL_CONDITIONED * gamma:
        small = factor @ factor.T  # (r, r)
        add_to_diagonal(small, gamma)
        lower = _required(cholesky_(small), gamma) if rows else small
        projection = solve_lower_(lower, xp.asarray(factor.T, copy=True)).T if rows else factor
        return LowRankMetric(mean, scale, projection * scale, gamma)
    shrunk = column_gram(factor)
    add_to_diagonal(shrunk, gamma)
    return CholeskyMetric(mean, scale, _required(cholesky_(shrunk), gamma))


def squared_distances(X: Array, metrics: Sequence[Metric], *, origin: Array) -> Array:
    """Return squared distances, (n, n_metrics); ``origin`` is a point among the means, for precision."""
    distances = empty((len(X), len(metrics)), X)
    low_rank = [(i, m) for i, m in enumerate(metrics) if isinstance(m, LowRankMetric)]
    for group in grouped(low_rank, lambda pair: len(pair[1].projection), COLUMNS_AT_ONCE):
        columns, members = zip(*group, strict=True)
        distances[:, positions(columns, X)] = _low_rank_distances(X - origin, members, origin)
    for i, metric in enumerate(metrics):
        if not isinstance(metric, LowRankMetric):
            distances[:, i] = metric.squared_distances(X)
    return clip_negative_(distances)


def squared_euclidean(X: Array, points: Array, *, origin: Array) -> Array:
    """Return ‖x − p‖² for all pairs, (n, k), as one matrix product.

    ‖x‖² − 2 x·p + ‖p‖² cancels badly far from zero, so both are moved by ``origin``, a point among them.
    """
    X, points = X - origin, points - origin
    distances = X @ (-2 * points).T
    distances += squared_lengths(X)[:, None]
    distances += squared_lengths(points)
    return clip_negative_(distances)


def _low_rank_distances(X: Array, metrics: Sequence[LowRankMetric], origin: Array) -> Array:
    xp = namespace(X)
    means = xp.stack([m.mean - origin for m in metrics])  # (k, d)
    squares = xp.stack([m.scale for m in metrics]) ** 2  # (k, d)
    linear = squares * means
    distances = (X * X) @ squares.T
    distances += X @ (-2 * linear).T
    distances += xp.sum(linear * means, axis=1)
    projections = xp.concat([m.projection for m in metrics])  # (Σ r, d)
    offsets = xp.concat([m.projection @ mean for m, mean in zip(metrics, means, strict=True)])
    owners = np.repeat(np.arange(len(metrics)), [len(m.projection) for m in metrics])
    projected = X @ projections.T  # (n, Σ r)
    projected -= offsets
    projected *= projected
    distances -= projected @ one_hot(owners, len(metrics), X)
    distances /= values_like([m.gamma for m in metrics], X)
    return distances


def _required(cholesky: Array | None, gamma: float) -> Array:
    if cholesky is None:
        raise InputError(
            f"a class covariance is singular with gamma = {gamma}",
            hint="choose a larger gamma (the paper's is 100)",
        )
    return cholesky


def _row_correlation_whitener(covariance: Array) -> Array:
    if len(covariance) < 2:
        raise InputError('normalization="rows" needs two features at least, got n_features=1; use "correlation"')
    xp = namespace(covariance)
    values, vectors = eigh(_row_correlations(covariance))
    kept = values > len(values) * epsilon(values) * values[-1]  # as pinv cuts them
    return (vectors[:, kept] / xp.sqrt(values[kept])).T


def _row_correlations(matrix: Array) -> Array:
    """Return the correlations between the rows of a matrix, in the lower triangle."""
    xp = namespace(matrix)
    centered = matrix - xp.mean(matrix, axis=1)[:, None]
    covariance = centered @ centered.T
    deviations = xp.sqrt(xp.linalg.diagonal(covariance))
    covariance /= deviations[:, None]
    covariance /= deviations
    return xp.clip(covariance, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class WithinSpread:
    """Covariance within base classes as a factor, (r, d): what is expected of a class before it is seen."""

    factor: Array

    @property
    def trace(self) -> float:
        """Mean squared distance of a sample from its class mean."""
        return _sum_of_squares(self.factor)

    def of_class(self, summary: ClassSummary) -> float:
        """Return the trace of one class: its own, with the base classes' counting as one sample more.

        A trace is linear in the scatter, so the class's own is unbiased however few samples there are.
        """
        return (_sum_of_squares(summary.factor) + self.trace) / summary.count


def within_spread(base: ClassStatistics, like: Array) -> WithinSpread:
    """Pool the scatter within base classes; without any the spread is zero.

    >>> from fiveshot.core import class_statistics
    >>> X = np.array([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0], [5.0, 9.0]])
    >>> within_spread(class_statistics(X, [0, 0, 1, 1]), X).trace
    5.0
    """
    dof = sum(summary.count - 1 for summary in base.summaries)
    if not dof:
        return WithinSpread(zeros((0, like.shape[-1]), like))
    stacked = namespace(like).concat([summary.factor for summary in base.summaries])
    return WithinSpread(compress(stacked) / math.sqrt(dof))


def kept_share(calibration: Calibration | None, base: ClassStatistics) -> float:
    """Return α, the share of the class's own mean in the calibrated one."""
    return calibration.alpha if calibration is not None and len(base) else 1.0


def unit_noise(rows: Array, mean: Array) -> Array:
    """Return what noise vectors of a mean become when it is scaled to length one, to first order."""
    length = max(math.sqrt(_sum_of_squares(mean)), TINY)
    direction = mean / length
    return (rows - (rows @ direction)[:, None] * direction) / length


def _sum_of_squares(values: Array) -> float:
    return float(namespace(values).sum(values * values))

"""Distances from samples to classes, and what the noise of an estimated mean adds to them.

Mahalanobis distances come from factored covariances: factored once per class, never inverted. With S = Σ + γI and
s = √diag S, the correlation-normalized distance of the paper's equation (5) is

    (x − μ)ᵀ [S / (s sᵀ)]⁻¹ (x − μ) = uᵀ S⁻¹ u,   u = s ∘ (x − μ),

so the normalization is a scaling of the axes, and S keeps the factored form of Σ = BᵀB.

The mean of n samples is off by noise of covariance Σ/n, and E‖x − x̄‖² = E‖x − μ‖² + tr(Σ)/n: a class of five
samples looks farther away than one of thirty. The same holds in any fixed metric M, with tr(MΣ)/n. After mean
calibration, x̄ ↦ α x̄ + ..., the noise is α² as large; the dependence of the weights on x̄ is ignored.
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
    cholesky_,
    clip_negative_,
    column_gram,
    eigh,
    empty,
    epsilon,
    grouped,
    namespace,
    one_hot,
    positions,
    solve_lower_,
    solve_upper_,
    squared_lengths,
    unit_rows,
    values_like,
    zeros,
)
from fiveshot.core.calibration import Calibration, Gaussian, SummedGaussian
from fiveshot.core.statistics import ClassStatistics, ClassSummary, compress
from fiveshot.errors import InputError, unknown_name

Normalization = Literal["correlation", "rows", "none"]

# The low-rank form loses as many digits as trace(Σ) / γ has; with this limit float32 keeps three to spare.
WELL_CONDITIONED = 1e3
CANCELED = 1e-3  # a difference that is a smaller share of its terms has too few correct digits
COLUMNS_AT_ONCE = 2048  # projected columns per matrix product; limits the memory


@dataclass(frozen=True, eq=False)
class LowRankMetric:
    """(‖s ∘ u‖² − ‖P u‖² + (p·u)²) / γ with u = x − μ. P has as many rows as the rank of the covariance."""

    mean: Array  # (d,)
    scale: Array  # (d,)
    projection: Array  # (r, d): P
    gamma: float
    added: Array | None = None  # (d,): p, if any
    inflation: float = 0.0  # the expected addition of the noise of the mean, to subtract


@dataclass(frozen=True, eq=False)
class CholeskyMetric:
    """‖L⁻¹ u‖² for the metric (L Lᵀ)⁻¹, without the part of u along ``null`` if that is given."""

    mean: Array  # (d,)
    cholesky: Array  # (d, d), lower
    null: Array | None = None  # (d,), of length one
    inflation: float = 0.0

    def squared_distances(self, X: Array) -> Array:
        """Return one squared distance per row of X."""
        u = X - self.mean  # (n, d)
        if self.null is not None:
            u -= (u @ self.null)[:, None] * self.null
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


def make_metric(gaussian: Gaussian, *, gamma: float, normalization: Normalization) -> Metric:
    """Return the metric of a class, its covariance shrunk by γI and normalized.

    ``"correlation"`` is Σ_ij / (s_i s_j). ``"rows"`` follows the published code: the correlations between the rows
    of the shrunk covariance, a singular matrix. ``"none"`` does not change the covariance.
    """
    if normalization not in get_args(Normalization):
        raise unknown_name("normalization", normalization, get_args(Normalization))
    if normalization == "rows":
        return row_correlation_metric(gaussian, gamma)
    xp = namespace(gaussian.mean)
    low = _low_rank(gaussian, gamma, WELL_CONDITIONED)
    if low is not None:
        variances = xp.sum(low.factor * low.factor, axis=0) + gamma  # diagonal of S
        scale = xp.sqrt(variances) if normalization == "correlation" else xp.ones_like(variances)
        return LowRankMetric(gaussian.mean, scale, low.projection * scale, gamma)
    shrunk = _covariance(gaussian)
    add_to_diagonal(shrunk, gamma)
    scale = xp.sqrt(xp.linalg.diagonal(shrunk))
    lower = _required(cholesky_(shrunk), gamma)
    if normalization == "correlation":
        lower /= scale[:, None]  # S / (s sᵀ) = (L / s) (L / s)ᵀ
    return CholeskyMetric(gaussian.mean, lower)


@dataclass(frozen=True, eq=False)
class _LowRank:
    """S⁻¹ = (I − PᵀP) / γ with P = L⁻¹ B and L Lᵀ = γI + B Bᵀ, a matrix with rank(Σ) rows."""

    factor: Array  # (r, d): B
    products: Array  # (r, r): B Bᵀ
    projection: Array  # (r, d): P


def _low_rank(gaussian: Gaussian, gamma: float, limit: float) -> _LowRank | None:
    """Return the factored form, or None if it is not smaller than the dense one or loses too many digits."""
    if isinstance(gaussian, SummedGaussian) or gamma <= 0:
        return None
    factor = gaussian.factor
    rows, d = factor.shape
    if 2 * rows >= d or _sum_of_squares(factor) > limit * gamma:
        return None
    products = factor @ factor.T  # (r, r)
    if not rows:
        return _LowRank(factor, products, factor)
    shifted = namespace(factor).asarray(products, copy=True)
    add_to_diagonal(shifted, gamma)
    lower = _required(cholesky_(shifted), gamma)
    projection = solve_lower_(lower, namespace(factor).asarray(factor.T, copy=True)).T
    return _LowRank(factor, products, projection)


def _covariance(gaussian: Gaussian) -> Array:
    """Return the covariance in its lower triangle; the array may be overwritten."""
    if isinstance(gaussian, SummedGaussian):
        return namespace(gaussian.mean).asarray(gaussian.covariance, copy=True)
    return column_gram(gaussian.factor)


def row_correlation_metric(gaussian: Gaussian, gamma: float) -> Metric:
    """Return the pseudo-inverse of the correlations between the rows of S = Σ + γI, without decomposing them.

    With J = I − 11ᵀ/d, which centers the rows, and D² = diag(S J S), the correlations are R = D⁻¹ S J S D⁻¹. The
    null space of R is n ∝ D S⁻¹ 1. D S⁻² D is a generalized inverse (R D S⁻² D R = R, because J is a projection),
    and the projection Q = I − nnᵀ on both sides makes it the pseudo-inverse:

        R⁺ = Q D S⁻² D Q.

    S² = L Lᵀ gives ‖L⁻¹ D Q u‖². For a factor with few rows S⁻¹ = (I − PᵀP) / γ, and its square has the same form.
    If γ is so small that the published code would cut eigenvalues off, they are computed and cut off.
    """
    d = len(gaussian.mean)
    if d < 2:
        raise InputError('normalization="rows" needs two features at least, got n_features=1; use "correlation"')
    low = _low_rank(gaussian, gamma, WELL_CONDITIONED**0.5 - 1)
    if low is not None:
        made = _few_row_correlations(gaussian.mean, low, gamma)
        if made is not None:
            return made
    xp = namespace(gaussian.mean)
    lower = xp.tril(_covariance(gaussian))
    shrunk = lower + lower.T
    add_to_diagonal(shrunk, -xp.linalg.diagonal(lower))  # in both
    spread = _sum_of_squares(shrunk) ** 0.5
    add_to_diagonal(shrunk, gamma)  # S
    square = column_gram(shrunk)  # S²
    sums = xp.sum(shrunk, axis=1)
    deviations = _row_deviations(xp.linalg.diagonal(square), sums, spread, gamma)
    lower = None if deviations is None else cholesky_(square)
    if deviations is None or lower is None:
        return SpectralMetric(gaussian.mean, _row_correlation_whitener(shrunk))
    inverse = solve_upper_(lower, solve_lower_(lower, xp.asarray(sums[None], copy=True)))[0]  # S⁻² S 1
    lower /= deviations[:, None]
    return CholeskyMetric(gaussian.mean, lower, null=unit_rows(deviations * inverse))


def _few_row_correlations(mean: Array, low: _LowRank, gamma: float) -> LowRankMetric | None:
    """Return the same for a factor with few rows, or None if eigenvalues would be cut off.

    γ² S⁻² = I − Pᵀ(2I − PPᵀ)P = I − P'ᵀP'. With v = D Q u that is ‖v‖² − ‖P'v‖². Let a = n·u, b = (D²n)·u and
    c = ‖Dn‖²; then ‖v‖² = ‖Du‖² − 2ab + ca² = ‖Du‖² − (b/√c)² + (√c a − b/√c)².
    """
    xp = namespace(mean)
    factor, projection = low.factor, low.projection
    squares = xp.sum(factor * factor, axis=0)
    row_sums = gamma + factor.T @ xp.sum(factor, axis=1)  # S 1
    diagonal = gamma**2 + 2 * gamma * squares + xp.sum(factor * (low.products @ factor), axis=0)  # of S²
    spread = _sum_of_squares(low.products) ** 0.5
    deviations = _row_deviations(diagonal, row_sums, spread, gamma)
    if deviations is None:
        return None
    null = unit_rows(deviations * (1 - projection.T @ xp.sum(projection, axis=1)))
    if len(factor):
        inner = -(projection @ projection.T)
        add_to_diagonal(inner, 2)
        projection = _required(cholesky_(inner), gamma).T @ projection
    rows = projection * deviations
    rows = rows - (rows @ null)[:, None] * null  # P' D Q
    across = deviations * deviations * null  # D² n
    root = math.sqrt(_sum_of_squares(deviations * null))  # √c
    projection = xp.concat([rows, across[None] / root])
    return LowRankMetric(mean, deviations, projection, gamma**2, added=root * null - across / root)


def _row_deviations(diagonal: Array, sums: Array, spread: float, gamma: float) -> Array | None:
    """Return D, or None if the pseudo-inverse of the published code would cut off more than the null space.

    It cuts off eigenvalues of R below d ε times the largest. The eigenvalues of S lie between γ and γ + ‖Σ‖. So
    the ratio of the nonzero eigenvalues of R is at most the square of this ratio times the ratio of the values of
    D².
    """
    xp = namespace(diagonal)
    variances = diagonal - sums * sums / len(diagonal)
    least, largest = float(xp.min(variances)), float(xp.max(variances))
    if gamma <= 0 or least <= CANCELED * float(xp.min(diagonal)):
        return None
    range_ = (1 + spread / gamma) ** 2 * largest / least
    return None if range_ * len(diagonal) * epsilon(diagonal) >= 1 else xp.sqrt(variances)


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

    ‖x‖² − 2 x·p + ‖p‖² loses digits far from zero, so ``origin``, a point among them, is subtracted from both.
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
    more = [(i, m.added) for i, m in enumerate(metrics) if m.added is not None]
    if more:
        columns, rows = positions([i for i, _ in more], X), xp.stack([row for _, row in more])
        beyond = X @ rows.T - xp.sum(rows * means[columns], axis=1)
        distances[:, columns] += beyond * beyond
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
    xp = namespace(covariance)
    values, vectors = eigh(_row_correlations(covariance))
    kept = values > len(values) * epsilon(values) * values[-1]  # cut off as in pinv
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
    """Covariance within base classes as a factor, (r, d): the expected covariance of a class without samples."""

    factor: Array

    @property
    def trace(self) -> float:
        """Mean squared distance of a sample from its class mean."""
        return _sum_of_squares(self.factor)

    def of_class(self, summary: ClassSummary) -> float:
        """Return the trace of one class, to which the base classes contribute like one more sample.

        A trace is linear in the scatter, so the class's own trace is unbiased even with few samples.
        """
        return (_sum_of_squares(summary.factor) + self.trace) / summary.count


def within_spread(base: ClassStatistics, like: Array) -> WithinSpread:
    """Pool the scatter within base classes; without base classes the spread is zero.

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
    """Return the noise of a mean after it is scaled to length one, to first order."""
    length = max(math.sqrt(_sum_of_squares(mean)), TINY)
    direction = mean / length
    return (rows - (rows @ direction)[:, None] * direction) / length


def _sum_of_squares(values: Array) -> float:
    return float(namespace(values).sum(values * values))

"""Mahalanobis distances from factored covariances: factored once per class, never inverted.

With S = Σ + γI and s = √diag S, the correlation-normalised distance of the paper's equation (5) is

    (x − μ)ᵀ [S / (s sᵀ)]⁻¹ (x − μ) = uᵀ S⁻¹ u,   u = s ∘ (x − μ),

so the normalisation is a scaling of the axes, and S keeps the factored form of Σ = BᵀB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch
from scipy.linalg import blas
from torch import Tensor

from fiveshot.errors import InputError, unknown_name
from fiveshot.heads.ridge import add_gram_

Normalization = Literal["correlation", "rows", "none"]

# Subtracting in low rank loses as many digits as trace(Σ) / γ has; three are left to spare in float32.
WELL_CONDITIONED = 1e3
COLUMNS_AT_ONCE = 2048  # projected columns per matrix product, which bounds the memory


@dataclass(frozen=True, eq=False)
class LowRankMetric:
    """uᵀ S⁻¹ u = (‖u‖² − ‖P u‖²) / γ with P = L⁻¹ B and L Lᵀ = γI + B Bᵀ, a matrix of rank(Σ) rows."""

    mean: Tensor  # (d,)
    scale: Tensor  # (d,)
    projection: Tensor  # (r, d): P with the scale folded in
    gamma: float
    inflation: float = 0.0  # what the noise of the mean adds in expectation, to be subtracted


@dataclass(frozen=True, eq=False)
class CholeskyMetric:
    """uᵀ S⁻¹ u = ‖L⁻¹ u‖² with S = L Lᵀ."""

    mean: Tensor  # (d,)
    scale: Tensor  # (d,)
    cholesky: Tensor  # (d, d), lower
    inflation: float = 0.0

    def squared_distances(self, X: Tensor) -> Tensor:
        """Return one squared distance per row of X."""
        u = (X - self.mean) * self.scale  # (n, d)
        return _solve_lower_(self.cholesky, u).square().sum(dim=1)


@dataclass(frozen=True, eq=False)
class SpectralMetric:
    """‖E (x − μ)‖² where EᵀE is the pseudo-inverse of a singular metric."""

    mean: Tensor  # (d,)
    whitener: Tensor  # (k, d): E
    inflation: float = 0.0

    def squared_distances(self, X: Tensor) -> Tensor:
        """Return one squared distance per row of X."""
        return ((X - self.mean) @ self.whitener.T).square().sum(dim=1)


Item = TypeVar("Item")
Metric = LowRankMetric | CholeskyMetric | SpectralMetric


def make_metric(mean: Tensor, factor: Tensor, *, gamma: float, normalization: Normalization) -> Metric:
    """Return the metric of a class with covariance factorᵀ · factor, shrunk by γI and normalised.

    ``"correlation"`` is Σ_ij / (s_i s_j); ``"rows"`` is what the published code computes, the correlations
    between the rows of the shrunk covariance, which is singular; ``"none"`` leaves the covariance as it is.
    """
    if normalization not in get_args(Normalization):
        raise unknown_name("normalization", normalization, get_args(Normalization))
    if normalization == "rows":
        covariance = factor.T @ factor
        covariance.diagonal().add_(gamma)
        return SpectralMetric(mean, _row_correlation_whitener(covariance))
    variances = factor.square().sum(dim=0) + gamma  # diagonal of S
    scale = variances.sqrt() if normalization == "correlation" else torch.ones_like(variances)
    rows, d = factor.shape
    total = float(factor.square().sum())
    if gamma > 0 and 2 * rows < d and total <= WELL_CONDITIONED * gamma:
        small = factor @ factor.T  # (r, r)
        small.diagonal().add_(gamma)
        projection = torch.linalg.solve_triangular(torch.linalg.cholesky(small), factor, upper=False)
        return LowRankMetric(mean, scale, projection * scale, gamma)
    return CholeskyMetric(mean, scale, _cholesky(factor, gamma))


def squared_distances(X: Tensor, metrics: Sequence[Metric], *, origin: Tensor) -> Tensor:
    """Return squared distances, (n, n_metrics); ``origin`` is a point among the means, for precision."""
    distances = X.new_empty(len(X), len(metrics))
    low_rank = [(i, m) for i, m in enumerate(metrics) if isinstance(m, LowRankMetric)]
    for group in _groups(low_rank, lambda pair: len(pair[1].projection)):
        columns, members = zip(*group, strict=True)
        distances[:, list(columns)] = _low_rank_distances(X - origin, members, origin)
    for i, metric in enumerate(metrics):
        if not isinstance(metric, LowRankMetric):
            distances[:, i] = metric.squared_distances(X)
    return distances.clamp_min_(0)


def _low_rank_distances(X: Tensor, metrics: Sequence[LowRankMetric], origin: Tensor) -> Tensor:
    means = torch.stack([m.mean - origin for m in metrics])  # (k, d)
    squares = torch.stack([m.scale for m in metrics]).square()  # (k, d)
    lengths = X.square() @ squares.T - 2 * X @ (squares * means).T + (squares * means.square()).sum(dim=1)
    projections = torch.cat([m.projection for m in metrics])  # (Σ r, d)
    offsets = torch.cat([m.projection @ mean for m, mean in zip(metrics, means, strict=True)])
    ranks = torch.tensor([len(m.projection) for m in metrics], device=X.device)
    owner = torch.nn.functional.one_hot(torch.repeat_interleave(ranks), len(metrics)).to(X)  # (Σ r, k)
    explained = (X @ projections.T - offsets).square() @ owner  # (n, k)
    gammas = torch.tensor([m.gamma for m in metrics], dtype=X.dtype, device=X.device)
    return (lengths - explained) / gammas


def _solve_lower_(lower: Tensor, rows: Tensor) -> Tensor:
    """Return L⁻¹ x for each row x, (n, d); ``rows`` may be overwritten."""
    if rows.device.type != "cpu":
        solved: Tensor = torch.linalg.solve_triangular(lower.T, rows, upper=True, left=False)
        return solved
    # The transposed views are in Fortran's order, where BLAS solves in place and faster than torch.
    trsm = blas.strsm if rows.dtype == torch.float32 else blas.dtrsm
    return torch.from_numpy(trsm(1.0, lower.numpy().T, rows.numpy().T, lower=0, trans_a=1, overwrite_b=1).T)


def _groups(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    group: list[Item] = []
    total = 0
    for item in items:
        if group and total + size(item) > COLUMNS_AT_ONCE:
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group


def _cholesky(factor: Tensor, gamma: float) -> Tensor:
    """Return the Cholesky factor of Σ + γI, reading and making its lower triangle alone."""
    shrunk = factor.new_zeros(factor.shape[1], factor.shape[1])
    add_gram_(shrunk, factor)
    shrunk.diagonal().add_(gamma)
    cholesky: Tensor
    cholesky, failed = torch.linalg.cholesky_ex(shrunk)
    if failed:
        raise InputError(
            f"a class covariance is singular with gamma = {gamma}; choose a larger gamma (the paper's is 100)"
        )
    return cholesky


def _row_correlation_whitener(covariance: Tensor) -> Tensor:
    if len(covariance) < 2:
        raise InputError('normalization="rows" needs two features at least, got n_features=1; use "correlation"')
    values, vectors = torch.linalg.eigh(torch.corrcoef(covariance))
    kept = values > len(values) * torch.finfo(values.dtype).eps * values[-1]  # as pinv cuts them
    whitener: Tensor = (vectors[:, kept] / values[kept].sqrt()).T
    return whitener

"""One covariance for all classes, shrunk towards a sphere, and the noise it leaves in whitened samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.linalg import lapack
from torch import Tensor

from fiveshot.errors import InputError

LEAST_SHRINKAGE = 0.3


@dataclass(frozen=True, eq=False)
class TiedCovariance:
    """Σ = L Lᵀ, and the mean variance that L⁻¹ leaves per direction of samples which did not make Σ."""

    cholesky: Tensor  # (d, d), lower: L
    noise: Tensor  # (): of base classes
    new_noise: Tensor  # (): of new ones, which an adapted backbone has not drawn together


def default_shrinkage(n_features: int, dof: int) -> float:
    """Return the share of the sphere in Σ from counts alone: all of it without samples, never less than 0.3.

    >>> round(default_shrinkage(384, 800), 3), default_shrinkage(384, 40_000)
    (0.324, 0.3)
    """
    return max(LEAST_SHRINKAGE, n_features / (n_features + dof))


def tied_covariance(
    base: Tensor,
    base_dof: int,
    new: Tensor,
    new_dof: int,
    *,
    spread: float,
    shrinkage: float | None,
    pool_new: bool,
) -> TiedCovariance:
    """Estimate Σ from the scatter within base classes and within new ones, (d, d) each, lower triangles.

    ``spread`` is the variance to assume where no class has two different samples. Without base classes there is
    one noise for all.
    """
    pooled = base + new if pool_new or not base_dof else base
    dof = base_dof + new_dof if pool_new or not base_dof else base_dof
    d = len(pooled)
    share = default_shrinkage(d, dof) if shrinkage is None else shrinkage
    level = float(pooled.diagonal().sum()) / d / max(dof, 1)
    if level <= 0:
        share, level = 1.0, max(spread, 1e-12)
    covariance = pooled * ((1 - share) / max(dof, 1))
    covariance.diagonal().add_(share * level)
    cholesky, failed = torch.linalg.cholesky_ex(covariance)
    if int(failed):
        raise _singular(int(failed))
    precision = _inverse(cholesky)

    def noise(scatter: Tensor, count: int) -> Tensor:
        # The samples that made Σ lie too well in it. Left out one by one (Sherman and Morrison) their squared
        # length is q / (1 − (1 − ρ) q / dof) in place of q = tr(Σ⁻¹ S) / dof.
        if not count or share == 1:
            return precision.new_ones(())
        inside = _trace(precision, scatter) / count
        return inside / (1 - (1 - share) * inside / dof).clamp_min(0.1) / d

    of_base = noise(base, base_dof) if base_dof else noise(new, new_dof)
    return TiedCovariance(cholesky, of_base, noise(new, new_dof) if new_dof else of_base)


def _inverse(cholesky: Tensor) -> Tensor:
    """Return Σ⁻¹ in its lower triangle; what is above the diagonal is undefined."""
    if cholesky.device.type != "cpu":
        return torch.cholesky_inverse(cholesky)
    # LAPACK's own needs no copy. Transposed, our lower triangle is Fortran's upper one.
    potri = lapack.spotri if cholesky.dtype == torch.float32 else lapack.dpotri
    inverse, failed = potri(cholesky.numpy().T, lower=0)
    if failed:
        raise _singular(failed)
    return torch.from_numpy(inverse.T)


def _singular(failed: int) -> InputError:
    return InputError(f"the covariance of all classes is singular (LAPACK says {failed}); give more shrinkage")


def _trace(precision: Tensor, scatter: Tensor) -> Tensor:
    """Return tr(A S) of symmetric matrices, reading their lower triangles."""
    product = (precision * scatter).tril_()
    return 2 * product.sum() - product.diagonal().sum()

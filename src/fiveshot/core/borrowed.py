"""Covariances that are borrowed from base classes and small beside γ: distances without a matrix for each class.

The shrunk covariance of a calibrated class is S = γI + Σ_B + OᵀO, with the borrowed Σ_B = β Σ_b w_b Σ_b and few
rows O of its own. Where γ is far above Σ_B,

    S₀⁻¹ = (γI + Σ_B)⁻¹ = (I − Σ_B / γ) / γ

but for (‖Σ_B‖ / γ)², so this is done where that is lost in rounding. vᵀ Σ_B v = β Σ_b w_b ‖A_b v‖² needs of a
sample its energies ‖A_b x‖² in the base classes. They serve all new classes; no d × d matrix is made or solved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fiveshot.core.arrays import Array, as_numpy, epsilon, namespace, one_hot, values_like, zeros
from fiveshot.core.calibration import SummedGaussian
from fiveshot.core.linalg import column_gram
from fiveshot.core.statistics import ClassStatistics

COLUMNS_AT_ONCE = 2048  # projected columns per matrix product, which bounds the memory
MOST_ROWS = 8192  # of base factors, of which all products are taken


@dataclass(frozen=True, eq=False)
class Borrowed:
    """What Σ_B takes from squared distances: e·shares − 2 x·pulled + constant, where e are the energies of x."""

    base: ClassStatistics
    weights: Array  # (B,): β w
    shares: Array  # (B,)
    pulled: Array  # (d,)
    constant: float
    own: Array  # (r, d): O

    def gaussian(self, mean: Array) -> SummedGaussian:
        """Return the covariance whole, for those who need it."""
        factors, owners = self.base.stacked_factors
        rows = namespace(mean).concat([factors * (self.weights[owners] ** 0.5)[:, None], self.own])
        return SummedGaussian(mean, column_gram(rows))


def energies(X: Array, base: ClassStatistics) -> Array:
    """Return ‖A_b x‖² of each sample in each base class, (n, B)."""
    factors, owners = base.stacked_factors
    found = zeros((len(X), len(base)), X)
    for start in range(0, len(factors), COLUMNS_AT_ONCE):
        part = slice(start, start + COLUMNS_AT_ONCE)
        projected = X @ factors[part].T
        projected *= projected
        found += projected @ one_hot(as_numpy(owners[part]), len(base), X)
    return found


def taken(X: Array, energies: Array, borrowed: Sequence[Borrowed]) -> Array:
    """Return what each takes from the squared distances of samples with these energies, (n, k)."""
    xp = namespace(X)
    found = energies @ xp.stack([one.shares for one in borrowed]).T
    found -= X @ (2 * xp.stack([one.pulled for one in borrowed])).T
    found += values_like([one.constant for one in borrowed], X)
    return found


def is_small(weights: Array, base: ClassStatistics, variances: Array, gamma: float) -> bool:
    """Tell whether what the first order leaves out is lost in rounding; ``variances`` are those of the class.

    The norm of Σ_B is bounded by those of the Σ_b, or known from their products where these are not too many.
    """
    xp = namespace(weights)
    rounding = math.sqrt(len(variances)) * epsilon(weights)  # of a sum of d squares
    limit, widest = rounding * gamma**2, float(xp.max(variances))

    def below(norm: float) -> bool:
        return norm * max(norm, widest) <= limit

    if below(float(weights @ base.norms)):
        return True
    few = len(base.stacked_factors[0]) <= MOST_ROWS
    return few and below(math.sqrt(max(float(weights @ (base.overlaps @ weights)), 0.0)))

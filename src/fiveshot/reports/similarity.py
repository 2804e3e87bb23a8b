"""Whether classes with near prototypes have similar covariances: what figure 2 shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from fiveshot.benchmark import Protocol
from fiveshot.errors import InputError
from fiveshot.features import FeatureSet
from fiveshot.statistics import ClassStatistics, class_statistics


@dataclass(frozen=True, eq=False)
class SimilarityPoints:
    """One point per pair of a new and a base class."""

    distance: NDArray[np.float64]  # (n_new, n_base), between the prototypes
    similarity: NDArray[np.float64]  # (n_new, n_base), of the covariances

    @cached_property
    def correlation(self) -> float:
        """Pearson's coefficient of distance and similarity over all pairs."""
        return float(np.corrcoef(self.distance.ravel(), self.similarity.ravel())[0, 1])

    @cached_property
    def trend(self) -> tuple[float, float]:
        """Slope and intercept of the line fitted by least squares."""
        slope, intercept = np.polyfit(self.distance.ravel(), self.similarity.ravel(), 1)
        return float(slope), float(intercept)


def similarity_points(protocol: Protocol, features: FeatureSet) -> SimilarityPoints:
    """Compare the new classes of session 1 with the base classes, each by all of its training images."""
    if len(protocol.session_classes) < 2:
        raise InputError(f"protocol {protocol.name!r} has no session after the base session to compare with it")
    base, new = (_statistics(features, classes) for classes in protocol.session_classes[:2])
    distance = torch.cdist(new.means, base.means, compute_mode="donot_use_mm_for_euclid_dist")
    return SimilarityPoints(distance.numpy(), covariance_similarity(new, base))


def covariance_similarity(first: ClassStatistics, second: ClassStatistics) -> NDArray[np.float64]:
    """Return for each pair of classes the cosine of their covariances as vectors, (n_first, n_second).

    cos(Σ₁, Σ₂) = ⟨Σ₁, Σ₂⟩ / (‖Σ₁‖ ‖Σ₂‖) with the Frobenius inner product ⟨Σ₁, Σ₂⟩ = trace(Σ₁ Σ₂). It is 1 for
    covariances of one shape, whatever their scale, and 0 where the classes vary in orthogonal directions. In
    factored form, Σ = AᵀA, no d × d matrix is needed: ⟨A₁ᵀA₁, A₂ᵀA₂⟩ = ‖A₁ A₂ᵀ‖².

    >>> flat = class_statistics(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), [0, 0])
    >>> round_ = class_statistics(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), [0] * 4)
    >>> covariance_similarity(flat, round_).round(3)
    array([[0.707]])
    """
    for label, summary in [
        *zip(first.labels, first.summaries, strict=True),
        *zip(second.labels, second.summaries, strict=True),
    ]:
        if not summary.factor.any():
            raise InputError(f"class {label!r} has no covariance: it takes two images that differ")
    return _inner(first, second) / np.outer(_norms(first), _norms(second))


def _inner(first: ClassStatistics, second: ClassStatistics) -> NDArray[np.float64]:
    stacked, owners = second.stacked_factors  # (R, d), (R,)
    starts = np.searchsorted(owners.numpy(), np.arange(len(second)))
    rows = [(stacked @ summary.covariance_factor.T).square().sum(dim=1).numpy() for summary in first.summaries]
    return np.stack([np.add.reduceat(row, starts) for row in rows])


def _norms(statistics: ClassStatistics) -> NDArray[np.float64]:
    # ‖AᵀA‖ = ‖A Aᵀ‖, and A has fewer rows than columns.
    factors = (summary.covariance_factor for summary in statistics.summaries)
    return np.array([float(torch.linalg.norm(factor @ factor.T)) for factor in factors])


def _statistics(features: FeatureSet, classes: tuple[int, ...]) -> ClassStatistics:
    rows = np.flatnonzero(np.isin(features.train_y, classes))
    vectors = torch.from_numpy(np.asarray(features.train_x[rows], dtype=np.float64))
    return class_statistics(vectors, features.train_y[rows])

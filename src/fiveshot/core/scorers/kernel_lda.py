"""KLDA: linear discriminant analysis with one covariance, in the space of a radial kernel.

Momeni, Mazumder and Liu, Continual Learning Using a Kernel-Based Method Over Foundation Models, 2025. Random
Fourier features (Rahimi and Recht, 2007) stand for the kernel k(x, y) = exp(−γ ‖x − y‖²):

    φ(x) = √(2 / D) cos(Ωᵀx + b),   columns of Ω ~ N(0, 2γ 1),   b ~ U(0, 2π).

Every class has a mean μ_c of these features, and all classes share Σ = Σ_c Σ_i (φ_i − μ_c)(φ_i − μ_c)ᵀ / n. A
sample scores

    s_c(x) = φ(x)·Σ⁻¹ μ_c − ½ μ_c·Σ⁻¹ μ_c.

The paper uses D = 5,000, more samples than that, and one γ for each backbone. Here γ is the best of some multiples
of 1 / (d · variance) on a part of the base session. A share ε of the unit matrix is added to Σ, because with fewer
samples than D it has no inverse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fiveshot.core import ClassStatistics, Memory, class_statistics
from fiveshot.core.arrays import Array, chunks, mean_row, namespace, positions, values_like
from fiveshot.core.draws import derived_seed, normal_like, stratified_split
from fiveshot.core.labels import Label, Labels
from fiveshot.core.ranges import Allowed, Range
from fiveshot.core.ridge import solve_ridge
from fiveshot.core.scatter import PooledScatter, pooled_scatter
from fiveshot.core.scorers.parameters import with_parameters
from fiveshot.core.scorers.scorer import Scorer

MOST_IN_TRIALS = 1000  # random features in the trials of γ; more would choose the same
SCORED_AT_ONCE = 1024  # samples mapped at a time; limits the memory


@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """φ(x) = √(2 / D) cos(Ωᵀx + b)."""

    frequencies: Array  # (d, D): Ω
    phases: Array  # (D,): b

    def __call__(self, X: Array) -> Array:
        """Map features, (n, d) → (n, D)."""
        return math.sqrt(2 / len(self.phases)) * namespace(X).cos(X @ self.frequencies + self.phases)


@dataclass(frozen=True, eq=False)
class Kernel:
    """The γ chosen on the base session, and the random features of its kernel."""

    gamma: float
    features: FourierFeatures

    def __call__(self, X: Array) -> Array:
        """Map features in blocks, (n, d) → (n, D)."""
        return namespace(X).concat([self.features(part) for part in chunks(X, SCORED_AT_ONCE)])


def fourier_features(n_features: int, width: int, gamma: float, *, seed: int, like: Array) -> FourierFeatures:
    """Draw random Fourier features of the kernel exp(−γ ‖x − y‖²) for vectors like ``like``."""
    normal = normal_like((n_features, width), like, seed=derived_seed(seed, "frequencies"))
    turns = np.random.default_rng(derived_seed(seed, "phases")).uniform(0, 2 * math.pi, size=width)
    return FourierFeatures(math.sqrt(2 * gamma) * normal, values_like(turns, like))


@dataclass(frozen=True, eq=False)
class KernelModel:
    """The scatter within classes, and the w and b of the scores φ(x)·w − b."""

    pooled: PooledScatter
    weights: Array  # (n_classes, D)
    shifts: Array  # (n_classes,)


@dataclass(eq=False)
class KernelLDAScorer(Scorer):
    """KLDA: linear discriminant analysis of random Fourier features, with one covariance for all classes.

    Parameters
    ----------
    n_projections : int
        Random features, D in the paper.
    gammas : sequence of float
        Multiples of 1 / (d · variance), tried as γ on 20 % of the base session; the best is kept.
    shrinkage : float
        ε, the share of the unit matrix in the covariance. The paper uses none. Of 0.0001, 0.01, 0.1 and 0.3, the
        last was best on held-out training photos of the base classes of CUB-200.
    random_state : int
        Seed of all draws.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        The device to move arrays to; None leaves them where they are.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    >>> KernelLDAScorer(64).learn(rows, ["a", "a", "b", "b"]).classify(np.array([[0.2, 1.0]])).tolist()
    ['a']
    """

    needs_samples = True
    ranges: ClassVar[Mapping[str, Allowed]] = {
        "n_projections": Range(1, whole=True, hint="the paper uses 5,000"),
        "gammas": Range(0, positive=True, each=True, hint="for example (0.1, 1.0)"),
        "shrinkage": Range(0, 1, hint="the default is 0.3"),
        "random_state": Range(whole=True, hint="for example 0"),
    }

    n_projections: int = 5000
    _: KW_ONLY
    gammas: Sequence[float] = (0.01, 0.03, 0.1, 0.3)
    shrinkage: float = 0.3
    random_state: int = 0
    temperature: float = 1.0
    device: Any = None

    def start(self, X: Array, y: Labels) -> tuple[Kernel, ClassStatistics]:
        """Choose γ, and draw the random features."""
        gamma = self._best_gamma(X, y)
        drawn = fourier_features(X.shape[1], self.n_projections, gamma, seed=int(self.random_state), like=X)
        kernel = Kernel(gamma, drawn)
        return kernel, class_statistics(kernel(X), y)

    def embed(self, X: Array) -> Array:
        """Return the random Fourier features; before the base session, the features themselves."""
        return X if self.basis is None else self.basis(X)

    def derive(self, memory: Memory, X: Array, y: Labels, previous: KernelModel | None) -> KernelModel:
        """Return the discriminants of all classes."""
        pooled = pooled_scatter(memory, self._columns, previous.pooled if previous else None)
        means, n = memory.statistics.means, int(memory.statistics.counts.sum())
        xp = namespace(means)
        covariance = (pooled.base.matrices[0] + xp.astype(pooled.new.matrices[0], means.dtype)) / n
        level = float(xp.mean(xp.linalg.diagonal(covariance))) or 1.0  # classes with one sample have no scatter
        weights = solve_ridge((1 - self.shrinkage) * covariance, means, self.shrinkage * level)
        return KernelModel(pooled, weights, xp.vecdot(weights, means) / 2)

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return φ(x)·Σ⁻¹μ − ½ μ·Σ⁻¹μ."""
        columns = positions(np.searchsorted(self.classes, labels), X)
        weights, shifts = self.model.weights[columns], self.model.shifts[columns]
        rows = [self.basis.features(part) @ weights.T for part in chunks(X, SCORED_AT_ONCE)]
        return namespace(X).concat(rows) - shifts

    def state_to_save(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return γ, the random features and the model."""
        drawn, model = self.basis.features, self.model
        arrays = {"frequencies": drawn.frequencies, "phases": drawn.phases}
        return arrays | {"weights": model.weights, "shifts": model.shifts}, {"gamma": self.basis.gamma}

    def restored(self, memory: Memory, arrays: dict[str, Array], values: dict[str, Any]) -> Self:
        """Return the scorer with the saved random features and model."""
        after = copy(self)
        after.basis = Kernel(float(values["gamma"]), FourierFeatures(arrays["frequencies"], arrays["phases"]))
        pooled = pooled_scatter(memory, after._columns, None)
        return after.holding(memory, KernelModel(pooled, arrays["weights"], arrays["shifts"]))

    @property
    def _columns(self) -> tuple[slice]:
        return (slice(0, self.basis.features.phases.shape[0]),)

    def _best_gamma(self, X: Array, y: Labels) -> float:
        spread = float(namespace(X).mean((X - mean_row(X)) ** 2)) * X.shape[1]
        scale = 1 / spread if spread > 0 else 1.0
        tried = sorted(self.gammas)
        train, held_out = stratified_split(y, held_out=0.2, seed=int(self.random_state))
        if len(tried) == 1 or not len(held_out):
            return scale * tried[len(tried) // 2]
        narrow = {"n_projections": min(self.n_projections, MOST_IN_TRIALS)}

        def accuracy(factor: float) -> float:
            trial = with_parameters(self, {**narrow, "gammas": (factor,)}).learn(X[positions(train, X)], y[train])
            return float((trial.classify(X[positions(held_out, X)]) == y[held_out]).mean())

        return scale * max(tried, key=accuracy)

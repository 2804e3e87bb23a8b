"""KLDA: linear discriminant analysis with one covariance, in the space of a radial kernel.

Momeni, Mazumder and Liu, Continual Learning Using a Kernel-Based Method Over Foundation Models, 2025. Random
Fourier features (Rahimi and Recht, 2007) stand for the kernel k(x, y) = exp(−γ ‖x − y‖²):

    φ(x) = √(2 / D) cos(Ωᵀx + b),   columns of Ω ~ N(0, 2γ 1),   b ~ U(0, 2π).

Of them every class has a mean μ_c, and all classes share Σ = Σ_c Σ_i (φ_i − μ_c)(φ_i − μ_c)ᵀ / n. A sample scores

    s_c(x) = φ(x)·Σ⁻¹ μ_c − ½ μ_c·Σ⁻¹ μ_c.

The paper has D = 5,000, more samples than that, and a γ for each backbone. Here γ is the best of some multiples of
1 / (d · variance) on a part of the base session, and Σ gets a share ε of the sphere: without it there is no
inverse where samples are fewer than D.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fiveshot.core import Memory
from fiveshot.core.arrays import Array, chunks, mean_row, namespace, positions, values_like
from fiveshot.core.draws import derived_seed, normal_like, stratified_split
from fiveshot.core.labels import Label, Labels
from fiveshot.core.ranges import Allowed, Range
from fiveshot.core.ridge import solve_ridge
from fiveshot.core.scatter import PooledScatter, pooled_scatter
from fiveshot.heads.estimator import clone
from fiveshot.heads.head import FewShotHead, Recipe, Workload

MOST_IN_TRIALS = 1000  # random features: the γ that suits these suits all
SCORED_AT_ONCE = 1024  # samples mapped at a time, which bounds the memory


@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """φ(x) = √(2 / D) cos(Ωᵀx + b)."""

    frequencies: Array  # (d, D): Ω
    phases: Array  # (D,): b

    def __call__(self, X: Array) -> Array:
        """Map features, (n, d) → (n, D)."""
        return math.sqrt(2 / len(self.phases)) * namespace(X).cos(X @ self.frequencies + self.phases)


def fourier_features(n_features: int, width: int, gamma: float, *, seed: int, like: Array) -> FourierFeatures:
    """Draw random Fourier features of the kernel exp(−γ ‖x − y‖²) for vectors like ``like``."""
    normal = normal_like((n_features, width), like, seed=derived_seed(seed, "frequencies"))
    turns = np.random.default_rng(derived_seed(seed, "phases")).uniform(0, 2 * math.pi, size=width)
    return FourierFeatures(math.sqrt(2 * gamma) * normal, values_like(turns, like))


@dataclass(frozen=True, eq=False)
class KernelModel:
    """The scatter within classes, and the scores φ(x)·w − b that follow from it and from the means."""

    pooled: PooledScatter
    weights: Array  # (n_classes, D)
    shifts: Array  # (n_classes,)


class KernelLDA(FewShotHead):
    """KLDA: linear discriminant analysis of random Fourier features, with one covariance for all classes.

    Parameters
    ----------
    n_projections : int
        Random features, D in the paper.
    gammas : sequence of float
        Multiples of 1 / (d · variance), tried as γ on 20 % of the base session; the best is kept.
    shrinkage : float
        ε, the share of the sphere in the covariance. The paper has none; of 0.0001, 0.01, 0.1 and 0.3 the last was
        best on held-out training photographs of base classes of CUB-200.
    random_state : int
        Seed of all draws.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        Where arrays are moved to; None computes where they are.

    Examples
    --------
    >>> from fiveshot.heads import KernelLDA
    >>> head = KernelLDA(64).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], ["a", "a", "b", "b"])
    >>> head.predict([[0.2, 1.0]]).tolist()
    ['a']
    """

    needs_samples = True
    ranges: ClassVar[Mapping[str, Allowed]] = {
        "n_projections": Range(1, whole=True, hint="the paper uses 5,000"),
        "gammas": Range(0, positive=True, each=True, hint="for example (0.1, 1.0)"),
        "shrinkage": Range(0, 1, hint="the default is 0.3"),
        "random_state": Range(whole=True, hint="for example 0"),
    }
    model_: KernelModel

    def __init__(
        self,
        n_projections: int = 5000,
        *,
        gammas: Sequence[float] = (0.01, 0.03, 0.1, 0.3),
        shrinkage: float = 0.3,
        random_state: int = 0,
        temperature: float = 1.0,
        device: Any = None,
    ) -> None:
        self.n_projections = n_projections
        self.gammas = gammas
        self.shrinkage = shrinkage
        self.random_state = random_state
        self.temperature = temperature
        self.device = device

    @classmethod
    def recipes(cls) -> tuple[Recipe, ...]:
        """Return KLDA."""
        return (
            Recipe(
                "klda",
                "linear discriminant analysis of random Fourier features, one covariance",
                paper=lambda: cls(),
                label="KLDA",
                place=130,
            ),
        )

    @property
    def gamma_(self) -> float:
        """γ of the kernel, chosen on the base session."""
        return self._gamma

    def memory_needed(self, work: Workload) -> int:
        """Return the bytes of the covariance, in both precisions, and of the mapped samples."""
        return 24 * self.n_projections**2 + 4 * self.n_projections * (work.rows + work.classes)

    def operations(self, work: Workload) -> float:
        """Add the mapped rows and their products, the trials of γ, and a solution for each session."""
        m, d = self.n_projections, work.n_features
        mapped = 2.0 * d * m * (work.rows + work.sessions * work.test_rows)
        solved = m**3 / 3 + 2.0 * m * work.classes * (m + work.test_rows)
        tried = len(self.gammas) * work.base_rows * min(m, MOST_IN_TRIALS) ** 2
        return super().operations(work) + mapped + work.rows * m * m + tried + work.sessions * solved

    def begin(self, X: Array, y: Labels) -> None:
        """Choose γ, and draw the random features."""
        self._gamma = self._best_gamma(X, y)
        seed = int(self.random_state)
        self._map = fourier_features(X.shape[1], self.n_projections, self._gamma, seed=seed, like=X)

    def embed(self, X: Array) -> Array:
        """Return the random Fourier features; the features themselves before there is a base session."""
        if not hasattr(self, "_map"):
            return X
        return namespace(X).concat([self._map(part) for part in chunks(X, SCORED_AT_ONCE)])

    def derive(self, memory: Memory, X: Array, y: Labels, previous: KernelModel | None) -> KernelModel:
        """Return the discriminants of all classes."""
        pooled = pooled_scatter(memory, self._columns, previous.pooled if previous else None)
        means, n = memory.statistics.means, int(memory.statistics.counts.sum())
        xp = namespace(means)
        covariance = (pooled.base.matrices[0] + xp.astype(pooled.new.matrices[0], means.dtype)) / n
        level = float(xp.mean(xp.linalg.diagonal(covariance))) or 1.0  # of classes seen once nothing is known
        weights = solve_ridge((1 - self.shrinkage) * covariance, means, self.shrinkage * level)
        return KernelModel(pooled, weights, xp.vecdot(weights, means) / 2)

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return φ(x)·Σ⁻¹μ − ½ μ·Σ⁻¹μ."""
        columns = positions(np.searchsorted(self.classes_, labels), X)
        weights, shifts = self.model_.weights[columns], self.model_.shifts[columns]
        rows = [self._map(part) @ weights.T for part in chunks(X, SCORED_AT_ONCE)]
        return namespace(X).concat(rows) - shifts

    def extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the random features with their γ, and the scores."""
        drawn, model = self._map, self.model_
        arrays = {"frequencies": drawn.frequencies, "phases": drawn.phases}
        return arrays | {"weights": model.weights, "shifts": model.shifts}, {"gamma": self._gamma}

    def restore(self, memory: Memory, arrays: dict[str, Array], extra: dict[str, Any]) -> None:
        """Take up the random features and the scores."""
        self._gamma = float(extra["gamma"])
        self._map = FourierFeatures(arrays["frequencies"], arrays["phases"])
        pooled = pooled_scatter(memory, self._columns, None)
        self.hold(memory, KernelModel(pooled, arrays["weights"], arrays["shifts"]))

    @property
    def _columns(self) -> tuple[slice]:
        return (slice(0, self._map.phases.shape[0]),)

    def _best_gamma(self, X: Array, y: Labels) -> float:
        spread = float(namespace(X).mean((X - mean_row(X)) ** 2)) * X.shape[1]
        scale = 1 / spread if spread > 0 else 1.0
        tried = sorted(self.gammas)
        train, held_out = stratified_split(y, held_out=0.2, seed=int(self.random_state))
        if len(tried) == 1 or not len(held_out):
            return scale * tried[len(tried) // 2]
        narrow = clone(self).set_params(n_projections=min(self.n_projections, MOST_IN_TRIALS))

        def accuracy(factor: float) -> float:
            fitted = narrow.set_params(gammas=(factor,)).fit(X[positions(train, X)], y[train])
            return float(fitted.score(X[positions(held_out, X)], y[held_out]))

        return scale * max(tried, key=accuracy)

"""Deep SLDA: linear discriminant analysis with one covariance, updated sample by sample.

Hayes and Kanan, Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis, 2020. A sample z of
class k, which comes after t others, c of them of its class, changes the covariance and then the mean of its class:

    Σ ← (t Σ + Δ) / (t + 1)   with   Δ = t / (t + 1) · (z − μ_k)(z − μ_k)ᵀ,
    μ_k ← (c μ_k + z) / (c + 1).

For the sum S = t Σ this is S ← S + Δ, so a whole session is one product of its weighted deviations. The base
session gives the means, and Σ by oracle approximating shrinkage of the samples around them. A sample scores

    s_k(x) = x·Λ μ_k − ½ μ_k·Λ μ_k   with   Λ = ((1 − ε) Σ + ε 1)⁻¹.

The weight of Δ is t / (t + 1); an exact covariance has c / (c + 1). So the order of samples matters. The text does
not say how the first sample of a class changes Σ: here it does not; in the published code it counts as a
difference from zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fiveshot.core import ClassStatistics, Memory
from fiveshot.core.arrays import Array, add_gram_, add_to_diagonal, namespace, positions, values_like
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.core.ranges import Allowed, Flag, Range
from fiveshot.core.ridge import solve_ridge
from fiveshot.core.scatter import pooled_scatter
from fiveshot.core.scorers.scorer import Scorer, refuse_forgetting


@dataclass(frozen=True, eq=False)
class StreamModel:
    """The state after some samples, and the w and b of the scores x·w − b."""

    statistics: ClassStatistics  # of all classes: their means and counts
    scatter: Array  # (d, d), lower triangle: S
    seen: int  # t
    weights: Array  # (n_classes, d)
    shifts: Array  # (n_classes,)


@dataclass(eq=False)
class StreamingLDAScorer(Scorer):
    """Deep SLDA: one covariance and class means, updated sample by sample.

    Parameters
    ----------
    shrinkage : float
        ε, the share of the unit matrix in the covariance.
    from_zero : bool
        The first sample of a class counts as a difference from zero, as in the published code.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        The device to move arrays to; None leaves them where they are.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [5.0, 6.0]])
    >>> three = StreamingLDAScorer().learn(rows, [0, 0, 1, 1]).learn(np.array([[0.0, 9.0], [1.0, 9.0]]), [2, 2])
    >>> three.classify(np.array([[0.0, 8.0], [5.0, 5.0]])).tolist()
    [2, 1]
    """

    needs_samples = True
    ranges: ClassVar[Mapping[str, Allowed]] = {
        "shrinkage": Range(0, 1, hint="the paper uses 0.0001"),
        "from_zero": Flag(),
    }

    shrinkage: float = 1e-4
    _: KW_ONLY
    from_zero: bool = False
    temperature: float = 1.0
    device: Any = None

    def derive(self, memory: Memory, X: Array, y: Labels, previous: StreamModel | None) -> StreamModel:
        """Return the state after the samples, in their order."""
        statistics = memory.statistics
        if previous is None:
            scatter, seen = shrunk_scatter(memory)
        else:
            refuse_forgetting(previous.statistics, statistics, "its samples changed the covariance of all classes")
            scatter = namespace(previous.scatter).asarray(previous.scatter, copy=True)
            add_gram_(scatter, self._deviations(X, y, previous))
            seen = previous.seen + len(y)
        weights = solve_ridge(scatter * ((1 - self.shrinkage) / seen), statistics.means, self.shrinkage)
        shifts = namespace(weights).vecdot(weights, statistics.means) / 2
        return StreamModel(statistics, scatter, seen, weights, shifts)

    def _deviations(self, X: Array, y: Labels, previous: StreamModel) -> Array:
        """Return the deviation of each sample from the mean of its class before it, times √(t / (t + 1))."""
        known, xp = previous.statistics, namespace(X)
        found = [X[:0]]
        for label in python_labels(np.unique(y)):
            places = np.flatnonzero(y == label)
            own = X[positions(places, X)]
            count = known[label].count if label in known else 0
            total = count * known[label].mean if count else 0
            before = xp.cumulative_sum(own, axis=0) - own + total  # the sum of earlier samples
            counts = np.maximum(count + np.arange(len(own)), 1)
            apart = own - before / values_like(counts[:, None], X)
            if not count and not self.from_zero:
                apart, places = apart[1:], places[1:]
            t = previous.seen + places[:, None]
            found.append(apart * values_like(np.sqrt(t / (t + 1)), X))
        return xp.concat(found)

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return x·Λμ − ½ μ·Λμ."""
        columns = positions(np.searchsorted(self.classes, labels), X)
        return X @ self.model.weights[columns].T - self.model.shifts[columns]

    def state_to_save(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the sum, the scores and the number of samples."""
        model = self.model
        arrays = {"scatter": model.scatter, "weights": model.weights, "shifts": model.shifts}
        return arrays, {"seen": model.seen}

    def restored(self, memory: Memory, arrays: dict[str, Array], values: dict[str, Any]) -> Self:
        """Return the scorer with the saved state."""
        kept = (arrays[name] for name in ("weights", "shifts"))
        return self.holding(memory, StreamModel(memory.statistics, arrays["scatter"], int(values["seen"]), *kept))


def shrunk_scatter(memory: Memory) -> tuple[Array, int]:
    """Return n Σ of the n samples of the base session, and n.

    Σ is their covariance C around the class means after oracle approximating shrinkage (Chen, Wiesel, Eldar and
    Hero, 2010): (1 − ρ) C + ρ μ 1 with μ = tr C / d and, α being the mean of the squared entries of C,
    ρ = min(1, (α + μ²) / ((n + 1) (α − μ² / d))).
    """
    d, n = memory.base.n_features, int(memory.base.counts.sum())
    (scatter,) = pooled_scatter(memory, (slice(0, d),), None).base.matrices
    xp = namespace(scatter)
    diagonal = xp.linalg.diagonal(scatter)
    level = float(xp.sum(diagonal)) / d  # n μ
    squares = float(2 * xp.sum(xp.tril(scatter) ** 2) - xp.sum(diagonal**2)) / d**2  # n² α
    excess = squares - level**2 / d
    share = min(1.0, (squares + level**2) / ((n + 1) * excess)) if excess > 0 else 1.0
    scatter = (1 - share) * scatter
    add_to_diagonal(scatter, share * level)
    return scatter, n

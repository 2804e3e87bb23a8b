"""LoRanPAC: least squares on random features, with a truncated decomposition in place of the ridge.

Peng, Elenter, Agterberg, Ribeiro and Vidal, LoRanPAC: Low-rank Random Features and Pre-trained Models for Bridging
Theory and Practice in Continual Learning, 2025 (TSVD in its first version). H has a row φ(x) = max(0, x W) for
each sample, Y a one for its class. RanPAC solves YᵀH (HᵀH + λ1)⁻¹. Here, with H = V S Uᵀ,

    weights = YᵀH · U_k S_k⁻² U_kᵀ,   k = (1 − ζ) n,

minimize the squared error and the norm on the k largest singular values; a share ζ, a quarter, is dropped. A
session with rows H' continues from the kept part: S_k U_kᵀ and H' are stacked, and the k largest singular values
are kept again. The sums YᵀH are over all samples. So no sample is stored, and the split into sessions matters a
little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fiveshot.core import ClassStatistics, Memory
from fiveshot.core.arrays import (
    Array,
    as_numpy,
    at_least,
    chunks,
    column_gram,
    eigh,
    namespace,
    positions,
    row_gram,
    squared_lengths,
)
from fiveshot.core.draws import RandomFeatures, random_features
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.core.ranges import Allowed, Range
from fiveshot.core.scorers.scorer import Scorer, refuse_forgetting

SCORED_AT_ONCE = 1024  # samples mapped to random features at a time
ROUNDING = 1e-12  # relative to the largest squared singular value; smaller ones are rounding errors
TINIEST = 1e-300  # if all features are zero, the weights are, too


@dataclass(frozen=True, eq=False)
class TruncatedModel:
    """The kept part of all rows, in double precision, and the weights."""

    statistics: ClassStatistics
    feature_map: RandomFeatures
    factor: Array  # (k, M), orthogonal rows: S_k U_kᵀ
    sums: Array  # (n_classes, M): YᵀH
    weights: Array  # (n_classes, M)


@dataclass(eq=False)
class LoRanPACScorer(Scorer):
    """Least squares on random features over the largest singular values, kept from session to session.

    Parameters
    ----------
    n_projections : int
        Random features. The paper uses 100,000. Here there are as many as in RanPAC, so that the two methods
        differ only in the solution.
    truncation : float
        ζ, the share of the singular values that is dropped.
    random_state : int
        Seed of the random features, which are RanPAC's.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        The device to move arrays to; None leaves them where they are.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    >>> two = LoRanPACScorer(64).learn(rows, ["a", "a", "b", "b"])
    >>> three = two.learn(np.array([[-1.0, -1.1], [-1.1, -1.0]]), ["c", "c"])
    >>> three.classify(np.array([[0.2, 1.0], [-1.0, -1.0]])).tolist()
    ['a', 'c']
    """

    needs_samples = True
    ranges: ClassVar[Mapping[str, Allowed]] = {
        "n_projections": Range(1, whole=True, hint="the paper uses 100,000"),
        "truncation": Range(0, 1, hint="the paper drops 0.25"),
        "random_state": Range(whole=True, hint="for example 0"),
    }

    n_projections: int = 10_000
    _: KW_ONLY
    truncation: float = 0.25
    random_state: int = 0
    temperature: float = 1 / 16
    device: Any = None

    def derive(self, memory: Memory, X: Array, y: Labels, previous: TruncatedModel | None) -> TruncatedModel:
        """Return the weights of all classes."""
        statistics, xp = memory.statistics, namespace(X)
        if previous is None:
            seed = int(self.random_state)
            feature_map = random_features(X.shape[1], self.n_projections, seed=seed, like=X)
        else:
            feature_map = previous.feature_map
            refuse_forgetting(previous.statistics, statistics, "its samples are part of a decomposition")
        mapped = xp.astype(feature_map(X), xp.float64)
        rows = mapped if previous is None else xp.concat([previous.factor, mapped])
        share = 1 - self.truncation
        rank = max(1, round(share * min(int(statistics.counts.sum()), self.n_projections)))
        factor = largest_part(rows, rank) if len(y) or previous is None else previous.factor
        sums = self._sums(statistics, mapped, y, previous)
        # S_k⁻⁴, because both factors have S_k in them.
        weights = ((sums @ factor.T) / at_least(squared_lengths(factor) ** 2, TINIEST)) @ factor
        return TruncatedModel(statistics, feature_map, factor, sums, xp.astype(weights, X.dtype))

    def _sums(
        self, statistics: ClassStatistics, mapped: Array, y: Labels, previous: TruncatedModel | None
    ) -> Array:
        """Return Σ φ(x) of each class."""
        xp = namespace(mapped)
        known = previous.statistics.labels if previous is not None else statistics.labels[:0]
        found = []
        for label in python_labels(statistics.labels):
            own = xp.sum(mapped[positions(np.flatnonzero(y == label), mapped)], axis=0)
            before = np.flatnonzero(known == label)
            found.append(own + previous.sums[int(before[0])] if previous is not None and len(before) else own)
        return xp.stack(found)

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return the regression values of all classes."""
        model = self.model
        weights = model.weights[positions(np.searchsorted(self.classes, labels), X)]
        return namespace(X).concat([model.feature_map(part) @ weights.T for part in chunks(X, SCORED_AT_ONCE)])

    def state_to_save(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the kept part and the weights."""
        model = self.model
        names = ("factor", "sums", "weights")
        return {"projection": model.feature_map.projection} | {name: getattr(model, name) for name in names}, {}

    def restored(self, memory: Memory, arrays: dict[str, Array], values: dict[str, Any]) -> Self:
        """Return the scorer with the saved model."""
        kept = (arrays[name] for name in ("factor", "sums", "weights"))
        return self.holding(memory, TruncatedModel(memory.statistics, RandomFeatures(arrays["projection"]), *kept))


def largest_part(rows: Array, rank: int) -> Array:
    """Return S_k U_kᵀ of rows = V S Uᵀ, (k, M), for the largest singular values, at most ``rank`` of them.

    Computed from the eigenvalues of the smaller Gram matrix, in the precision of the rows.
    """
    wide = len(rows) <= rows.shape[1]
    values, vectors = eigh(row_gram(rows) if wide else column_gram(rows))
    kept = max(1, min(rank, int((as_numpy(values) > ROUNDING * float(values[-1])).sum())))
    if wide:
        return vectors[:, -kept:].T @ rows
    return namespace(rows).sqrt(at_least(values[-kept:], 0.0))[:, None] * vectors[:, -kept:].T

"""Statistics of classes that share one covariance: counts, means, and one pooled scatter.

A covariance of its own for every class takes width² numbers a class; with a million classes only the shared one
fits into a machine. It merges as exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fiveshot.errors import InputError
from fiveshot.scale.joined_means import JoinedMeans
from fiveshot.scale.packed import PackedStatistics
from fiveshot.statistics import NO_CLASSES, ClassStatistics, ClassSummary
from fiveshot.statistics.labels import Labels

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TiedStatistics:
    """Counts and means of classes, and the scatter of all samples about the means of their classes."""

    labels: Labels  # (C,), sorted
    counts: Integers  # (C,)
    means: Floats  # (C, d)
    scatter: Floats  # (d, d), float64

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def covariance(self) -> Floats:
        """The pooled covariance, scatter / Σ (n − 1), (d, d)."""
        pooled: Floats = self.scatter / max(1, int((self.counts - 1).sum()))
        return pooled

    def select(self, chosen: NDArray[np.bool_]) -> TiedStatistics:
        """Return the classes marked in ``chosen`` (C,), with the scatter of all."""
        return TiedStatistics(self.labels[chosen], self.counts[chosen], self.means[chosen], self.scatter)

    def dealt_out(self, *, seed: int) -> ClassStatistics:
        """Return statistics of each class whose scatters add up to the pooled one: what a tied head asks for.

        Which class has which part of it means nothing; it is turned at random first, so that every part is much
        alike, and forgetting a class takes its even share.
        """
        width = self.means.shape[1]
        values, vectors = np.linalg.eigh(self.scatter)
        turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))
        factor = (turn * np.sqrt(np.maximum(values, 0))) @ vectors.T  # factorᵀ · factor = scatter
        rows = torch.from_numpy(factor.astype(np.float32))
        ranks = np.bincount(np.arange(width) % len(self), minlength=len(self))
        if (ranks > np.minimum(self.counts, width)).any():
            raise InputError(
                f"{len(self)} classes of {self.counts.min()} samples at the least are too few to share one "
                "covariance; reduce with covariance='class'"
            )
        parts = torch.split(rows, ranks.tolist())
        means = torch.from_numpy(np.array(self.means, dtype=np.float32))
        summaries = (ClassSummary(*v) for v in zip(self.counts.tolist(), means, parts, strict=True))
        return ClassStatistics(self.labels, tuple(summaries))


def tied_statistics(vectors: Floats, labels: Labels) -> TiedStatistics:
    """Summarise a block of samples, (n, d) and (n,).

    >>> tied = tied_statistics(np.array([[1.0], [3.0], [9.0]]), np.array(["owl", "owl", "wren"]))
    >>> tied.means.tolist(), tied.scatter.tolist()
    ([[2.0], [9.0]], [[2.0]])
    """
    if not len(labels):
        return TiedStatistics(NO_CLASSES.labels, np.zeros(0, np.int64), vectors, np.zeros((vectors.shape[1],) * 2))
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    ordered = vectors[np.argsort(codes, kind="stable")]
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(ordered, starts, axis=0, dtype=np.float64) / counts[:, None]
    means = means.astype(vectors.dtype)
    centred = ordered - np.repeat(means, counts, axis=0)
    return TiedStatistics(classes, counts, means, (centred.T @ centred).astype(np.float64))


def merge_tied(parts: Sequence[TiedStatistics]) -> TiedStatistics:
    """Return the statistics of all samples together, exactly, whatever blocks they came in."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    joined = JoinedMeans([part.labels for part in filled], width=filled[0].means.shape[1])
    scatter = np.zeros_like(filled[0].scatter)
    for part in filled:
        _, between, _ = joined.add(part.labels, part.counts, part.means)
        scatter += part.scatter + between.T @ between
    return TiedStatistics(joined.labels, joined.counts, joined.means.astype(filled[0].means.dtype), scatter)


def tie(packed: PackedStatistics) -> TiedStatistics:
    """Return what statistics with a scatter for each class say when their scatters are added up."""
    factors = packed.factors.astype(np.float64)
    return TiedStatistics(packed.labels, packed.counts, packed.means, factors.T @ factors)

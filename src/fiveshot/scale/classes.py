"""Statistics of classes as arrays that travel and merge exactly: a covariance for each class, or one for all.

They hold the same numbers as ``fiveshot.core.ClassStatistics``, which has one object for each class. A
cluster sends thousands of classes at a time, and arrays travel without being copied. A covariance for each class
takes width² numbers a class; with a million classes only the shared one fits into a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import NO_CLASSES, ClassStatistics, class_statistics
from fiveshot.core.labels import Labels, python_labels, refuse_other_kind
from fiveshot.core.statistics import compress, statistics_arrays, statistics_from_arrays
from fiveshot.errors import InputError

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PackedStatistics:
    """Counts, means and scatter factors of classes, in the order of their labels."""

    labels: Labels  # (C,), sorted
    counts: Integers  # (C,)
    means: Floats  # (C, d)
    ranks: Integers  # (C,): rows of each class's factor
    factors: Floats  # (Σ ranks, d): the factors one below the other

    def __len__(self) -> int:
        return len(self.labels)


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

    def split(self, *, seed: int) -> ClassStatistics:
        """Return statistics of each class whose scatters add up to the pooled one: what a tied head needs.

        Which class has which part of the scatter means nothing. The scatter is rotated at random first, so that
        the parts are much alike and forgetting a class takes its even share.
        """
        width = self.means.shape[1]
        values, vectors = np.linalg.eigh(self.scatter)
        turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))
        factor = (turn * np.sqrt(np.maximum(values, 0))) @ vectors.T  # factorᵀ · factor = scatter
        ranks = np.bincount(np.arange(width) % len(self), minlength=len(self))
        if (ranks > np.minimum(self.counts, width)).any():
            raise InputError(
                f"{len(self)} classes of at least {self.counts.min()} samples are too few to share one covariance",
                hint="reduce with covariance='class'",
                code="too_few_classes",
            )
        factors = factor.astype(np.float32)
        return unpack(PackedStatistics(self.labels, self.counts, self.means.astype(np.float32), ranks, factors))


def pack(statistics: ClassStatistics) -> PackedStatistics:
    """Return class statistics as arrays.

    >>> packed = pack(class_statistics(np.eye(3), ["owl", "owl", "wren"]))
    >>> packed.labels.tolist(), packed.counts.tolist(), packed.ranks.tolist()
    (['owl', 'wren'], [2, 1], [1, 0])
    """
    if not len(statistics):
        return NOTHING
    return PackedStatistics(statistics.labels, **statistics_arrays(statistics))


def unpack(packed: PackedStatistics) -> ClassStatistics:
    """Return arrays as class statistics, which share their memory."""
    return statistics_from_arrays(python_labels(packed.labels), vars(packed))


def packed_statistics(vectors: Floats, labels: Labels) -> PackedStatistics:
    """Summarize the classes of a block of samples, (n, d) and (n,)."""
    return pack(class_statistics(vectors, labels))


def tied_statistics(vectors: Floats, labels: Labels) -> TiedStatistics:
    """Summarize a block of samples, (n, d) and (n,).

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
    centered = ordered - np.repeat(means, counts, axis=0)
    return TiedStatistics(classes, counts, means, (centered.T @ centered).astype(np.float64))


def merge_packed(parts: Sequence[PackedStatistics]) -> PackedStatistics:
    """Return the statistics of all samples together, exactly, whatever blocks they came in.

    >>> blocks = [packed_statistics(np.array([[x]]), np.array(["owl"])) for x in (1.0, 2.0, 6.0)]
    >>> merged = merge_packed(blocks)
    >>> float(merged.means[0, 0]), round(float(merged.factors[0, 0] ** 2), 6)
    (3.0, 14.0)
    """
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else NOTHING
    joined = JoinedMeans([part.labels for part in parts], width=parts[0].means.shape[1])
    rows, owners = [], []
    for part in parts:
        own, between, whose = joined.add(part.labels, part.counts, part.means)
        rows += [part.factors, between.astype(part.factors.dtype)]
        owners += [np.repeat(own, part.ranks), whose]
    factors, ranks = _by_owner(np.concatenate(rows), np.concatenate(owners), len(joined.labels))
    return PackedStatistics(
        joined.labels, joined.counts, joined.means.astype(parts[0].means.dtype), ranks, factors
    )


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
    """Return statistics with a scatter for each class as ones with the sum of these scatters."""
    factors = packed.factors.astype(np.float64)
    return TiedStatistics(packed.labels, packed.counts, packed.means, factors.T @ factors)


class JoinedMeans:
    """Counts and means of many classes, joined part by part, and the scatter that lies between the parts.

    The formula is that of Chan, Golub and LeVeque; sums are kept in double precision.
    """

    def __init__(self, labels: Sequence[Labels], *, width: int) -> None:
        """Prepare for parts with these labels, each with at least one, and vectors of this ``width``."""
        for given in labels[1:]:
            refuse_other_kind(labels[0], given)
        self.labels: Labels = np.unique(np.concatenate(labels))  # (C,)
        self.counts: Integers = np.zeros(len(self.labels), np.int64)
        self.means: Floats = np.zeros((len(self.labels), width))

    def add(self, labels: Labels, counts: Integers, means: Floats) -> tuple[Integers, Floats, Integers]:
        """Join one part; return its classes' positions, rows of scatter between it and those before, and whose."""
        if means.shape[1] != self.means.shape[1]:
            raise InputError(
                f"cannot merge statistics of {self.means.shape[1]} and of {means.shape[1]} features",
                hint="both must come from the same backbone",
                code="other_width",
            )
        own = np.searchsorted(self.labels, labels).astype(np.int64)
        before = self.counts[own]
        total = before + counts
        difference = means - self.means[own]  # (c, d)
        self.means[own] += (counts / total)[:, None] * difference
        self.counts[own] = total
        known = before > 0
        # Scatters add up, and with them n m / (n + m) δδᵀ, where δ is the difference of the means.
        weight = np.sqrt(before[known] / total[known] * counts[known])
        return own, weight[:, None] * difference[known], own[known]


def _by_owner(rows: Floats, owners: Integers, n_classes: int) -> tuple[Floats, Integers]:
    """Return the rows class by class, at most as many as there are columns for each, and how many each has."""
    ranks = np.bincount(owners, minlength=n_classes)
    rows = rows[np.argsort(owners, kind="stable")]
    if ranks.max() <= rows.shape[1]:
        return rows, ranks
    split = np.split(rows, np.cumsum(ranks)[:-1])
    compressed = [compress(part) for part in split]
    return np.concatenate(compressed), np.minimum(ranks, rows.shape[1])


NOTHING = PackedStatistics(
    NO_CLASSES.labels, np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros(0, np.int64), np.zeros((0, 0))
)

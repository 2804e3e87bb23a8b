"""Class statistics in five arrays: what blocks of samples reduce to, and how such reductions are merged.

The same numbers as ``fiveshot.statistics.ClassStatistics``, which holds one object for each class; a cluster
sends thousands of classes at a time, and arrays travel without being copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fiveshot.scale.joined_means import JoinedMeans
from fiveshot.statistics import NO_CLASSES, ClassStatistics, ClassSummary, class_statistics
from fiveshot.statistics.factor import compress
from fiveshot.statistics.labels import Labels

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

    @property
    def nbytes(self) -> int:
        """Memory the arrays take."""
        return sum(array.nbytes for array in (self.labels, self.counts, self.means, self.ranks, self.factors))

    def select(self, chosen: NDArray[np.bool_]) -> PackedStatistics:
        """Return the statistics of the classes marked in ``chosen`` (C,)."""
        return PackedStatistics(
            self.labels[chosen],
            self.counts[chosen],
            self.means[chosen],
            self.ranks[chosen],
            self.factors[np.repeat(chosen, self.ranks)],
        )


def pack(statistics: ClassStatistics) -> PackedStatistics:
    """Return class statistics as arrays.

    >>> packed = pack(class_statistics(torch.eye(3), ["owl", "owl", "wren"]))
    >>> packed.labels.tolist(), packed.counts.tolist(), packed.ranks.tolist()
    (['owl', 'wren'], [2, 1], [1, 0])
    """
    if not len(statistics):
        return NOTHING
    return PackedStatistics(
        statistics.labels,
        statistics.counts.numpy(),
        statistics.means.cpu().numpy(),
        np.array([len(summary.factor) for summary in statistics.summaries], dtype=np.int64),
        torch.cat([summary.factor for summary in statistics.summaries]).cpu().numpy(),
    )


def unpack(packed: PackedStatistics) -> ClassStatistics:
    """Return arrays as class statistics; their memory is shared where it may be written to."""
    if not len(packed):
        return NO_CLASSES
    means, factors = (_tensor(array) for array in (packed.means, packed.factors))
    parts = torch.split(factors, packed.ranks.tolist())
    summaries = (ClassSummary(*values) for values in zip(packed.counts.tolist(), means, parts, strict=True))
    return ClassStatistics(packed.labels, tuple(summaries))


def packed_statistics(vectors: Floats, labels: Labels) -> PackedStatistics:
    """Summarise the classes of a block of samples, (n, d) and (n,)."""
    return pack(class_statistics(_tensor(vectors), labels))


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
        place, between, whose = joined.add(part.labels, part.counts, part.means)
        rows += [part.factors, between.astype(part.factors.dtype)]
        owners += [np.repeat(place, part.ranks), whose]
    factors, ranks = _by_owner(np.concatenate(rows), np.concatenate(owners), len(joined.labels))
    return PackedStatistics(
        joined.labels, joined.counts, joined.means.astype(parts[0].means.dtype), ranks, factors
    )


def _by_owner(rows: Floats, owners: Integers, n_classes: int) -> tuple[Floats, Integers]:
    """Return the rows class by class, no more than there are columns for each, and how many each has."""
    ranks = np.bincount(owners, minlength=n_classes)
    rows = rows[np.argsort(owners, kind="stable")]
    if ranks.max() <= rows.shape[1]:
        return rows, ranks
    split = np.split(rows, np.cumsum(ranks)[:-1])
    compressed = [compress(torch.from_numpy(part)).numpy() for part in split]
    return np.concatenate(compressed), np.minimum(ranks, rows.shape[1])


def _tensor(array: Floats) -> torch.Tensor:
    # What comes from a cluster's shared memory must not be written to, and torch warns about such arrays.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


NOTHING = PackedStatistics(
    NO_CLASSES.labels, np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros(0, np.int64), np.zeros((0, 0))
)

"""The data for a tied covariance: a fixed space, and the sum of the scatter within classes in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fiveshot.core.arrays import (
    Array,
    add_gram_,
    at_least,
    beside,
    grouped,
    namespace,
    parts,
    positions,
    unit_rows,
    zeros,
)
from fiveshot.core.draws import RandomFeatures, random_features
from fiveshot.core.labels import Labels
from fiveshot.core.memory import Memory
from fiveshot.core.statistics import ClassStatistics, ClassSummary, summarize

ROWS_AT_ONCE = 2048  # factor rows per symmetric update; limits the memory
TAILS = 16.0  # strength of the shortening, relative to the distance of the mean from the median
BY_CHANCE = 3.0  # largest distance of mean and median of symmetric values, in deviations / √d
LEAST_TAILS = 1e-3  # does not change values
EXACT_GRID = 2.0**20  # rows in float32 are rounded to 1 / EXACT_GRID for exact sums


@dataclass(frozen=True, eq=False)
class Embedding:
    """z = (x − c) / ‖x − c‖, followed by max(0, zW). The base session fixes it, so statistics stay valid.

    Without a base session there is no center, and there are too few samples for the covariance of many random
    features: then c = 0, W is empty, and long tails are shortened first.
    """

    center: Array  # (d,)
    projection: RandomFeatures | None
    shortened: bool = False

    def __call__(self, X: Array) -> Array:
        """Map features, (n, d) → (n, d + M)."""
        return namespace(X).concat(self.parts(X), axis=1)

    def parts(self, X: Array) -> list[Array]:
        """Map features space by space, (n, d) → (n, d) and (n, M)."""
        unit = self.unit(X)
        return [unit] if self.projection is None else [unit, self.projection(unit)]

    def unit(self, X: Array) -> Array:
        """Map features to the first space only, (n, d) → (n, d)."""
        return unit_rows((shortened(X) if self.shortened else X) - self.center)

    def beside(self, like: Array) -> Embedding:
        """Return the embedding in the library and on the device of an array."""
        center, drawn = beside(self.center, like), self.projection
        if center is self.center:
            return self
        moved = None if drawn is None else RandomFeatures(beside(drawn.projection, like))
        return Embedding(center, moved, self.shortened)

    @property
    def n_features(self) -> int:
        """Number of input features, d."""
        return len(self.center)

    @property
    def n_random(self) -> int:
        """Number of random features, M."""
        return 0 if self.projection is None else int(self.projection.projection.shape[1])

    @property
    def spaces(self) -> tuple[slice, ...]:
        """The columns of each space: the features, then the random features if any."""
        d, width = self.n_features, self.n_random
        return (slice(0, d), slice(d, d + width)) if width else (slice(0, d),)


def make_embedding(center: Array, n_random: int, *, seed: int, shortened: bool) -> Embedding:
    """Return the embedding around a center, with this number of random features."""
    drawn = random_features(len(center), n_random, seed=seed, like=center) if n_random else None
    return Embedding(center, drawn, shortened)


def shortened(rows: Array) -> Array:
    """Return rows with shorter tails: asinh(k x) of each value, where k follows from the row.

    Averaged ReLU features are never negative and have one long tail, which a few samples describe badly. Then the
    mean is above the median. Class tokens are symmetric and are not changed.
    """
    xp, width = namespace(rows), rows.shape[-1]
    scaled = width**0.5 * unit_rows(rows)
    skew = xp.mean(scaled, axis=-1) - xp.sort(scaled, axis=-1)[..., width // 2]
    return xp.asinh(at_least(TAILS * (skew - BY_CHANCE / width**0.5), LEAST_TAILS)[..., None] * scaled)


@dataclass(frozen=True, eq=False)
class PooledScatter:
    """Sums over the classes of a memory, one per space, and their degrees of freedom."""

    memory: Memory
    base: Scatter
    new: Scatter


@dataclass(frozen=True, eq=False)
class Scatter:
    """Scatter within classes, one matrix per space, and its degrees of freedom."""

    matrices: tuple[Array, ...]  # (d, d) each, in the lower triangle
    dof: int  # Σ (n − 1)

    def add(self, summaries: Sequence[ClassSummary], spaces: Sequence[slice]) -> Scatter:
        """Add classes."""
        if not summaries:
            return self
        xp = namespace(*self.matrices)
        matrices = tuple(xp.asarray(matrix, copy=True) for matrix in self.matrices)
        factors = (summary.factor for summary in summaries if len(summary.factor))
        for group in grouped(factors, len, ROWS_AT_ONCE):
            rows = xp.concat(group)
            if rows.dtype != matrices[0].dtype:
                rows = xp.round(xp.astype(rows, matrices[0].dtype) * EXACT_GRID) / EXACT_GRID
            for matrix, part in zip(matrices, spaces, strict=True):
                add_gram_(matrix, rows[:, part])
        return Scatter(matrices, self.dof + sum(summary.count - 1 for summary in summaries))


def no_scatter(spaces: Sequence[slice], like: Array) -> Scatter:
    """Return the sums for no classes."""
    return Scatter(tuple(zeros((part.stop - part.start,) * 2, like) for part in spaces), 0)


def summed_classes(
    X: Array, y: Labels, embed: Callable[[Array], Array], spaces: Sequence[slice]
) -> tuple[ClassStatistics, Scatter]:
    """Return statistics of classes without factors, and the sum of their scatter with no degrees of freedom.

    A few classes are embedded at a time, so the memory does not grow with the samples.
    """
    labels, codes = np.unique(y, return_inverse=True)
    by_class = parts(np.argsort(codes, kind="stable"), np.bincount(codes).tolist())
    total, kept = no_scatter(spaces, X), list[ClassSummary]()
    for group in grouped(by_class, len, ROWS_AT_ONCE):
        found = [summarize(embed(X[positions(rows, X)])) for rows in group]
        total = total.add(found, spaces)
        # A copy: a view would keep the whole array in memory.
        kept += [
            ClassSummary(one.count, one.mean, namespace(X).asarray(one.factor[:0], copy=True)) for one in found
        ]
    return ClassStatistics(labels, tuple(kept)), replace(total, dof=0)


def pooled_scatter(
    memory: Memory, spaces: Sequence[slice], previous: PooledScatter | None, folded: Scatter | None = None
) -> PooledScatter:
    """Sum the scatter within base classes and within new classes.

    ``folded`` is the part of the base that is not in the summaries of its classes.

    If a session only added new classes, their scatter is added to the sum. Otherwise (a forgotten class, more
    samples of a known one) the sum is computed again, because subtracting would leave rounding errors of the
    forgotten class.

    A model must not depend on the order of its classes. So the scatter of new classes in float32 is summed in
    float64: products of numbers on a grid of 2⁻²⁰ are on a grid of 2⁻⁴⁰, and sums of these up to 2¹³ are exact.
    """
    like = memory.statistics.means
    xp = namespace(like)
    nothing = no_scatter(spaces, like)
    none_new = Scatter(tuple(xp.astype(matrix, xp.float64) for matrix in nothing.matrices), 0)
    same_base = previous is not None and previous.memory.base is memory.base
    base = previous.base if previous and same_base else (folded or nothing).add(memory.base.summaries, spaces)
    added = _added(memory.new, previous.memory.new if previous else None)
    if previous is None or added is None:
        return PooledScatter(memory, base, none_new.add(memory.new.summaries, spaces))
    return PooledScatter(memory, base, previous.new.add(added, spaces))


def _added(now: ClassStatistics, before: ClassStatistics | None) -> list[ClassSummary] | None:
    """Return the summaries added since then, or None if others have changed or are missing."""
    known = {id(summary) for summary in before.summaries} if before is not None else set()
    if not known <= {id(summary) for summary in now.summaries}:
        return None
    return [summary for summary in now.summaries if id(summary) not in known]

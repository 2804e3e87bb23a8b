"""The scatter within classes, summed over them: what a tied covariance is estimated from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fiveshot.heads.memory import Memory
from fiveshot.heads.ridge import add_gram_
from fiveshot.statistics import ClassStatistics, ClassSummary

ROWS_AT_ONCE = 2048  # factor rows per symmetric update, which bounds the memory


@dataclass(frozen=True, eq=False)
class PooledScatter:
    """Sums over the classes of a memory, one per space, and their degrees of freedom."""

    memory: Memory
    base: Scatter
    new: Scatter


@dataclass(frozen=True, eq=False)
class Scatter:
    """Scatter within classes, one matrix per space, and its degrees of freedom."""

    matrices: tuple[Tensor, ...]  # (d, d) each, in the lower triangle
    dof: int  # Σ (n − 1)

    def add(self, summaries: Sequence[ClassSummary], spaces: Sequence[slice]) -> Scatter:
        """Return the sum with more classes."""
        if not summaries:
            return self
        matrices = tuple(matrix.clone() for matrix in self.matrices)
        for rows in _stacked(summaries):
            for matrix, part in zip(matrices, spaces, strict=True):
                add_gram_(matrix, rows[:, part])
        return Scatter(matrices, self.dof + sum(summary.count - 1 for summary in summaries))


def pooled_scatter(memory: Memory, spaces: Sequence[slice], previous: PooledScatter | None) -> PooledScatter:
    """Sum the scatter of base classes, and of new ones.

    After a session that only brought new classes, theirs is added to the sum.
    Anything else (a forgotten class, more samples of a known one) sums anew: subtracting would leave rounding of
    what is to be forgotten.
    """
    like = memory.statistics.means
    nothing = Scatter(tuple(like.new_zeros(part.stop - part.start, part.stop - part.start) for part in spaces), 0)
    same_base = previous is not None and previous.memory.base is memory.base
    base = previous.base if previous and same_base else nothing.add(memory.base.summaries, spaces)
    added = _added(memory.new, previous.memory.new if previous else None)
    if previous is None or added is None:
        return PooledScatter(memory, base, nothing.add(memory.new.summaries, spaces))
    return PooledScatter(memory, base, previous.new.add(added, spaces))


def _added(now: ClassStatistics, before: ClassStatistics | None) -> list[ClassSummary] | None:
    """Return the summaries that came since, or None where others changed or are gone."""
    known = {id(summary) for summary in before.summaries} if before is not None else set()
    if not known <= {id(summary) for summary in now.summaries}:
        return None
    return [summary for summary in now.summaries if id(summary) not in known]


def _stacked(summaries: Iterable[ClassSummary]) -> Iterable[Tensor]:
    group: list[Tensor] = []
    total = 0
    for summary in summaries:
        group.append(summary.factor)
        total += len(summary.factor)
        if total >= ROWS_AT_ONCE:
            yield torch.cat(group)
            group, total = [], 0
    if total:
        yield torch.cat(group)

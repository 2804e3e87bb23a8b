"""The rows a ridge head regresses on: features kept while they are few, sums of them when they are many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fiveshot.errors import InputError
from fiveshot.heads.ridge import ROWS_AT_ONCE, FeatureMap, add_gram_
from fiveshot.statistics.labels import Label


@dataclass(frozen=True, eq=False)
class RowBlock:
    """The rows of one class: how many, what they depend on, and how to get them when they are needed."""

    label: Label
    token: object  # the same object means the same rows
    count: int
    weight: float  # of each row in the sums
    rows: Callable[[], Tensor]  # () → (count, d)


def given(rows: Tensor) -> Callable[[], Tensor]:
    """Return the way to get rows that are at hand."""
    return lambda: rows


def mapped_rows(
    blocks: Sequence[RowBlock], feature_map: FeatureMap, like: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the mapped and weighted rows of some blocks, (n, M), and the part of each; ``like`` has M columns."""
    counts = [block.count for block in blocks]
    rows = like.new_empty(sum(counts), like.shape[1])  # one piece, which goes back to the system as a whole
    parts: tuple[Tensor, ...] = torch.split(rows, counts)
    for block, part in zip(blocks, parts, strict=True):
        feature_map(block.rows() * block.weight**0.5, out=part)  # homogeneous: this weights the mapped row
    return rows, parts


@dataclass(frozen=True, eq=False)
class GramSums:
    """G = Σ w φφᵀ (lower triangle) and, per class, c = Σ w φ, with the blocks that are in them."""

    gram: Tensor  # (M, M)
    targets: dict[Label, Tensor]  # (M,) each
    tokens: dict[Label, object] = field(default_factory=dict)

    def copy(self) -> GramSums:
        """Return sums that can be added to without changing these."""
        return GramSums(self.gram.clone(), dict(self.targets), dict(self.tokens))

    def add_(self, blocks: Iterable[RowBlock], feature_map: FeatureMap) -> None:
        """Add blocks in place, several at a time."""
        for group in _batched(blocks, ROWS_AT_ONCE):
            rows, parts = mapped_rows(group, feature_map, self.gram.new_empty(0, len(self.gram)))
            for block, part in zip(group, parts, strict=True):
                own = part.sum(dim=0).mul_(block.weight**0.5)
                self.targets[block.label] = self.targets.get(block.label, 0) + own
                self.tokens[block.label] = block.token
            add_gram_(self.gram, rows)


@dataclass(eq=False)
class GramCache:
    """Running sums that one model hands to the next. Taken out while they change: a failure leaves none."""

    sums: GramSums | None = None
    start: GramSums | None = None  # the folded sums they were started from

    def take(self, blocks: Iterable[RowBlock], start: GramSums | None) -> GramSums | None:
        """Return the sums and empty the cache, if all that is in them is still wanted; else nothing."""
        sums, self.sums = self.sums, None
        if sums is None or self.start is not start:
            return None
        wanted = {block.label: block.token for block in blocks}
        still = all(wanted.get(label) is token for label, token in sums.tokens.items())
        return sums if still else None


@dataclass(frozen=True, eq=False)
class Evidence:
    """Real features of the classes that are not sampled.

    Kept as they are while they are fewer than the random features (then they take less memory than their Gram
    matrix, and any class can be taken out exactly); folded into one sum from then on.
    """

    rows: dict[Label, Tensor] = field(default_factory=dict)  # (n_c, d) each
    folded: GramSums | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows kept."""
        return sum(len(rows) for rows in self.rows.values())

    def add(self, label: Label, rows: Tensor) -> Evidence:
        """Return the evidence with more rows of a class."""
        known = self.rows.get(label)
        joined = rows if known is None else torch.cat([known, rows])
        return replace(self, rows={**self.rows, label: joined})

    def without(self, labels: set[Label]) -> Evidence:
        """Return the evidence that never had these classes; impossible for rows that are part of a sum."""
        summed = labels & set(self.folded.targets if self.folded else ())
        if summed:
            raise InputError(
                f"cannot forget {min(summed, key=str)!r}: its features are part of a sum over more samples than "
                "there are random features; fit a new head without it, or raise n_projections"
            )
        return replace(self, rows={label: rows for label, rows in self.rows.items() if label not in labels})

    def fold(self, weight: Callable[[int], float], feature_map: FeatureMap) -> Evidence:
        """Return the evidence with all rows summed; ``weight`` tells a row's weight from its class's count."""
        sums = self.sums(feature_map)
        blocks = [
            RowBlock(label, None, len(rows), weight(len(rows)), given(rows))
            for label, rows in sorted(self.rows.items())
        ]
        sums.add_(blocks, feature_map)
        sums.tokens.clear()  # they are there for good; what is added later is told apart by its token
        return Evidence({}, sums)

    def sums(self, feature_map: FeatureMap) -> GramSums:
        """Return sums to add to: a copy of what is folded, or zero."""
        if self.folded is not None:
            return self.folded.copy()
        sample = feature_map(next(iter(self.rows.values()))[:1])
        width = sample.shape[1]
        return GramSums(sample.new_zeros(width, width), {})


def _batched(blocks: Iterable[RowBlock], rows_at_once: int) -> Iterable[list[RowBlock]]:
    group: list[RowBlock] = []
    for block in blocks:
        for part in _split(block, rows_at_once):
            if group and sum(b.count for b in group) + part.count > rows_at_once:
                yield group
                group = []
            group.append(part)
    if group:
        yield group


def _split(block: RowBlock, rows_at_once: int) -> list[RowBlock]:
    if block.count <= rows_at_once:
        return [block]
    parts: tuple[Tensor, ...] = torch.split(block.rows(), rows_at_once)
    return [replace(block, count=len(part), rows=given(part)) for part in parts]

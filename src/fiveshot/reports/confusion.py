"""Confusion after the last session, by class or, for many classes, by session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fiveshot.benchmark import RunRecord

MOST_GROUPS = 40


@dataclass(frozen=True)
class ClassGroup:
    """Classes that share a row and a column of the matrix."""

    name: str
    classes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """How often images of a group were taken for one of each group: shares, every row sums to 1."""

    kind: str  # "class", "session" or "sessions"
    groups: tuple[ClassGroup, ...]
    shares: NDArray[np.float64]  # (n_groups, n_groups), true by predicted; NaN without test images


def confusion_matrix(records: Sequence[RunRecord]) -> ConfusionMatrix:
    """Return the confusion after the last session, over all runs together (they differ in their seed)."""
    first = records[0]
    kind, groups = class_groups(first.session_classes, first.class_names)
    place = np.full(len(first.class_names), -1)
    for number, group in enumerate(groups):
        place[list(group.classes)] = number
    counts = np.zeros((len(groups), len(groups)))
    for record in records:
        last = record.predictions[-1]
        tested = last >= 0
        np.add.at(counts, (place[record.y_true[tested]], place[last[tested]]), 1)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)
    return ConfusionMatrix(kind, groups, shares)


def class_groups(
    session_classes: Sequence[Sequence[int]], class_names: Sequence[str], most: int = MOST_GROUPS
) -> tuple[str, tuple[ClassGroup, ...]]:
    """Return the finest of classes, sessions and runs of sessions that makes at most so many groups.

    >>> kind, groups = class_groups([[2, 0], [1]], ["ani", "rook", "wren"], most=2)
    >>> kind, [(group.name, group.classes) for group in groups]
    ('session', [('base', (2, 0)), ('1', (1,))])
    """
    if sum(map(len, session_classes)) <= most:
        ordered = [label for classes in session_classes for label in classes]
        return "class", tuple(ClassGroup(class_names[label], (label,)) for label in ordered)
    if len(session_classes) <= most:
        return "session", tuple(_group(n, n, session_classes) for n in range(len(session_classes)))
    edges = np.linspace(1, len(session_classes), most).round().astype(int).tolist()
    later = [_group(a, b - 1, session_classes) for a, b in pairwise(edges)]
    return "sessions", (_group(0, 0, session_classes), *later)


def _group(first: int, last: int, session_classes: Sequence[Sequence[int]]) -> ClassGroup:
    classes = tuple(label for part in session_classes[first : last + 1] for label in part)
    name = "base" if last == 0 else str(first) if first == last else f"{first}–{last}"
    return ClassGroup(name, classes)

"""Merge many things a few at a time, as they come: the number held at once grows with the logarithm of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from fiveshot.errors import InputError

Item = TypeVar("Item")


class MergeTree(Generic[Item]):
    """Merges every ``arity`` items of a level into one of the next.

    An item is a value, or a promise of one: then ``merge`` starts the work elsewhere and returns another promise.

    >>> tree = MergeTree(sum, arity=3)
    >>> for number in range(10):
    ...     tree.add(number)
    >>> tree.result(), tree.held
    (45, 1)
    """

    def __init__(self, merge: Callable[[Sequence[Item]], Item], *, arity: int = 4) -> None:
        if arity < 2:
            raise InputError(f"a tree merges at least 2 items at a time, got arity={arity}")
        self._merge = merge
        self._arity = arity
        self._levels: list[list[Item]] = []

    @property
    def held(self) -> int:
        """Number of items that wait to be merged: at most arity − 1 on each level."""
        return sum(map(len, self._levels))

    def add(self, item: Item, *, level: int = 0) -> None:
        """Take one item; full levels are merged at once."""
        while len(self._levels) <= level:
            self._levels.append([])
        waiting = self._levels[level]
        waiting.append(item)
        if len(waiting) == self._arity:
            self._levels[level] = []
            self.add(self._merge(waiting), level=level + 1)

    def result(self) -> Item | None:
        """Merge what is left, the small ones first, and return it; None where nothing was added."""
        rest: list[Item] = []
        for waiting in self._levels:
            rest += waiting
            while len(rest) > 1:
                rest = [self._merge(rest[: self._arity]), *rest[self._arity :]]
        self._levels = [rest] if rest else []
        return rest[0] if rest else None

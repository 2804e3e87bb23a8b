"""Reduce blocks of vectors on their nodes, and merge the reductions in trees, all as Ray tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from threadpoolctl import threadpool_limits

from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.features import TRAIN
from fiveshot.scale._pipeline import Batch, concatenate, good_rows, numpy_batch, tally
from fiveshot.scale._reductions import Reduction, Reductions, reduce_rows
from fiveshot.scale.cluster import Tally

Item = TypeVar("Item")
Load = Callable[[Any], Batch]  # from a block, or the name of one, to its rows


class MergeTree(Generic[Item]):
    """Merges every ``arity`` items of a level into one item of the next level, as they arrive.

    So the number of held items grows with the logarithm of all items. An item is a value or a promise of one. With
    promises, ``merge`` starts the work elsewhere and returns another promise.

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
        """Merge the remaining items, small ones first, and return the result; None if nothing was added."""
        rest: list[Item] = []
        for waiting in self._levels:
            rest += waiting
            while len(rest) > 1:
                rest = [self._merge(rest[: self._arity]), *rest[self._arity :]]
        self._levels = [rest] if rest else []
        return rest[0] if rest else None


class BlockReducer:
    """Takes references to blocks, or their names, and returns one reduction of each kind at the end.

    A block's memory is freed as soon as it is reduced. At most ``at_once`` tasks run, so no more processes are
    started. If blocks arrive faster than the cluster reduces them, ``add`` waits, and so does the pipeline.
    """

    def __init__(
        self,
        reductions: Reductions,
        *,
        at_once: int,
        task_cpus: float,
        group_bytes: int,
        load: Load = numpy_batch,
    ) -> None:
        self._ray = import_extra("ray", extra="ray")
        self._load, self._reductions = load, reductions
        self._group_bytes, self._at_once = group_bytes, at_once
        buckets = sum(reduction.buckets for reduction in reductions.values())
        # Both are tasks of one function, so that a process with its imports done can run both kinds.
        task = self._ray.remote(num_cpus=task_cpus, max_retries=-1)(call)
        self._reduce = task.options(num_returns=1 + buckets, name="reduce")
        self._merge = task.options(name="merge")
        self._trees = {
            name: [MergeTree(partial(self._merged, reduction)) for _ in range(reduction.buckets)]
            for name, reduction in reductions.items()
        }
        self._group: list[Any] = []
        self._size = 0
        self._running: dict[Any, bool] = {}  # promise of a task, and whether its result is a tally
        self.tally = Tally()

    def add(self, block: Any, size: int) -> None:
        """Take a block of ``size`` bytes."""
        self._group.append(block)
        self._size += size
        if self._size >= self._group_bytes:
            self._start()

    def reduce(self, dataset: Any, progress: Callable[[Tally, int], None]) -> dict[str, Any]:
        """Return the reductions of a Ray dataset; ``progress`` gets the tally and the number of rows so far."""
        arrived = 0
        for bundle in dataset.iter_internal_ref_bundles():
            for entry in bundle.blocks:
                if entry.metadata.num_rows:
                    self.add(entry.ref, entry.metadata.size_bytes)
                    arrived += entry.metadata.num_rows
                    progress(self.tally, arrived)
        values = self.result()
        progress(self.tally, self.tally.images)
        return values

    def result(self) -> dict[str, Any]:
        """Wait for everything and return the reductions by name."""
        if self._group:
            self._start()
        values = {}
        for name, reduction in self._reductions.items():
            parts = self._ray.get([part for tree in self._trees[name] if (part := tree.result()) is not None])
            values[name] = reduction.merge(parts) if parts else None
        self._wait(until=0)
        return values

    def _start(self) -> None:
        self._wait(until=self._at_once - 1)
        done, *parts = self._reduce.remote(reduce_blocks, self._load, self._reductions, *self._group)
        self._group, self._size = [], 0
        self._running[done] = True
        trees = (tree for trees in self._trees.values() for tree in trees)
        for tree, part in zip(trees, parts, strict=True):
            tree.add(part)

    def _merged(self, reduction: Reduction, parts: Any) -> Any:
        self._wait(until=self._at_once - 1)
        promise = self._merge.remote(merge_parts, reduction, *parts)
        self._running[promise] = False
        return promise

    def _wait(self, *, until: int) -> None:
        """Wait until at most ``until`` tasks run, and release the promises of finished ones."""
        while len(self._running) > until:
            (ready,), _ = self._ray.wait(list(self._running), num_returns=1, fetch_local=False)
            if self._running.pop(ready):
                self.tally += self._ray.get(ready)


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function."""
    return function(*arguments)


def reduce_blocks(load: Load, reductions: Reductions, *blocks: Any) -> list[Any]:
    """Return the tally of the blocks' images, then every reduction of every bucket."""
    began = time.perf_counter()
    with threadpool_limits(1):  # there are as many tasks as cores
        batch = concatenate([load(block) for block in blocks])
        rows = good_rows(batch, splits=(TRAIN,))
        parts = [part for reduction in reductions.values() for part in reduce_rows(reduction, rows)]
    return [tally(batch) + Tally(seconds={"reduce": time.perf_counter() - began}), *parts]


def merge_parts(reduction: Reduction, *parts: Any) -> Any:
    """Merge reductions of one bucket."""
    with threadpool_limits(1):
        return reduction.merge(parts)

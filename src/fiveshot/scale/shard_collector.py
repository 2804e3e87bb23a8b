"""Collect the rows of shards as they come, in any order, and keep every shard that is complete."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fiveshot.scale.columns import END, Batch
from fiveshot.scale.raw_image import Shard
from fiveshot.scale.rows import concatenate
from fiveshot.scale.shard_file import ShardFolder

COLUMNS = ("row", "split", "name", "label", "reason", "vectors")


class ShardCollector:
    """Holds the vectors of the shards that are under way, and no others."""

    def __init__(self, shards: Mapping[int, Shard], folder: ShardFolder) -> None:
        self._shards = shards
        self._folder = folder
        self._held: dict[int, list[Batch]] = {}
        self._rows: dict[int, int] = {}
        self._expected: dict[int, int] = {}
        self.finished = 0

    @property
    def held_rows(self) -> int:
        """Number of rows that wait for the rest of their shard."""
        return sum(self._rows.values())

    def add(self, batch: Batch) -> None:
        """Take rows of one or more shards."""
        for number in np.unique(batch["shard"]).tolist():
            own = batch["shard"] == number
            part = {name: batch[name][own] for name in COLUMNS}
            marker = part["split"] == END
            if marker.any():
                self._expected[number] = int(part["row"][marker][0])
            self._held.setdefault(number, []).append(part)
            self._rows[number] = self._rows.get(number, 0) + int((~marker).sum())
            if self._rows[number] == self._expected.get(number):
                self._folder.write(self._shards[number], concatenate(self._held.pop(number)))
                del self._rows[number], self._expected[number]
                self.finished += 1

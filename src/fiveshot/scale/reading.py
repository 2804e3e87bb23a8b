"""The stage that reads: shards in, batches of encoded images out. It loads no torch, and knows nothing of Ray."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fiveshot.scale.columns import END, Batch
from fiveshot.scale.raw_image import RawImage, Shard

ROWS_AT_ONCE = 128
BYTES_AT_ONCE = 8 << 20


def read_shards(batch: Batch) -> Iterator[Batch]:
    """Yield the encoded images of pickled shards, some at a time, and a marker at the end of each shard."""
    for data in batch["shard"]:
        yield from read_shard(pickle.loads(data))


def read_shard(shard: Shard) -> Iterator[Batch]:
    """Yield the encoded images of a shard, and last a row that says how many there were."""
    held = _Held(shard.number)
    began = time.perf_counter()
    for image in shard.reader.images():
        held.add(image, time.perf_counter() - began)
        if held.full:
            yield held.taken()
        began = time.perf_counter()
    held.end()
    yield held.taken()


@dataclass(eq=False)
class _Held:
    shard: int
    row: int = 0
    size: int = 0
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.rows) >= ROWS_AT_ONCE or self.size >= BYTES_AT_ONCE

    def add(self, image: RawImage, seconds: float) -> None:
        self.rows.append((self.row, image.split, image.name, image.label, image.reason, image.data, seconds))
        self.row += 1
        self.size += len(image.data)

    def end(self) -> None:
        self.rows.append((self.row, END, "", "", "", b"", 0.0))

    def taken(self) -> Batch:
        row, split, name, label, reason, data, seconds = zip(*self.rows, strict=True)
        self.rows, self.size = [], 0
        return {
            "shard": np.full(len(row), self.shard, np.int64),
            "row": np.array(row, np.int64),
            "split": np.array(split, np.int64),
            **{key: _objects(v) for key, v in (("name", name), ("label", label), ("reason", reason))},
            "data": _objects(data),
            "read_s": np.array(seconds, np.float32),
        }


def _objects(values: tuple[Any, ...]) -> Any:
    column = np.empty(len(values), object)
    column[:] = values
    return column

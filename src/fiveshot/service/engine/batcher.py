"""Photos of several requests through one forward pass."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import Embedder, default_workers
from fiveshot.backbones.embedder import Vectors


@dataclass(eq=False)
class _Item:
    embedder: Embedder
    pixels: NDArray[np.uint8]  # (views, 3, size, size)
    since: float
    result: Future[Vectors] = field(default_factory=Future)


class Batcher:
    """Collects photos and passes them through the backbone together.

    A photo waits at most ``latency`` seconds for others while the backbone has nothing to do; while it works,
    photos collect by themselves. On a CPU one stream a core takes from the same queue, each on one thread,
    which uses the cores better than one stream with several.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        latency: float,
        size: int | None = None,
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        self.size = size or embedder.batch_size
        self._latency = latency
        self._on_batch = on_batch
        self._queue: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"backbone-{number}", daemon=True)
            for number in range(embedder.streams(default_workers()))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Photos in the queue."""
        return len(self._queue)

    def submit(self, embedder: Embedder, pixels: Sequence[NDArray[np.uint8]]) -> list[Future[Vectors]]:
        """Queue photos; their features come one by one."""
        now = time.monotonic()
        items = [_Item(embedder, one, now) for one in pixels]
        with self._changed:
            if self._closed:
                raise RuntimeError("the service is ending")
            self._queue.extend(items)
            self._changed.notify(len(items))
        return [item.result for item in items]

    def close(self) -> None:
        """Finish what is queued, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._next():
            wanted = [item for item in batch if item.result.set_running_or_notify_cancel()]
            if wanted:
                self._run(wanted)

    def _run(self, batch: list[_Item]) -> None:
        began = time.perf_counter()
        try:
            vectors = batch[0].embedder.features(np.stack([item.pixels for item in batch]))
        except BaseException as error:
            for item in batch:
                item.result.set_exception(error)
            return
        if self._on_batch is not None:
            self._on_batch(len(batch), time.perf_counter() - began)
        for item, vector in zip(batch, vectors, strict=True):
            item.result.set_result(vector)

    def _next(self) -> list[_Item]:
        """Return photos for one backbone; none at all means the end."""
        with self._changed:
            while not self._queue:
                if self._closed:
                    return []
                self._changed.wait()
            until = self._queue[0].since + self._latency
            while self._queue and len(self._queue) < self.size and not self._closed:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            if not self._queue:  # another stream was faster
                return self._next()
            return self._taken()

    def _taken(self) -> list[_Item]:
        # Streams that are idle get their share, so that a short queue uses all cores.
        share = -(-len(self._queue) // len(self._threads)) if len(self._queue) < self.size else self.size
        batch = [self._queue.popleft()]
        while self._queue and len(batch) < share and self._queue[0].embedder is batch[0].embedder:
            batch.append(self._queue.popleft())
        if self._queue:
            self._changed.notify()
        return batch

"""Collect finished batches and keep them as parts, one every few seconds."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from fiveshot.features.checks import Vectors
from fiveshot.features.image_batches import ImageBatch
from fiveshot.features.partial_features import Part, PartialFeatures

MAX_BYTES = 64 << 20  # vectors held back at most, however fast they come


class PartWriter:
    """Writes a part when ``seconds`` have passed since the last one, or when enough has come together."""

    def __init__(self, store: PartialFeatures, quick: NDArray[np.uint8], *, seconds: float) -> None:
        """Write into ``store`` what belongs to images with these quick marks (n_images, 16)."""
        self._store = store
        self._quick = quick
        self._seconds = seconds
        self._held: list[tuple[ImageBatch, Vectors]] = []
        self._written = time.monotonic()

    def add(self, batch: ImageBatch, vectors: Vectors) -> None:
        """Take the next batch; a part has no holes, so one that does not follow on starts a new part."""
        if self._held and self._held[-1][0].stop != batch.start:
            self.flush()
        self._held.append((batch, vectors))
        full = sum(held.nbytes for _, held in self._held) >= MAX_BYTES
        if full or time.monotonic() - self._written >= self._seconds:
            self.flush()

    def flush(self) -> None:
        """Write what is held back."""
        if self._held:
            batches = [batch for batch, _ in self._held]
            start, stop = batches[0].start, batches[-1].stop
            self._store.write(
                Part(
                    start,
                    stop,
                    self._quick[start:stop],
                    np.concatenate([batch.marks for batch in batches]),
                    np.concatenate([batch.kept for batch in batches]),
                    np.concatenate([vectors for _, vectors in self._held]),
                    tuple(bad for batch in batches for bad in batch.bad),
                )
            )
            self._held.clear()
        self._written = time.monotonic()

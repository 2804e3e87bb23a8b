"""Vectors batch by batch, in order: workers decode, and on a CPU also pass their batch through the network."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event, Semaphore
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import Embedder, NotFiniteError
from fiveshot.data import ImageSource
from fiveshot.errors import InputError
from fiveshot.features.checks import Vectors
from fiveshot.features.image_batches import NO_PIXELS, ImageBatch, read_batch
from fiveshot.features.reader_process import prepare_reader, read_in_process, reader_context

Range = tuple[int, int]  # positions, from and up to
Result = TypeVar("Result")
MANY_IMAGES = 2000  # fewer are decoded before processes have started


@dataclass(frozen=True)
class Stages:
    """Seconds spent in each stage, added up over all workers."""

    decode: float = 0.0
    transform: float = 0.0
    forward: float = 0.0

    def __add__(self, other: Stages) -> Stages:
        return Stages(self.decode + other.decode, self.transform + other.transform, self.forward + other.forward)


@dataclass(frozen=True, eq=False)
class BatchVectors:
    """A batch after the network; ``vectors`` is None where only bad images were looked for."""

    batch: ImageBatch  # its pixels are gone
    vectors: Vectors | None  # (n_kept, width)
    stages: Stages


def decodes_in_processes(embedder: Embedder, images: int) -> bool:
    """Tell whether decoding is worth processes of its own.

    On a CPU the network takes nearly all the time, threads release the interpreter's lock, and nothing has to
    be copied or started. An accelerator is so much faster that decoding is the bottleneck, and there threads
    wait for the lock: measured on 16 cores, 806 images/s with threads and 2,125 with processes.
    """
    return not embedder.on_cpu and images >= MANY_IMAGES


class BatchStream:
    """Passes ranges of images through an embedder with a pool of workers.

    What is computed for a range depends on the range alone, so neither the number of workers nor their luck
    changes a vector.
    """

    def __init__(
        self,
        images: Sequence[ImageSource],
        embedder: Embedder,
        *,
        workers: int,
        dtype: type[np.floating],
        processes: bool | None = None,
    ) -> None:
        """Prepare the stages; nothing runs yet. ``processes`` is decided by the device unless given."""
        self._processes = decodes_in_processes(embedder, len(images)) if processes is None else processes
        self._images = images
        self._embedder = embedder
        self._workers = workers
        self._dtype = dtype
        self._slots = Semaphore(embedder.streams(workers))
        self.decode_only = Event()  # set it to list bad images without computing any more vectors

    def run(self, ranges: Iterable[Range]) -> Generator[BatchVectors]:
        """Yield the results of the ranges in their order; a bounded number of them is in flight."""
        # Decoding silences warnings, which is a setting of the whole process: threads that change it and put it
        # back in turns would let some through and leave it wrong. So it is silent for all, and put back once.
        with warnings.catch_warnings(action="ignore"):
            if self._processes:
                yield from self._with_processes(ranges)
            else:
                threads = ThreadPoolExecutor(self._workers, thread_name_prefix="extract")
                yield from self._in_order(threads, self._batch, ranges)

    def _with_processes(self, ranges: Iterable[Range]) -> Generator[BatchVectors]:
        pool = ProcessPoolExecutor(
            self._workers,
            reader_context(),
            initializer=prepare_reader,
            initargs=(self._images, self._embedder.preprocessing),
        )
        for batch in self._in_order(pool, read_in_process, ranges):
            yield self._through_network(batch)

    def _in_order(
        self, pool: Executor, work: Callable[[int, int], Result], ranges: Iterable[Range]
    ) -> Generator[Result]:
        waiting: deque[Future[Result]] = deque()
        try:
            for start, stop in ranges:
                waiting.append(pool.submit(work, start, stop))
                if len(waiting) > 2 * self._workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _batch(self, start: int, stop: int) -> BatchVectors:
        return self._through_network(read_batch(self._images, start, stop, self._embedder.pixels))

    def _through_network(self, batch: ImageBatch) -> BatchVectors:
        stages = Stages(batch.decode_seconds, batch.transform_seconds)
        vectors: Vectors | None = None
        if not self.decode_only.is_set():
            with self._slots:
                vectors, seconds = self._forward(batch)
            stages += seconds
        return BatchVectors(replace(batch, pixels=NO_PIXELS), vectors, stages)

    def _forward(self, batch: ImageBatch) -> tuple[Vectors, Stages]:
        if not len(batch.kept):
            return np.zeros((0, self._embedder.width), self._dtype), Stages()
        began = time.perf_counter()
        try:
            values = self._embedder.features(batch.pixels)
        except NotFiniteError as error:
            raise NotFiniteError(error.row, self._images[int(batch.kept[error.row])].name) from error
        ended = time.perf_counter()
        vectors = _stored(values, batch.kept, self._images, self._dtype)
        return vectors, Stages(forward=ended - began)


def _stored(
    values: NDArray[np.float32],
    kept: NDArray[np.int64],
    images: Sequence[ImageSource],
    dtype: type[np.floating],
) -> Vectors:
    """Return vectors in the type they are stored in, or name the image whose values do not fit."""
    with np.errstate(over="ignore"):
        vectors = values.astype(dtype)
    good = np.isfinite(vectors).all(axis=1)
    if good.all():
        return vectors
    row = int(good.argmin())
    raise InputError(
        f"the vector of {images[int(kept[row])].name} has values up to {np.abs(values[row]).max():.0f}, too large "
        f"for {np.dtype(dtype).name}",
        hint="store float32 (--dtype float32)",
    )

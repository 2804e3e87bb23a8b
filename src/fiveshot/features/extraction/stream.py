"""Vectors batch by batch, in order: workers decode, and on a CPU also pass their batch through the network."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing.context import BaseContext
from threading import Event, Semaphore
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import Embedder, NotFiniteError, Preprocessing
from fiveshot.data import BadImage, BytesSource, ImageError, ImageSource, decode
from fiveshot.errors import InputError
from fiveshot.features.extraction.job import CONTENT_BYTES, UNREADABLE, Marks, content_mark
from fiveshot.features.extraction.report import Stages
from fiveshot.features.feature_set import Vectors

Range = tuple[int, int]  # positions, from and up to
Result = TypeVar("Result")
PixelTransform = Callable[[Any], NDArray[np.uint8]]
NO_PIXELS = np.zeros((0, 3, 1, 1), np.uint8)
MANY_IMAGES = 2000  # fewer are decoded before processes have started
# Imported once by the process that the others are forked from.
PRELOADED = [__name__, "PIL.JpegImagePlugin", "PIL.PngImagePlugin"]


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """The images at positions ``start`` to ``stop`` of a list, ready for the network."""

    start: int
    stop: int
    marks: Marks = field(repr=False)  # (stop - start, 32): of the contents
    kept: NDArray[np.int64]  # (n_kept,): positions of the images that could be decoded
    pixels: NDArray[np.uint8] = field(repr=False)  # (n_kept, 3, size, size)
    bad: tuple[tuple[int, BadImage], ...]  # with their positions
    decode_seconds: float  # reading and marking included
    transform_seconds: float


@dataclass(frozen=True, eq=False)
class BatchVectors:
    """A batch after the network; ``vectors`` is None where only bad images were looked for."""

    batch: ImageBatch  # its pixels are gone
    vectors: Vectors | None  # (n_kept, width)
    stages: Stages


def read_batch(images: Sequence[ImageSource], start: int, stop: int, transform: PixelTransform) -> ImageBatch:
    """Read each image once, for its mark and its pixels; those that cannot be used are listed."""
    marks, kept, pixels, bad = bytearray(), [], [], []
    decoding = transforming = 0.0
    for position in range(start, stop):
        source, began = images[position], time.perf_counter()
        mark = UNREADABLE
        try:
            data = source.read()
            mark = content_mark(data)
            image = decode(BytesSource(data, source.name))
            decoded = time.perf_counter()
            pixels.append(transform(image))
        except ImageError as error:
            bad.append((position, BadImage(error.name, error.reason)))
        except InputError as error:  # decoded, but of a shape that cannot be used
            bad.append((position, BadImage(source.name, str(error))))
        else:
            kept.append(position)
            transforming += time.perf_counter() - decoded
            began += time.perf_counter() - decoded
        marks += mark
        decoding += time.perf_counter() - began
    return ImageBatch(
        start,
        stop,
        np.frombuffer(marks, np.uint8).reshape(stop - start, CONTENT_BYTES),
        np.array(kept, dtype=np.int64),
        np.stack(pixels) if pixels else NO_PIXELS,
        tuple(bad),
        decoding,
        transforming,
    )


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
        dtype: type[np.floating[Any]],
        processes: bool | None = None,
    ) -> None:
        """Prepare the stages; nothing runs yet. ``processes`` is decided by the device unless given."""
        self._processes = decodes_in_processes(embedder, len(images)) if processes is None else processes
        self._images, self._embedder, self._workers, self._dtype = images, embedder, workers, dtype
        self._slots = Semaphore(embedder.streams(workers))
        self.decode_only = Event()  # set it to list bad images without computing any more vectors

    def run(self, ranges: Iterable[Range]) -> Generator[BatchVectors]:
        """Yield the results of the ranges in their order; a bounded number of them is in flight."""
        # Decoding silences warnings, which is a setting of the whole process: threads that change it and put it
        # back in turns would let some through and leave it wrong. So it is silent for all, and put back once.
        with warnings.catch_warnings(action="ignore"):
            if not self._processes:
                threads = ThreadPoolExecutor(self._workers, thread_name_prefix="extract")
                yield from self._in_order(threads, self._batch, ranges)
                return
            pool = ProcessPoolExecutor(
                self._workers,
                _reader_context(),
                initializer=_prepare_reader,
                initargs=(self._images, self._embedder.preprocessing),
            )
            for batch in self._in_order(pool, _read_in_process, ranges):
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
            stages += Stages(forward=seconds)
        return BatchVectors(replace(batch, pixels=NO_PIXELS), vectors, stages)

    def _forward(self, batch: ImageBatch) -> tuple[Vectors, float]:
        """Return the vectors of a batch, as they are stored, and the seconds they took."""
        if not len(batch.kept):
            return np.zeros((0, self._embedder.width), self._dtype), 0.0
        began = time.perf_counter()
        try:
            values = self._embedder.features(batch.pixels)
        except NotFiniteError as error:
            raise NotFiniteError(error.row, self._images[int(batch.kept[error.row])].name) from error
        seconds = time.perf_counter() - began
        names = [self._images[int(position)].name for position in batch.kept]
        return stored_vectors(values, names, np.dtype(self._dtype)), seconds


def stored_vectors(values: NDArray[np.float32], names: Sequence[str], dtype: np.dtype[Any]) -> Vectors:
    """Return vectors in the type they are stored in; one that does not fit is refused with the image's name."""
    with np.errstate(over="ignore"):
        vectors: Vectors = values.astype(dtype)
    good = np.isfinite(vectors).all(axis=1)
    if good.all():
        return vectors
    row = int(good.argmin())
    raise InputError(
        f"the vector of {names[row]} has values up to {np.abs(values[row]).max():.0f}, too large for {dtype.name}",
        hint="store float32 (--dtype float32)",
    )


_given: tuple[Sequence[ImageSource], PixelTransform] | None = None  # in a process that only reads


def _reader_context() -> BaseContext:
    """Return how readers are started: never forked from this process, whose threads a fork would break.

    Where there is a fork server, they are forked from that: it has imported everything and runs no thread.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _prepare_reader(images: Sequence[ImageSource], preprocessing: Preprocessing) -> None:
    """Keep what every batch needs, once in the life of a process."""
    global _given
    warnings.simplefilter("ignore")
    _given = images, preprocessing.pixels


def _read_in_process(start: int, stop: int) -> ImageBatch:
    """Read a batch in a process that only reads."""
    if _given is None:
        raise RuntimeError("_prepare_reader must run first")
    images, transform = _given
    return read_batch(images, start, stop, transform)

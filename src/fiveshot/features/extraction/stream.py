"""Vectors batch by batch, in order: threads have photos decoded, and pass their batch through the network.

On a GPU photos are decoded, scaled and cropped there too, where they are of a kind that it takes.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Event, Semaphore
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import Embedder, NotFiniteError, Preprocessing
from fiveshot.data import ArraySource, BadImage, ImageSource, decoders
from fiveshot.data.jpeg import plain_jpeg
from fiveshot.data.reduction import Parts, check_shape
from fiveshot.errors import InputError
from fiveshot.features.extraction.job import CONTENT_BYTES, UNREADABLE, Marks
from fiveshot.features.extraction.report import Stages
from fiveshot.features.feature_set import Vectors

if TYPE_CHECKING:
    from fiveshot.backbones.device_pixels import DevicePixels, Picture

Range = tuple[int, int]  # positions, from and up to
NO_PIXELS = np.zeros((0, 1, 3, 1, 1), np.uint8)


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """The images at positions ``start`` to ``stop`` of a list, ready for the network."""

    start: int
    stop: int
    marks: Marks = field(repr=False)  # (stop - start, 32): of the contents
    kept: NDArray[np.int64]  # (n_kept,): positions of the images that could be decoded
    pixels: Any = field(repr=False)  # (n_kept, views, 3, size, size) of uint8: an array, or a tensor on a GPU
    bad: tuple[tuple[int, BadImage], ...]  # with their positions
    decode_seconds: float  # reading and marking included
    transform_seconds: float


@dataclass(frozen=True, eq=False)
class BatchVectors:
    """A batch after the network; ``vectors`` is None where only bad images were looked for."""

    batch: ImageBatch  # its pixels are gone
    vectors: Vectors | None  # (n_kept, width)
    stages: Stages


def read_batch(images: Sequence[ImageSource], start: int, stop: int, preprocessing: Preprocessing) -> ImageBatch:
    """Have each image read once, for its mark and its pixels; those that cannot be used are listed."""
    marks, kept, pixels, bad = bytearray(), [], [], []
    decoding, transforming, parts = 0.0, 0.0, Parts(preprocessing.squares)
    for position in range(start, stop):
        found = decoders().attempt(images[position], parts)
        if found.error is None:
            kept.append(position)
            pixels.append(preprocessing.from_bytes(found.parts[0]))
        else:
            bad.append((position, BadImage(found.error.name, found.error.reason)))
        marks += _mark(images[position], found.sha256)
        decoding += found.decode_seconds
        transforming += found.reduce_seconds
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


def read_on_device(
    images: Sequence[ImageSource], start: int, stop: int, preprocessing: Preprocessing, device: DevicePixels
) -> ImageBatch:
    """Do what ``read_batch`` does, on a GPU; photos that it does not take are decoded as there."""
    began = time.perf_counter()
    usual = {position: found for position in range(start, stop) if (found := _usual(images[position])) is not None}
    squares = device.squares([picture for _, picture in usual.values()])
    if squares is None:  # it refuses one of them, and does not say which
        usual = {}
    seconds = time.perf_counter() - began
    rest = [read_batch(images, at, at + 1, preprocessing) for at in range(start, stop) if at not in usual]
    marks = {at: np.frombuffer(mark, np.uint8) for at, (mark, _) in usual.items()}
    marks |= {batch.start: batch.marks[0] for batch in rest}
    kept = np.array([*usual, *(position for batch in rest for position in batch.kept.tolist())], np.int64)
    order = np.argsort(kept)
    return ImageBatch(
        start,
        stop,
        np.stack([marks[position] for position in range(start, stop)]),
        kept[order],
        device.joined(squares, [batch.pixels for batch in rest if len(batch.kept)], order),
        tuple(bad for batch in rest for bad in batch.bad),
        seconds + sum(batch.decode_seconds for batch in rest),
        sum(batch.transform_seconds for batch in rest),
    )


def _usual(image: ImageSource) -> tuple[bytes, Picture] | None:
    """Return the mark of a photo, and what a GPU makes squares of; None for what it does not take."""
    try:
        if isinstance(image, ArraySource):
            check_shape(image.array.shape[1::-1])
            return image.digest(), image.array
        data = image.read()
    except InputError:  # for the decoders to name
        return None
    facts = plain_jpeg(data)
    return None if facts is None else (hashlib.sha256(data).digest(), (data, facts))


def _mark(image: ImageSource, sha256: str) -> bytes:
    return image.digest() if isinstance(image, ArraySource) else bytes.fromhex(sha256) or UNREADABLE


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
    ) -> None:
        """Prepare the stages; nothing runs yet."""
        self._images, self._embedder, self._workers, self._dtype = images, embedder, workers, dtype
        self._slots = Semaphore(embedder.streams(workers))
        self._device = embedder.device_pixels
        self.decode_only = Event()  # set it to list bad images without computing any more vectors

    def run(self, ranges: Iterable[Range]) -> Generator[BatchVectors]:
        """Yield the results of the ranges in their order; a bounded number of them is in flight."""
        threads = ThreadPoolExecutor(self._workers, thread_name_prefix="extract")
        waiting: deque[Future[BatchVectors]] = deque()
        # Where photos are decoded in this process, that silences warnings, which is a setting of the whole
        # process: threads that put it back in turns would leave it wrong. So it is silent for all, and put back
        # once.
        with warnings.catch_warnings(action="ignore"):
            try:
                for start, stop in ranges:
                    waiting.append(threads.submit(self._batch, start, stop))
                    if len(waiting) > 2 * self._workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                threads.shutdown(wait=True, cancel_futures=True)

    def _batch(self, start: int, stop: int) -> BatchVectors:
        preprocessing = self._embedder.preprocessing
        if self._device is None:
            return self._through_network(read_batch(self._images, start, stop, preprocessing))
        with self._device.stream():  # of this thread: the GPU decodes one batch while it looks at another
            return self._through_network(read_on_device(self._images, start, stop, preprocessing, self._device))

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

"""Vectors batch by batch, in order, and how fast: threads have photos decoded, and pass them through the network.

Photos are decoded, scaled and cropped on the CPU, also for a network on a GPU: it sees the same pixels.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fiveshot.backbones import Embedder, NotFiniteError, Preprocessing, default_workers
from fiveshot.data import ArraySource, BadImage, ImageSource, decoders
from fiveshot.data.reduction import Parts
from fiveshot.errors import InputError, StorageError
from fiveshot.features.feature_set import FeatureSet, Vectors
from fiveshot.features.job import CONTENT_BYTES, UNREADABLE, Marks
from fiveshot.work import in_order

Range = tuple[int, int]  # positions, from and up to


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """The images at positions ``start`` to ``stop`` of a list, ready for the network or after it."""

    start: int
    stop: int
    marks: Marks = field(repr=False)  # (stop - start, 32): of the contents
    kept: NDArray[np.int64]  # (n_kept,): positions of the images that could be decoded
    pixels: Any = field(repr=False)  # (n_kept, views, 3, size, size) of uint8; None after the network
    bad: tuple[tuple[int, BadImage], ...]  # with their positions
    decode_seconds: float  # reading and marking included
    transform_seconds: float
    vectors: Vectors | None = None  # (n_kept, width): in the place of the pixels
    forward_seconds: float = 0.0


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
        np.stack(pixels) if pixels else np.zeros((0, *preprocessing.shape), np.uint8),
        tuple(bad),
        decoding,
        transforming,
    )


def _mark(image: ImageSource, sha256: str) -> bytes:
    return image.digest() if isinstance(image, ArraySource) else bytes.fromhex(sha256) or UNREADABLE


class BatchStream:
    """Passes ranges of images through an embedder with a pool of workers.

    What is computed for a range depends on the range alone, so neither the number of workers nor their luck
    changes a vector.
    """

    def __init__(
        self, images: Sequence[ImageSource], embedder: Embedder, *, workers: int, dtype: DTypeLike
    ) -> None:
        """Prepare the stages; nothing runs yet."""
        self._images, self._embedder, self._workers, self._dtype = images, embedder, workers, np.dtype(dtype)
        self._passes = BoundedSemaphore(embedder.streams(workers))
        self.decode_only = Event()  # set it to list bad images without computing any more vectors

    def run(self, ranges: Iterable[Range]) -> Generator[ImageBatch]:
        """Yield the ranges with their vectors, in order; a bounded number of them is in flight."""
        # Where photos are decoded in this process, that silences warnings, which is a setting of the whole
        # process: threads that put it back in turns would leave it wrong. So it is silent for all, and put back
        # once.
        with warnings.catch_warnings(action="ignore"):
            yield from in_order(self._batch, ranges, threads=self._workers, ahead=2 * self._workers)

    def _batch(self, positions: Range) -> ImageBatch:
        batch = read_batch(self._images, *positions, self._embedder.preprocessing)
        if self.decode_only.is_set():
            return replace(batch, pixels=None)
        names = [self._images[position].name for position in batch.kept.tolist()]
        with self._passes:
            began = time.perf_counter()
            try:
                values = self._embedder.features(batch.pixels)
            except NotFiniteError as error:
                raise NotFiniteError(error.row, names[error.row]) from error
            seconds = time.perf_counter() - began
        vectors = stored_vectors(values, names, self._dtype)
        return replace(batch, pixels=None, vectors=vectors, forward_seconds=seconds)


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


@dataclass(frozen=True)
class Stages:
    """Seconds spent in each stage, added up over all workers."""

    decode: float = 0.0
    transform: float = 0.0
    forward: float = 0.0

    def __add__(self, other: Stages) -> Stages:
        return Stages(self.decode + other.decode, self.transform + other.transform, self.forward + other.forward)


@dataclass(frozen=True, eq=False)
class Extraction:
    """Features and how they came about; ``seconds`` and ``stages`` are about the images computed this time.

    Parameters
    ----------
    features : FeatureSet
        Mapped from the file, or in memory where there is none.
    path : pathlib.Path or None
        Where they are kept.
    images : int
        Number of images, bad ones included.
    computed : int
        Images of this run; the others were finished before.
    bad : tuple of BadImage
        Images that were left out.
    runtime : str or None
        What ran the network; None when nothing had to be computed.
    seconds : float
        Time from the first image to the finished file.
    stages : Stages
        Seconds of each stage, added up over all workers.
    streams : int
        Forward passes at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.features import Extraction, FeatureSet, Provenance
    >>> x, y = np.eye(2, dtype=np.float16), np.array([0, 1])
    >>> features = FeatureSet(x, y, x, y, ("wren", "rook"), Provenance.unknown("birds"))
    >>> done = Extraction(features, None, images=4, computed=4, bad=(), runtime="PyTorch on cpu", seconds=0.5)
    >>> done.rate
    8.0
    """

    features: FeatureSet
    path: Path | None
    images: int
    computed: int
    bad: tuple[BadImage, ...]
    runtime: str | None
    seconds: float = 0.0
    stages: Stages = field(default_factory=Stages)
    streams: int = 1

    @property
    def kept_path(self) -> Path:
        """The file, where there is one."""
        if self.path is None:
            raise StorageError("these features are in memory only", hint="give a cache or an output file")
        return self.path

    @property
    def rate(self) -> float | None:
        """Images per second from files to vectors, or None when nothing was computed."""
        return self.computed / self.seconds if self.computed and self.seconds else None

    @property
    def forward_rate(self) -> float | None:
        """Images per second if the forward passes had run one after another without waiting for images.

        It comes from the time spent inside them in this very run. On a CPU each runs on a core of its own, so
        this is the bare rate as far as the other cores' decoding does not slow down the memory they share.
        """
        forward = self.stages.forward / self.streams
        return self.computed / forward if self.computed and forward else None


def bare_rate(
    embedder: Embedder, *, batch_size: int | None = None, workers: int | None = None, seconds: float = 3.0
) -> float:
    """Measure how fast the network is with nothing else to do.

    Parameters
    ----------
    embedder : Embedder
        What to measure.
    batch_size, workers : int, optional
        As in an extraction: as many forward passes run at a time as there.
    seconds : float, default 3
        How long to measure, after one pass each to warm up.

    Returns
    -------
    float
        Images per second, over a batch that is ready.

    Examples
    --------
    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.features import bare_rate
    >>> bare_rate(load_embedder(), batch_size=1, workers=1, seconds=0.1) > 0
    True
    """
    size = batch_size or embedder.batch_size
    streams = embedder.streams(workers or default_workers())
    noise: Any = np.random.default_rng(0).integers(0, 256, (size, *embedder.preprocessing.shape), np.uint8)
    if not embedder.on_cpu:
        import torch

        noise = torch.from_numpy(noise).to(embedder.device)

    def passes(until: float) -> int:
        done = 0
        while done == 0 or time.perf_counter() < until:
            embedder.features(noise)
            done += 1
        return done

    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(passes, [0.0] * streams))
        began = time.perf_counter()
        done = sum(pool.map(passes, [began + seconds] * streams))
        return done * size / (time.perf_counter() - began)

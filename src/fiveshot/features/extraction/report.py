"""What an extraction did and how fast, and how fast the network alone would be."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fiveshot.backbones import Embedder, default_workers
from fiveshot.data import BadImage
from fiveshot.errors import StorageError
from fiveshot.features.feature_set import FeatureSet


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
    count = batch_size or embedder.batch_size
    streams = embedder.streams(workers or default_workers())
    noise = np.random.default_rng(0).integers(0, 256, (count, *embedder.preprocessing.shape), np.uint8)

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
        return done * count / (time.perf_counter() - began)

"""What an extraction did, and how fast."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fiveshot.data import BadImage
from fiveshot.errors import StorageError
from fiveshot.features.batch_stream import Stages
from fiveshot.features.feature_set import FeatureSet


@dataclass(frozen=True, eq=False)
class Extraction:
    """Features and how they came about; ``seconds`` and ``stages`` are about the images computed this time.

    >>> import numpy as np
    >>> from fiveshot.features import Extraction, FeatureSet, Provenance
    >>> x, y = np.eye(2, dtype=np.float16), np.array([0, 1])
    >>> features = FeatureSet(x, y, x, y, ("wren", "rook"), Provenance.unknown("birds"))
    >>> done = Extraction(features, None, images=4, computed=4, bad=(), runtime="PyTorch on cpu", seconds=0.5)
    >>> done.rate
    8.0
    """

    features: FeatureSet  # mapped from the file, or in memory where there is none
    path: Path | None  # where they are kept
    images: int  # bad ones included
    computed: int  # in this run; the others were finished before
    bad: tuple[BadImage, ...]  # left out
    runtime: str | None  # None: nothing had to be computed
    seconds: float = 0.0  # from the first image to the finished file
    stages: Stages = field(default_factory=Stages)  # added up over all workers
    streams: int = 1  # forward passes at a time

    @property
    def kept_path(self) -> Path:
        """The file, where there is one."""
        if self.path is None:
            raise StorageError("these features are in memory only; give a cache or an output file")
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

"""Estimate the cost of a cluster run (bytes moved, memory, time) from a few measured speeds.

``scale.py`` checks the estimate against runs and extrapolates to larger clusters. The package does not use it.
"""

from __future__ import annotations

from dataclasses import dataclass

PIXEL_BYTES = 3 * 224 * 224  # of one decoded and cropped image
NAME_BYTES = 100  # of a class, in memory
FLOAT = 4


@dataclass(frozen=True)
class Workload:
    """The images, their classes and their vectors."""

    images: int
    classes: int
    width: int = 384
    image_bytes: int = 110_000  # of an encoded photo of 500 pixels

    @property
    def vector_bytes(self) -> int:
        """Memory of one vector in float32."""
        return FLOAT * self.width

    def statistics_bytes(self, covariance: str) -> int:
        """Return the size of the finished statistics, with one covariance for each ``class`` or a ``tied`` one."""
        of_class = self.vector_bytes + 16 + NAME_BYTES
        if covariance == "tied":
            return self.classes * of_class + 8 * self.width**2
        rank = min(max(self.images // self.classes - 1, 0), self.width)
        return self.classes * (of_class + rank * self.vector_bytes)


@dataclass(frozen=True)
class Speeds:
    """Measured speeds of one worker of each stage, per second."""

    forward: float  # images on a GPU
    decode: float  # images on a core
    reduce: float  # vectors on a core
    merge_bytes: float = 400e6  # bytes of statistics read and merged on a core


@dataclass(frozen=True)
class Cost:
    """Time and traffic of a run on a number of GPUs and cores; in seconds; the stages run at the same time."""

    forward_seconds: float
    decode_seconds: float
    reduce_seconds: float
    merge_seconds: float
    read_bytes: float  # from storage
    pixel_bytes: float  # from decoding to the backbone
    vector_bytes: float  # from the backbone to the reduction
    merge_bytes: float  # between reductions
    statistics_bytes: float
    gpu_hours: float

    @property
    def seconds(self) -> float:
        """Time of the slowest stage; decoding and reducing share the cores."""
        return max(self.forward_seconds, self.decode_seconds + self.reduce_seconds + self.merge_seconds)

    @property
    def bottleneck(self) -> str:
        """The slower stage."""
        return "GPUs" if self.seconds == self.forward_seconds else "cores"


def cost_of(
    work: Workload,
    speeds: Speeds,
    *,
    gpus: int,
    cores: int,
    covariance: str = "tied",
    group_bytes: int = 64 << 20,
    arity: int = 4,
) -> Cost:
    """Return the cost of reducing images to statistics."""
    merged = merged_bytes(work, covariance, group_bytes=group_bytes, arity=arity)
    forward = work.images / (gpus * speeds.forward) if gpus else 0.0
    decode = work.images / (cores * speeds.decode) if gpus else 0.0
    parts = {
        "reduce_seconds": work.images / (cores * speeds.reduce),
        "merge_seconds": merged / (cores * speeds.merge_bytes),
    }
    seconds = max(forward, decode + sum(parts.values()))
    return Cost(
        forward_seconds=forward,
        decode_seconds=decode,
        **parts,
        read_bytes=work.images * work.image_bytes,
        pixel_bytes=work.images * PIXEL_BYTES,
        vector_bytes=work.images * work.vector_bytes,
        merge_bytes=merged,
        statistics_bytes=work.statistics_bytes(covariance),
        gpu_hours=gpus * seconds / 3600,
    )


def merged_bytes(work: Workload, covariance: str, *, group_bytes: int = 64 << 20, arity: int = 4) -> float:
    """Return the bytes of all merged reductions, over the levels of the tree.

    A reduction of n images in no particular order has C (1 - (1 - 1/C)^n) of C classes. Its size is that of
    the statistics of n images, which stops growing when all classes have many images.
    """
    images = max(1.0, group_bytes / work.vector_bytes)
    count, total = work.images / images, 0.0
    while count > 1:
        known = work.classes * (1 - (1 - 1 / work.classes) ** images)
        part = Workload(int(images), max(1, int(known)), work.width)
        total += count * part.statistics_bytes(covariance)
        images, count = images * arity, count / arity
    return total

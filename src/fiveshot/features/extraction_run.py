"""Compute the parts that are missing, and only those."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from fiveshot.data import BadImage, bad_images_error
from fiveshot.errors import InputError
from fiveshot.features.batch_stream import BatchStream, Range, Stages
from fiveshot.features.extraction_job import DTYPES, ExtractionJob
from fiveshot.features.part_writer import PartWriter
from fiveshot.features.partial_features import PartialFeatures, gaps
from fiveshot.progress import Progress


@dataclass(frozen=True)
class Pace:
    """How to go about it; none of this changes a vector beyond rounding."""

    batch_size: int
    workers: int
    skip_bad: bool
    progress: Progress
    part_seconds: float  # between two parts that are kept

    def __post_init__(self) -> None:
        """Refuse counts that nothing can be done with."""
        for name in ("batch_size", "workers"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; choose 1 or more")


@dataclass(frozen=True)
class Computed:
    """What one run added."""

    images: int
    stages: Stages


def compute_parts(job: ExtractionJob, store: PartialFeatures, pace: Pace) -> Computed:
    """Compute what the usable parts in ``store`` do not cover, and keep it there.

    Unless bad images are to be skipped, the first one ends the computing; the images after it are only
    decoded, so that the error lists every bad one. What was finished before stays in ``store``.
    """
    done, bad = _finished(job, store)
    progress = _Counter(sum(stop - start for start, stop in done), len(job.images), pace.progress)
    stream = BatchStream(job.images, job.embedder, workers=pace.workers, dtype=DTYPES[job.dtype])
    writer = PartWriter(store, job.quick, seconds=pace.part_seconds)
    images, stages = 0, Stages()
    try:
        with closing(stream.run(gaps(done, len(job.images), pace.batch_size))) as results:
            for result in results:
                batch = result.batch
                bad += batch.bad
                if bad and not pace.skip_bad:
                    stream.decode_only.set()
                if result.vectors is not None:
                    writer.add(batch, result.vectors)
                    images += batch.stop - batch.start
                    stages += result.stages
                progress.add(batch.stop - batch.start)
    except KeyboardInterrupt:
        writer.flush()
        raise
    writer.flush()
    if bad and not pace.skip_bad:
        raise bad_images_error([image for _, image in sorted(bad, key=lambda found: found[0])], len(job.images))
    return Computed(images, stages)


def _finished(job: ExtractionJob, store: PartialFeatures) -> tuple[list[Range], list[tuple[int, BadImage]]]:
    done: list[Range] = []
    bad: list[tuple[int, BadImage]] = []
    for part in store.usable(job.images, job.quick):
        done.append((part.start, part.stop))
        bad += part.bad
    return done, bad


class _Counter:
    def __init__(self, done: int, total: int, progress: Progress) -> None:
        self._done, self._total, self._progress = done, total, progress
        self.add(0)

    def add(self, images: int) -> None:
        self._done += images
        self._progress(self._done, self._total)

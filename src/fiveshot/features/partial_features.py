"""Finished parts of an extraction in a folder: what a killed one leaves, and the next one goes on from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import BadImage, ImageSource
from fiveshot.errors import StorageError
from fiveshot.features.batch_stream import Range
from fiveshot.features.checks import Vectors
from fiveshot.features.image_marks import content_marks
from fiveshot.storage import read_tensors, write_tensors

KIND, VERSION = "partial-features", 1

BadImages = tuple[tuple[int, BadImage], ...]


@dataclass(frozen=True, eq=False)
class Part:
    """The vectors of the images at positions ``start`` to ``stop``, and what these images were."""

    start: int
    stop: int
    quick: NDArray[np.uint8] = field(repr=False)  # (stop - start, 16)
    content: NDArray[np.uint8] = field(repr=False)  # (stop - start, 32)
    kept: NDArray[np.int64]  # (n_kept,): positions that have a vector
    vectors: Vectors = field(repr=False)  # (n_kept, width)
    bad: BadImages

    def still_holds(self, images: Sequence[ImageSource], quick: NDArray[np.uint8]) -> bool:
        """Tell whether the images are still those of the part; only suspicious ones are read."""
        changed = (quick[self.start : self.stop] != self.quick).any(axis=1)
        rows = np.flatnonzero(changed)
        now = content_marks([images[self.start + int(row)] for row in rows])
        return bool((now == self.content[rows]).all())


@dataclass(frozen=True)
class PartialFeatures:
    """A folder of parts; each file of it is whole or absent."""

    folder: Path

    def write(self, part: Part) -> None:
        """Keep a part."""
        write_tensors(
            self._file(part.start, part.stop),
            {
                "quick": part.quick,
                "content": part.content,
                "kept": part.kept,
                "vectors": part.vectors,
            },
            kind=KIND,
            version=VERSION,
            meta={"bad": [[position, image.name, image.reason] for position, image in part.bad]},
        )

    def read(self, start: int, stop: int) -> Part:
        """Return a part, its vectors mapped and not read."""
        path = self._file(start, stop)
        file = read_tensors(path, kind=KIND, version=VERSION)
        try:
            arrays = {name: file.tensors[name] for name in ("quick", "content", "kept", "vectors")}
            bad = tuple((int(position), BadImage(name, reason)) for position, name, reason in file.meta["bad"])
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path} is damaged ({error})") from error
        if len(arrays["quick"]) != stop - start or len(arrays["kept"]) + len(bad) != stop - start:
            raise StorageError(f"{path} is damaged: it does not hold the images that its name says")
        return Part(start, stop, **arrays, bad=bad)

    def parts(self) -> Iterator[Part]:
        """Yield all parts in the order of their images."""
        return (self.read(start, stop) for start, stop in self._ranges())

    def usable(self, images: Sequence[ImageSource], quick: NDArray[np.uint8]) -> Iterator[Part]:
        """Yield in order the parts whose images are unchanged, and delete the others."""
        end = 0
        for start, stop in self._ranges():
            part = None
            if end <= start and stop <= len(images):
                with suppress(StorageError):  # a damaged part is computed again, like one that never was
                    part = self.read(start, stop)
            if part is not None and part.still_holds(images, quick):
                end = stop
                yield part
            else:
                self._file(start, stop).unlink(missing_ok=True)

    def _ranges(self) -> list[Range]:
        names = [file.stem.split("-") for file in self.folder.glob("part-*-*.safetensors")]
        return sorted((int(start), int(stop)) for _, start, stop in names)

    def _file(self, start: int, stop: int) -> Path:
        return self.folder / f"part-{start}-{stop}.safetensors"


def gaps(done: Sequence[Range], total: int, batch_size: int) -> Iterator[Range]:
    """Yield, in batches, the positions below ``total`` that are not done; ``done`` is in order.

    >>> list(gaps([(0, 4), (6, 8)], 11, batch_size=2))
    [(4, 6), (8, 10), (10, 11)]
    """
    start = 0
    for first, last in [*done, (total, total)]:
        for position in range(start, first, batch_size):
            yield position, min(position + batch_size, first)
        start = last

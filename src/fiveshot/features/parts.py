"""Finished parts of an extraction, in one format for one machine and for a cluster; and joining them."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import ArraySource, BadImage, ImageSource
from fiveshot.errors import InputError, StorageError, counted, some_of
from fiveshot.features.feature_set import FeatureSet, Provenance, Vectors, write_feature_file
from fiveshot.features.job import CONTENT_BYTES, ExtractionJob, Marks, content_marks
from fiveshot.features.seeing import PhotoVector
from fiveshot.storage import Blocks, FilePath, read_tensors, write_tensors

KIND, VERSION = "feature-part", 1
TRAIN, TEST = 0, 1  # splits
MAX_BYTES = 64 << 20  # at most this much of vectors is held before a part is written
LOCK = "lock"
Range = tuple[int, int]  # positions, from and up to
_ARRAYS = ("vectors", "positions", "splits", "labels")


@dataclass(frozen=True, eq=False)
class Part:
    """The vectors of some images, in the order of their positions, without the bad ones.

    Parameters
    ----------
    vectors : float array (n, width)
        The vectors, mapped when they come from a file.
    positions : int array (n,)
        Position of each image among all images, or in its shard.
    splits : int array (n,)
        ``TRAIN`` or ``TEST``.
    labels : int array (n,)
        Indices into ``class_names``.
    names : tuple of str
        The images' names.
    class_names : tuple of str
        The classes of all images of the part, also of bad ones; an empty text means no class.
    bad : tuple of (int, BadImage)
        Images without a vector, with their positions.
    key : str
        Identifies what the vectors depend on, so that no part is taken for another.
    marks : dict of str to uint8 array
        The ``quick`` and ``content`` marks of the images if known, bad ones included.
    """

    vectors: Vectors = field(repr=False)
    positions: NDArray[np.int64]
    splits: NDArray[np.int64]
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    class_names: tuple[str, ...]
    bad: tuple[tuple[int, BadImage], ...] = ()
    key: str = ""
    marks: dict[str, Marks] = field(default_factory=dict, repr=False)

    @property
    def images(self) -> int:
        """Number of images, bad ones included."""
        return len(self.positions) + len(self.bad)

    def save(self, path: FilePath) -> None:
        """Write the part into one file, which is complete or absent."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        write_tensors(
            path,
            {**arrays, **self.marks, "names": np.frombuffer(json.dumps(self.names).encode(), np.uint8)},
            kind=KIND,
            version=VERSION,
            meta={
                "key": self.key,
                "class_names": list(self.class_names),
                "bad": [[position, image.name, image.reason] for position, image in self.bad],
            },
        )

    @classmethod
    def load(cls, path: FilePath) -> Part:
        """Map a file written by :meth:`save`; its vectors are not read yet."""
        file = read_tensors(path, kind=KIND, version=VERSION)
        try:
            names = tuple(json.loads(file.tensors["names"].tobytes()))
            part = cls(
                **{name: file.tensors[name] for name in _ARRAYS},
                names=names,
                class_names=tuple(file.meta["class_names"]),
                bad=tuple((int(at), BadImage(name, reason)) for at, name, reason in file.meta["bad"]),
                key=file.meta["key"],
                marks={name: file.tensors[name] for name in file.tensors if name in ("quick", "content")},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, str(error)) from error
        rows = {len(part.vectors), len(part.positions), len(part.splits), len(part.labels), len(names)}
        if len(rows) != 1 or any(len(marks) != part.images for marks in part.marks.values()):
            raise _damaged(path, "its arrays have different lengths")
        return part


def part_key(path: FilePath) -> str | None:
    """Return the key of the part in a file, or None if the file is missing or damaged."""
    try:
        return str(read_tensors(path, kind=KIND, version=VERSION).meta.get("key"))
    except StorageError:
        return None


def join_parts(
    parts: Callable[[], Iterable[Part]],
    out: FilePath,
    *,
    provenance: Provenance,
    width: int,
    dtype: str,
    class_names: tuple[str, ...] | None = None,
) -> FeatureSet:
    """Join all parts into one feature file, with one part in memory at a time, and map it.

    Parameters
    ----------
    parts : callable
        Returns the parts in the order of their images, the same ones at every call.
    out : str or path
        The file to write; it is complete or absent.
    provenance : Provenance
        How the vectors were made.
    width : int
        Length of a vector.
    dtype : str
        Type of the vectors.
    class_names : tuple of str, optional
        The classes in the order of their labels; by default sorted by name.

    Returns
    -------
    FeatureSet
        The features, mapped from the file.

    Raises
    ------
    InputError
        When a class has no readable training image.
    """
    seen = {name for part in parts() for name in part.class_names} - {""}
    classes = tuple(sorted(seen)) if class_names is None else class_names
    number = {name: label for label, name in enumerate(classes)}
    arrays: dict[str, NDArray[Any] | Blocks] = {}
    names: dict[str, tuple[str, ...] | None] = {}
    for split, code in (("train", TRAIN), ("test", TEST)):
        labels = np.concatenate([*(_labels(part, number)[part.splits == code] for part in parts()), _NO_LABELS])
        gone = sorted(seen - {classes[label] for label in np.unique(labels)}) if code == TRAIN else ()
        if gone:
            raise InputError(
                f"{counted(len(gone), 'class')} without a usable training image: {some_of(gone, 8)}",
                hint="repair some of them, or remove the classes",
                code="empty_class",
            )
        arrays[f"{split}_x"] = Blocks(np.dtype(dtype), (len(labels), width), _vectors(parts, code))
        arrays[f"{split}_y"] = labels
        own = ((part.names[row] for row in np.flatnonzero(part.splits == code)) for part in parts())
        names[f"{split}_names"] = tuple(chain.from_iterable(own))
    write_feature_file(out, arrays, names, class_names=classes, provenance=provenance)
    return FeatureSet.load(out)


_NO_LABELS = np.zeros(0, np.int64)


def _labels(part: Part, number: dict[str, int]) -> NDArray[np.int64]:
    table = np.array([number.get(name, -1) for name in part.class_names], dtype=np.int64)
    return table[part.labels] if len(table) else part.labels


def _vectors(parts: Callable[[], Iterable[Part]], code: int) -> Iterator[Vectors]:
    for part in parts():
        own = part.splits == code
        yield part.vectors if own.all() else part.vectors[own]  # all of them without a copy


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """The results for the images at positions ``start`` to ``stop``."""

    start: int
    stop: int
    marks: Marks = field(repr=False)  # (stop - start, 32): of the contents
    kept: NDArray[np.int64]  # (n_kept,): positions of the images that could be decoded
    vectors: Vectors = field(repr=False)  # (n_kept, width), in the type they are stored in
    bad: tuple[tuple[int, BadImage], ...]  # with their positions

    @classmethod
    def of(cls, start: int, found: Sequence[PhotoVector | BadImage], job: ExtractionJob) -> ImageBatch:
        """Return the results for the images from ``start`` on."""
        stop = start + len(found)
        good = [(at, one) for at, one in enumerate(found, start) if isinstance(one, PhotoVector)]
        values = np.array([one.vector for _, one in good], np.float32).reshape(-1, job.embedder.width)
        names = [one.photo.name for _, one in good]
        return cls(
            start,
            stop,
            np.concatenate(
                [_content_mark(image, one) for image, one in zip(job.images[start:stop], found, strict=True)]
            ),
            np.array([at for at, _ in good], dtype=np.int64),
            stored_vectors(values, names, np.dtype(job.settings.dtype)),
            tuple((at, one) for at, one in enumerate(found, start) if isinstance(one, BadImage)),
        )


def _content_mark(image: ImageSource, found: PhotoVector | BadImage) -> Marks:  # (1, 32)
    if isinstance(found, BadImage) or isinstance(image, ArraySource):
        return content_marks([image])
    return np.frombuffer(bytes.fromhex(found.sha256), np.uint8).reshape(1, CONTENT_BYTES)


def stored_vectors(values: NDArray[np.float32], names: Sequence[str], dtype: np.dtype[Any]) -> Vectors:
    """Convert vectors to the stored type; a value that does not fit is an error that names the image."""
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


class PartFolder:
    """The finished parts on one machine; the next run resumes from them after an interruption.

    Batches are collected. A part is written after ``part_seconds``, or when ``MAX_BYTES`` are collected.
    """

    def __init__(self, folder: Path, job: ExtractionJob) -> None:
        self._folder, self._job = folder, job
        self._held: list[ImageBatch] = []
        self._written = time.monotonic()

    def parts(self) -> Iterator[Part]:
        """Yield all parts in the order of their images."""
        return (Part.load(self._file(start, stop)) for start, stop in self._ranges())

    def usable(self) -> Iterator[tuple[Range, Part]]:
        """Yield in order the parts whose images are unchanged, and delete the others."""
        end = 0
        for start, stop in self._ranges():
            part = None
            if end <= start and stop <= len(self._job.images):
                with suppress(StorageError):  # a damaged part is computed again
                    part = Part.load(self._file(start, stop))
            if part is not None and self._still_holds(part, start, stop):
                end = stop
                yield (start, stop), part
            else:
                self._file(start, stop).unlink(missing_ok=True)

    def add(self, batch: ImageBatch) -> None:
        """Add the next batch; a part has no gaps, so a batch after a gap starts a new part."""
        if self._held and self._held[-1].stop != batch.start:
            self.flush()
        self._held.append(batch)
        full = sum(held.vectors.nbytes for held in self._held) >= MAX_BYTES
        if full or time.monotonic() - self._written >= self._job.settings.part_seconds:
            self.flush()

    def flush(self) -> None:
        """Write the collected batches."""
        if self._held:
            start, stop = self._held[0].start, self._held[-1].stop
            self._part(start, stop, self._held).save(self._file(start, stop))
            self._held.clear()
        self._written = time.monotonic()

    def _file(self, start: int, stop: int) -> Path:
        return self._folder / f"part-{start}-{stop}.safetensors"

    def _ranges(self) -> list[Range]:
        names = [file.stem.split("-") for file in self._folder.glob("part-*-*.safetensors")]
        return sorted((int(start), int(stop)) for _, start, stop in names)

    def _still_holds(self, part: Part, start: int, stop: int) -> bool:
        """Tell whether the images of the part are unchanged; only images with another quick mark are read."""
        if part.images != stop - start or set(part.marks) != {"quick", "content"}:
            return False
        rows = np.flatnonzero((self._job.quick[start:stop] != part.marks["quick"]).any(axis=1))
        now = content_marks([self._job.images[start + int(row)] for row in rows])
        return bool((now == part.marks["content"][rows]).all())

    def _part(self, start: int, stop: int, batches: list[ImageBatch]) -> Part:
        job, kept = self._job, np.concatenate([batch.kept for batch in batches])
        classes, codes = np.unique(job.labels[start:stop], return_inverse=True)
        return Part(
            np.concatenate([batch.vectors for batch in batches]),
            kept,
            np.where(kept < len(job.dataset.train), TRAIN, TEST).astype(np.int64),
            codes[kept - start].astype(np.int64),
            tuple(job.images[position].name for position in kept),
            tuple(job.dataset.class_names[label] for label in classes),
            tuple(bad for batch in batches for bad in batch.bad),
            marks={"quick": job.quick[start:stop], "content": np.concatenate([batch.marks for batch in batches])},
        )


def gaps(done: Sequence[Range], total: int, batch_size: int) -> Iterator[Range]:
    """Yield, in batches, the positions below ``total`` that are not done; ``done`` must be sorted.

    >>> list(gaps([(0, 4), (6, 8)], 11, batch_size=2))
    [(4, 6), (8, 10), (10, 11)]
    """
    start = 0
    for first, last in [*done, (total, total)]:
        for position in range(start, first, batch_size):
            yield position, min(position + batch_size, first)
        start = last


@contextmanager
def work_folder(path: Path) -> Iterator[Path]:
    """Create a folder, or reuse what a killed process left in it; wait while another process uses it.

    The folder is deleted when the block ends without an error. After an error it stays for the next run.

    >>> import tempfile
    >>> with work_folder(Path(tempfile.mkdtemp()) / "work") as folder:
    ...     _ = (folder / "part").write_text("half")
    >>> folder.exists()
    False
    """
    descriptor = _locked(path)
    try:
        yield path
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    """Return a descriptor that holds the lock until it is closed or the process ends."""
    while True:
        try:
            path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # another process has just finished and deleted the folder
        except OSError as error:
            raise StorageError(
                f"cannot keep finished parts in {path}: {error.strerror or error}", hint="choose another folder"
            ) from error
        with suppress(ImportError):  # without such locks two processes do the same work twice, without harm
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(descriptor), (path / LOCK).stat()):
                return descriptor
        except FileNotFoundError:
            pass  # as above, while we waited
        os.close(descriptor)


def _damaged(path: FilePath, reason: str) -> StorageError:
    return StorageError(f"{path} is damaged ({reason})", hint="remove it to compute it again")

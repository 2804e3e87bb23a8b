"""Shards: parts of the images, and how to read them: from single files, a tar or a parquet file.

Ray's own ``read_parquet`` and ``read_webdataset`` give fewer guarantees. With them a damaged file ends the whole
run; here it becomes one bad image that names the position. They leave broken connections to each driver; here
reading continues at the same byte. And their blocks do not show which shard is complete, which resuming needs.
"""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from fiveshot.data import ImageError, ImageSource, StrictTarInfo, is_image
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.features import TEST, TRAIN
from fiveshot.scale._files import StoredFile, too_large
from fiveshot.work import in_order

Entry = tuple[ImageSource, str, int]  # image, label, split
FETCHED_AT_ONCE = 16  # images from a URL
ROWS_AT_ONCE = 64  # of a parquet file, in memory
TEXT_BYTES = 1 << 20  # of a label, or of the JSON that holds it
LONGEST_LABEL = 1000  # characters
PARQUET_MEMORY = 2 << 30  # bytes; a small file can expand to a million copies of one long value
DAMAGE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError)
_TEST_NAMES = frozenset({"test", "val", "valid", "validation", "eval"})


@dataclass(frozen=True, eq=False)
class RawImage:
    """An encoded image with its name, label and split; ``reason`` says why there are no bytes."""

    name: str
    label: str
    split: int
    data: bytes
    reason: str = ""


class ShardReader(Protocol):
    """Reads the images of one shard; every process gets the same images in the same order."""

    def images(self) -> Iterator[RawImage]:
        """Yield the images; one that cannot be read has a reason instead of bytes."""


@dataclass(frozen=True, eq=False)
class Shard:
    """A part of the images, small enough to compute again and large enough for a file."""

    number: int
    key: str  # changes when the images do
    reader: ShardReader


def split_of(path: str) -> int:
    """Return the split of a path, from its folders or the start of its file's name.

    >>> split_of("birds/test/0001.tar"), split_of("birds/val-0001.tar"), split_of("birds/train/test.tar")
    (1, 1, 0)
    """
    *folders, file = PurePosixPath(path).parts
    for part in folders:
        if part == "train":
            return TRAIN
        if part in _TEST_NAMES:
            return TEST
    start = file.split(".")[0].split("-")[0].split("_")[0]
    return TEST if start in _TEST_NAMES else TRAIN


@dataclass(frozen=True, eq=False)
class ListedReader:
    """Reads images that are separate files."""

    entries: tuple[Entry, ...]

    def images(self) -> Iterator[RawImage]:
        """Return the images in order."""
        if not any(isinstance(source, StoredFile) for source, _, _ in self.entries[:1]):
            return map(_read, self.entries)
        # A distant store has a high latency, but serves many requests in parallel.
        return in_order(_read, self.entries, threads=FETCHED_AT_ONCE, ahead=2 * FETCHED_AT_ONCE)


def _read(entry: Entry) -> RawImage:
    source, label, split = entry
    try:
        return RawImage(source.name, label, split, source.read())
    except ImageError as error:
        return RawImage(source.name, label, split, b"", error.reason)


@dataclass(frozen=True, eq=False)
class FirstImages:
    """Reads only the first images of a shard."""

    reader: ShardReader
    count: int

    def images(self) -> Iterator[RawImage]:
        """Yield them."""
        return islice(self.reader.images(), self.count)


@dataclass(frozen=True, eq=False)
class TarReader:
    """Reads a tar in the layout of webdataset from beginning to end, without unpacking it to a disk.

    Members with the same name, except the suffix, are one sample. The label is the text of the member with the
    suffix ``label`` (``0001.cls``), an entry of that name in ``0001.json``, or else the folder of the image.
    """

    file: StoredFile
    label: str = "cls"

    def images(self) -> Iterator[RawImage]:
        """Yield the samples; damage ends the shard with one bad image that says where.

        Bytes that do not arrive are not damage but a ``StorageError``.
        """
        last = "the beginning"
        try:
            with self.file.open() as stream:
                for sample in _samples(_unpacked(stream, self.file.path), label=self.label):
                    last = sample.key
                    yield self._image(sample)
        except DAMAGE as error:
            reason = f"damaged or truncated after {last} ({error})"
            yield RawImage(self.file.path, "", split_of(self.file.name), b"", reason)

    def _image(self, sample: _Sample) -> RawImage:
        folder = PurePosixPath(sample.key).parent
        split = max(split_of(self.file.name), split_of(f"{folder}/image"))
        label, reason = self._label(sample.texts, folder.name), sample.reason
        if not label:
            reason = f"no label: neither {sample.key}.{self.label} nor a folder named after a class"
        return _checked(f"{self.file.path}/{sample.key}.{sample.suffix}", label, split, sample.image, reason)

    def _label(self, texts: dict[str, bytes], folder: str) -> str:
        if self.label in texts:
            return texts[self.label].decode("utf-8", "replace").strip()
        try:
            return str(json.loads(texts["json"])[self.label])
        except (KeyError, TypeError, ValueError, RecursionError):
            return folder


@dataclass(eq=False)
class _Sample:
    """The members with one name: its first image, and texts that may hold the label. Others are not read."""

    key: str
    suffix: str = ""  # of the image
    image: bytes = b""
    reason: str = ""  # why the image was not read
    texts: dict[str, bytes] = field(default_factory=dict)


def _unpacked(stream: Any, path: str) -> Any:
    return gzip.GzipFile(fileobj=stream) if path.endswith((".gz", ".tgz")) else stream


def _samples(stream: Any, *, label: str) -> Iterator[_Sample]:
    """Yield the samples that have an image; the members of a sample are consecutive."""
    sample = _Sample("")
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=StrictTarInfo) as tar:
        for info in tar:
            folder, slash, file = info.name.removeprefix("./").rpartition("/")
            stem, _, suffix = file.lower().partition(".")
            content = tar.extractfile(info) if info.isreg() else None
            if content is None or file.startswith("."):
                continue
            key = f"{folder}{slash}{file[: len(stem)]}"
            if key != sample.key:
                if sample.suffix:
                    yield sample
                sample = _Sample(key)
            if suffix in (label, "json"):
                sample.texts[suffix] = content.read(TEXT_BYTES)
            elif is_image(f"x.{suffix}") and not sample.suffix:
                sample.suffix, sample.reason = suffix, too_large(info.size)
                sample.image = b"" if sample.reason else content.read()
    if sample.suffix:
        yield sample


@dataclass(frozen=True, eq=False)
class ParquetReader:
    """Reads a parquet file row by row.

    The image column holds bytes, or a structure with ``bytes`` and perhaps ``path``; the label column texts or
    integers.
    """

    file: StoredFile
    image: str = "image"
    label: str = "label"

    def images(self) -> Iterator[RawImage]:
        """Yield the rows as images; damage ends the shard with one bad image that says where.

        Bytes that do not arrive are not damage but a ``StorageError``.
        """
        parquet, arrow = (import_extra(name, extra="ray") for name in ("pyarrow.parquet", "pyarrow"))
        split, row = split_of(self.file.name), 0
        try:
            with self.file.open() as stream, _limited_memory(PARQUET_MEMORY):
                table = parquet.ParquetFile(stream)
                self._check_columns(table.schema_arrow.names)
                for batch in table.iter_batches(ROWS_AT_ONCE, columns=[self.image, self.label]):
                    for image, label in zip(batch[self.image], batch[self.label], strict=True):
                        yield self._image(image.as_py(), label.as_py(), split, row)
                        row += 1
        except StorageError:
            raise
        except (arrow.ArrowException, OSError) as error:  # damaged pages are an OSError too
            reason = f"damaged or truncated after row {row} ({error})"
            yield RawImage(self.file.path, "", split, b"", reason)

    def _image(self, image: Any, label: object, split: int, row: int) -> RawImage:
        data = image.get("bytes") if isinstance(image, dict) else image
        reason = "no label" if label is None else "no bytes" if data is None else too_large(len(data))
        return _checked(f"{self.file.path}#{row}", "" if label is None else str(label), split, data, reason)

    def _check_columns(self, names: list[str]) -> None:
        for option, column in (("--image-column", self.image), ("--label-column", self.label)):
            if column not in names:
                raise InputError(
                    f"{self.file.path} has no column {column!r}",
                    hint=f"name one of {', '.join(names)} with {option}",
                    code="no_column",
                )


def _checked(name: str, label: str, split: int, data: Any, reason: str) -> RawImage:
    """Return an image; if it or its label cannot be used, it has a reason instead of bytes."""
    unusable = "its label holds a NUL character" if "\0" in label else ""
    if len(label) > LONGEST_LABEL:
        unusable = f"its label has {len(label):,} characters, the limit is {LONGEST_LABEL:,}"
    reason = reason or unusable
    return RawImage(name, "" if unusable else label, split, b"" if reason else bytes(data), reason)


@contextmanager
def _limited_memory(more: int) -> Iterator[None]:
    """Limit the additional memory of this process, if the system can do that (Linux)."""
    try:
        import resource

        lines = Path("/proc/self/status").read_text().splitlines()
    except (ImportError, OSError):
        yield
        return
    used = next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmData:"))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [used + more, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

"""Tar shards in the layout of webdataset: members of one name, less the suffix, are one sample."""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fiveshot.data.archives import StrictTarInfo
from fiveshot.data.folder import is_image
from fiveshot.data.limits import LIMITS
from fiveshot.scale.places import StoredFile
from fiveshot.scale.raw_image import RawImage, split_of

DAMAGE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError)


@dataclass(frozen=True, eq=False)
class TarReader:
    """Reads a tar from beginning to end, never unpacking it.

    The label is the text of the member with the suffix ``label`` (``0001.cls``), an entry of that name in
    ``0001.json``, or, where there is neither, the folder that the image lies in.
    """

    file: StoredFile
    label: str = "cls"

    def images(self) -> Iterator[RawImage]:
        """Yield the samples; damage ends the shard with one bad entry that says where.

        Bytes that do not arrive are no damage, but a ``StorageError``.
        """
        last = "the beginning"
        try:
            with self.file.open() as stream:
                for key, members in _samples(_unpacked(stream, self.file.path)):
                    last = key
                    yield from self._image(key, members)
        except DAMAGE as error:
            reason = f"damaged or truncated after {last} ({error})"
            yield RawImage(self.file.path, "", split_of(self.file.name), b"", reason)

    def _image(self, key: str, members: dict[str, bytes]) -> Iterator[RawImage]:
        suffix = next((suffix for suffix in members if is_image(f"x.{suffix}")), None)
        if suffix is None:
            return  # a sample of something else
        name = f"{self.file.path}/{key}.{suffix}"
        split = max(split_of(self.file.name), split_of(f"{PurePosixPath(key).parent}/image"))
        label = self._label(key, members)
        if not label:
            reason = f"no label: neither {key}.{self.label} nor a folder named after a class"
            yield RawImage(name, "", split, b"", reason)
        else:
            yield RawImage(name, label, split, members[suffix])

    def _label(self, key: str, members: dict[str, bytes]) -> str:
        if self.label in members:
            return members[self.label].decode("utf-8", "replace").strip()
        try:
            return str(json.loads(members["json"])[self.label])
        except (KeyError, TypeError, ValueError):
            return PurePosixPath(key).parent.name


def _unpacked(stream: Any, path: str) -> Any:
    return gzip.GzipFile(fileobj=stream) if path.endswith((".gz", ".tgz")) else stream


def _samples(stream: Any) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield key and members by suffix of each sample; its members follow one another."""
    current = ""
    members: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=StrictTarInfo) as tar:
        for info in tar:
            if not info.isreg() or PurePosixPath(info.name).name.startswith("."):
                continue
            if info.size > LIMITS.member_bytes:
                raise tarfile.ReadError(f"member {info.name!r} is larger than {LIMITS.member_bytes:,} bytes")
            folder, slash, file = info.name.removeprefix("./").rpartition("/")
            stem, _, suffix = file.partition(".")
            key = f"{folder}{slash}{stem}"
            if key != current and members:
                yield current, members
                members = {}
            current = key
            content = tar.extractfile(info)
            members[suffix.lower()] = content.read() if content is not None else b""
    if members:
        yield current, members

"""Where an image's bytes come from: a file, a member of an archive, or an array in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fiveshot.data.archives import open_archive
from fiveshot.errors import InputError


class ImageError(InputError):
    """One image that cannot be used: its name and the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)  # both as args, so that it survives the way back from a worker process
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot use image {self.name}: {self.reason}"


class ImageSource(Protocol):
    """An image that has a stable relative name and can be read, also after a trip to another process."""

    @property
    def name(self) -> str:
        """Relative name with forward slashes: in errors, caches and session lists."""

    def read(self) -> bytes:
        """Return the encoded image, or raise :class:`ImageError`."""


@dataclass(frozen=True)
class FileSource:
    """An image in a file."""

    path: Path
    name: str

    def read(self) -> bytes:
        """Return the bytes of the file."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise ImageError(self.name, f"cannot read {self.path}: {error.strerror or error}") from error


@dataclass(frozen=True)
class ArchiveSource:
    """An image inside a tar or zip archive; the archive's index is built once per process."""

    archive: Path
    member: str
    name: str

    def read(self) -> bytes:
        """Return the bytes of the member."""
        try:
            return open_archive(self.archive).read(self.member)
        except InputError as error:
            raise ImageError(self.name, str(error)) from error


@dataclass(frozen=True, eq=False)
class ArraySource:
    """An image in memory, (height, width, 3) of uint8.

    >>> import numpy as np
    >>> ArraySource(np.zeros((1, 2, 3), np.uint8), "train/00000").read()
    b'P6 2 1 255\\n\\x00\\x00\\x00\\x00\\x00\\x00'
    """

    array: NDArray[np.uint8]
    name: str

    def read(self) -> bytes:
        """Return the image as PPM: a header before the pixels as they are."""
        height, width, _ = self.array.shape
        return f"P6 {width} {height} 255\n".encode() + self.array.tobytes()


StoredSource = FileSource | ArchiveSource


def identity(source: ImageSource) -> str:
    """Return a digest of the image's content, which neither its name nor its place can change.

    >>> import numpy as np
    >>> black = np.zeros((1, 1, 3), np.uint8)
    >>> identity(ArraySource(black, "a")) == identity(ArraySource(black, "b"))
    True
    """
    return hashlib.sha256(source.read()).hexdigest()

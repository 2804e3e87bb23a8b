"""Where an image's bytes come from: a file, a member of an archive, or memory."""

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
    """One image that cannot be used: its ``name`` and the ``reason``; ``code`` tells one that is too large.

    >>> print(ImageError("cat/1.jpg", "the file is empty"))
    cannot use image cat/1.jpg: the file is empty
    """

    def __init__(self, name: str, reason: str, *, code: str = "bad_image") -> None:
        super().__init__(f"cannot use image {name}: {reason}", code=code)
        self.name = name
        self.reason = reason


class ImageSource(Protocol):
    """An image that has a stable relative name and can be read, also after a trip to another process.

    Anything with these two is one:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class RedPixel:
    ...     name: str
    ...     def read(self) -> bytes:
    ...         return b"P6 1 1 255 " + bytes([255, 0, 0])
    >>> from fiveshot.data import decode
    >>> decode(RedPixel("red/1")).getpixel((0, 0))
    (255, 0, 0)
    """

    @property
    def name(self) -> str:
        """Relative name with forward slashes: in errors, caches and session lists."""

    def read(self) -> bytes:
        """Return the encoded image, or raise ``ImageError``."""


@dataclass(frozen=True)
class FileSource:
    """An image in a file, ``path``; ``name`` is what errors and session lists call it.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.data import FileSource
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     photo = Path(folder, "1.jpg")
    ...     _ = photo.write_bytes(b"the bytes of a photo")
    ...     FileSource(photo, name="wren/1.jpg").read()
    b'the bytes of a photo'
    """

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
    """An image inside a tar or zip archive; the archive's index is built once per process.

    >>> import tempfile, zipfile
    >>> from pathlib import Path
    >>> from fiveshot.data import ArchiveSource
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with zipfile.ZipFile(f"{folder}/birds.zip", "w") as archive:
    ...         archive.writestr("wren/1.jpg", b"the bytes of a photo")
    ...     ArchiveSource(Path(folder, "birds.zip"), member="wren/1.jpg", name="wren/1.jpg").read()
    b'the bytes of a photo'
    """

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


@dataclass(frozen=True)
class BytesSource:
    """An encoded image in memory, ``data``, as an upload or a database gives it.

    >>> from fiveshot.data import BytesSource, decode
    >>> decode(BytesSource(b"P5 1 1 255 \\x00", "black.pgm")).getpixel((0, 0))
    (0, 0, 0)
    """

    data: bytes
    name: str

    def read(self) -> bytes:
        """Return the bytes as they were given."""
        return self.data


StoredSource = FileSource | ArchiveSource


def identity(source: ImageSource) -> str:
    """Return a digest of the image's content, which neither its name nor its place can change.

    >>> import numpy as np
    >>> black = np.zeros((1, 1, 3), np.uint8)
    >>> identity(ArraySource(black, "a")) == identity(ArraySource(black, "b"))
    True
    """
    return hashlib.sha256(source.read()).hexdigest()

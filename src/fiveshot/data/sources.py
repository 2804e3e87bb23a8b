"""Sources of an image's bytes: a file, a member of an archive, or memory.

Every command reads photos through this module. It reads only regular files, and none that is too large.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fiveshot.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_PHOTO_BYTES = 256 * 1024 * 1024
"""The largest file that is read as a photo, in bytes: a 16-bit TIFF of 40 megapixels fits.

Examples
--------
>>> MAX_PHOTO_BYTES == 2**28
True
"""
_CHUNK = 1 << 20  # bytes read at a time
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class ImageError(InputError):
    """One image that cannot be used.

    Parameters
    ----------
    name : str
        The image.
    reason : str
        Why it cannot be used.
    code : str
        ``bad_image``, or ``image_too_large`` for one with too many bytes or pixels.

    Examples
    --------
    >>> print(ImageError("cat/1.jpg", "the file is empty"))
    cannot use image cat/1.jpg: the file is empty
    """

    def __init__(self, name: str, reason: str, *, code: str = "bad_image") -> None:
        super().__init__(f"cannot use image {name}: {reason}", code=code)
        self.name = name
        self.reason = reason


class ImageSource(Protocol):
    """An image with a stable relative name that can be read, also in another process.

    Examples
    --------
    Any object with these two members is a source:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Downloaded:
    ...     name: str
    ...     def read(self) -> bytes:
    ...         return b"the bytes of a photo"
    >>> source: ImageSource = Downloaded("red/1.jpg")
    >>> source.read()
    b'the bytes of a photo'
    """

    @property
    def name(self) -> str:
        """Relative name with forward slashes: in errors, caches and session lists."""

    def read(self) -> bytes:
        """Return the encoded image, or raise ``ImageError``."""


def read_regular(path: Path, *, limit: int = MAX_PHOTO_BYTES) -> bytes:
    """Return the bytes of a regular file of at most ``limit`` bytes; ``OSError`` or ``ImageError`` otherwise.

    A pipe, a device, a folder or a link to one is refused without opening it, because opening could block for
    ever.
    """
    with open_regular(path, limit) as file:
        data = file.read(limit + 1)
    if len(data) > limit:  # the file grew, or its kind does not report its size
        raise _too_large(path, len(data), limit)
    return data


@contextmanager
def open_regular(path: Path, limit: int = sys.maxsize) -> Iterator[io.BufferedReader]:
    """Open a regular file of at most ``limit`` bytes; anything else is refused at once, as by ``read_regular``."""
    _check_status(path, path.stat(), limit)
    # The file may have changed since the check. With these flags, opening a pipe does not block either.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        _check_status(path, os.fstat(file.fileno()), limit)
        yield file


def _check_status(path: Path, status: os.stat_result, limit: int) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise ImageError(str(path), f"it is {_KINDS.get(kind, 'a special file')}, not a file")
    if status.st_size > limit:
        raise _too_large(path, status.st_size, limit)


def _too_large(name: object, size: int, limit: int) -> ImageError:
    reason = f"too large: {size:,} bytes, the limit is {limit:,}"
    return ImageError(str(name), reason, code="image_too_large")


@dataclass(frozen=True)
class FileSource:
    """An image in a file.

    Parameters
    ----------
    path : Path
        The file.
    name : str
        What errors and session lists call it.

    Examples
    --------
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

    def check(self) -> None:
        """Refuse a file that is not regular or is too large, without opening it."""
        with self._named():
            _check_status(self.path, self.path.stat(), MAX_PHOTO_BYTES)

    def read(self) -> bytes:
        """Return the bytes of the file."""
        with self._named():
            return read_regular(self.path)

    def digest(self) -> bytes:
        """Return the SHA-256 of the file, read in chunks."""
        found = hashlib.sha256()
        with self._named(), open_regular(self.path, MAX_PHOTO_BYTES) as file:
            for _ in range(0, MAX_PHOTO_BYTES, _CHUNK):  # bounded, because a file may grow meanwhile
                if not (chunk := file.read(_CHUNK)):
                    break
                found.update(chunk)
        return found.digest()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except ImageError as error:
            raise ImageError(self.name, error.reason, code=error.code) from None
        except OSError as error:
            raise ImageError(self.name, f"cannot read {self.path}: {error.strerror or error}") from error


@dataclass(frozen=True)
class ArchiveSource:
    """An image inside a tar or zip archive; the archive's index is built once per process.

    Parameters
    ----------
    archive : Path
        The archive.
    member : str
        The name of the image in it.
    name : str
        What errors and session lists call it.

    Examples
    --------
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
        from fiveshot.data.archives import open_archive  # decoder processes do not need it

        try:
            archive = open_archive(self.archive)
            size = archive.size(self.member)
            if size > MAX_PHOTO_BYTES:
                raise _too_large(self.name, size, MAX_PHOTO_BYTES)
            return archive.read(self.member)
        except ImageError:
            raise
        except InputError as error:
            raise ImageError(self.name, str(error)) from error


@dataclass(frozen=True, eq=False)
class ArraySource:
    """An image in memory.

    Parameters
    ----------
    array : ndarray of shape (height, width, 3)
        The pixels, uint8.
    name : str
        What errors and session lists call it.

    Examples
    --------
    >>> import numpy as np
    >>> ArraySource(np.zeros((1, 2, 3), np.uint8), "train/00000").read()[:2]
    b'BM'
    """

    array: NDArray[np.uint8]
    name: str

    def read(self) -> bytes:
        """Return the image as BMP: a header, then the unchanged pixels."""
        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(self.array).save(buffer, "BMP")
        return buffer.getvalue()

    def digest(self) -> bytes:
        """Return a SHA-256 of shape and pixels; this is much faster than hashing the BMP."""
        found = hashlib.sha256(str(self.array.shape).encode())
        found.update(self.array.tobytes())
        return found.digest()


@dataclass(frozen=True)
class BytesSource:
    """An encoded image in memory, such as an upload or a database entry.

    Parameters
    ----------
    data : bytes
        The encoded image.
    name : str
        What errors call it.

    Examples
    --------
    >>> from fiveshot.data import BytesSource
    >>> BytesSource(b"the bytes of a photo", "upload.jpg").read()
    b'the bytes of a photo'
    """

    data: bytes
    name: str

    def read(self) -> bytes:
        """Return the bytes unchanged."""
        return self.data


def image_digest(source: ImageSource) -> bytes:
    """Return the SHA-256 of an encoded image, or of the pixels of an array, or raise ``ImageError``.

    >>> image_digest(BytesSource(b"the bytes of a photo", "upload.jpg")).hex()[:8]
    'c1fb0fd6'
    """
    return (
        source.digest() if isinstance(source, FileSource | ArraySource) else hashlib.sha256(source.read()).digest()
    )


def content_mark(source: ImageSource) -> str:
    """Return the first 16 digits of what ``image_digest`` returns, or raise ``ImageError``.

    >>> content_mark(BytesSource(b"the bytes of a photo", "upload.jpg"))
    'c1fb0fd6caaad59b'
    """
    return image_digest(source).hex()[:16]


StoredSource = FileSource | ArchiveSource

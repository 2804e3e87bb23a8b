"""Two marks of an image: a quick one that reads no image, and its content's SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import ArchiveSource, FileSource, ImageError, ImageSource

QUICK_BYTES = 16
CONTENT_BYTES = 32
UNREADABLE = bytes(CONTENT_BYTES)  # instead of the content of an image that cannot be read


def quick_marks(images: Sequence[ImageSource]) -> NDArray[np.uint8]:
    """Return one quick mark for each image (n_images, 16).

    It is made of the path, size and times of last change of the file or archive; the time of the last change
    of the file's entry, which cannot be set by hand, is among them. What lies in memory is marked by content.

    >>> import numpy as np
    >>> from fiveshot.data import ArraySource
    >>> black = ArraySource(np.zeros((1, 1, 3), np.uint8), "black")
    >>> quick_marks([black, black]).shape
    (2, 16)
    """
    marks = b"".join(_quick(image) for image in images)
    return np.frombuffer(marks, np.uint8).reshape(len(images), QUICK_BYTES)


def content_mark(data: bytes) -> bytes:
    """Return the mark of an image's bytes: 32 of them."""
    return hashlib.sha256(data).digest()


def content_marks(images: Sequence[ImageSource]) -> NDArray[np.uint8]:
    """Read all images and return their contents' marks (n_images, 32)."""
    marks = b"".join(_content(image) for image in images)
    return np.frombuffer(marks, np.uint8).reshape(len(images), CONTENT_BYTES)


def _quick(image: ImageSource) -> bytes:
    if isinstance(image, FileSource):
        text = _status(image.path)
    elif isinstance(image, ArchiveSource):
        text = f"{_status(image.archive)} {image.member}"
    else:
        return _content(image)[:QUICK_BYTES]
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=QUICK_BYTES).digest()


def _status(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return f"{path.absolute()} unreadable"
    return f"{path.absolute()} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _content(image: ImageSource) -> bytes:
    try:
        return content_mark(image.read())
    except ImageError:
        return UNREADABLE

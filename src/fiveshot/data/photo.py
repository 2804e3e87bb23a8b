"""A photo before it is decoded: its source and, optionally, a box in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from fiveshot.data.decoding import decode
from fiveshot.data.reduction import Box
from fiveshot.data.sources import BytesSource, ImageError, ImageSource
from fiveshot.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo, or the part of it in a box, that is read when it is needed.

    Parameters
    ----------
    source : ImageSource
        Where its bytes come from.
    box : Box, optional
        The part of the photo to use; by default all of it.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, Photo
    >>> photo = Photo(ArraySource(np.zeros((1, 1, 3), np.uint8), "black.bmp"))
    >>> photo.name, photo.image().size, len(photo.sha256)
    ('black.bmp', (1, 1), 64)
    """

    source: ImageSource
    box: Box | None = None

    @property
    def name(self) -> str:
        """The name of the photo in reports and errors; for a file, the path as given."""
        return self.source.name

    def read(self) -> bytes:
        """Return the encoded bytes."""
        return self.source.read()

    @cached_property
    def sha256(self) -> str:
        """Digest of the encoded bytes; it identifies the same file under another name."""
        return self.digest(hashlib.sha256(self.read()).hexdigest())

    def digest(self, file: str) -> str:
        """Return the digest of the photo from the digest of its file: two boxes in one file are two photos."""
        return file if self.box is None else hashlib.sha256(f"{file} {self.box}".encode()).hexdigest()

    def image(self) -> Image:
        """Return the picture in RGB, upright; raise ``ImageError`` if it is not a photo."""
        picture = decode(self.source)
        if self.box is None:
            return picture
        try:
            return picture.crop(self.box.pixels(picture.size))
        except InputError as error:
            raise ImageError(self.name, error.message, code=error.code) from error

    def loaded(self) -> Photo:
        """Return the photo with its bytes in memory, so that digest and picture come from one reading."""
        return replace(self, source=BytesSource(self.read(), self.name))


def by_source(photos: Iterable[Photo]) -> Iterator[list[Photo]]:
    """Group consecutive photos of the same source.

    Examples
    --------
    >>> from fiveshot.data import Box, BytesSource, Photo, by_source
    >>> one, other = BytesSource(b"", "one.jpg"), BytesSource(b"", "other.jpg")
    >>> photos = [Photo(one, Box(0, 0, 9, 9)), Photo(one, Box(5, 5, 9, 9)), Photo(other)]
    >>> [len(same) for same in by_source(photos)]
    [2, 1]
    """
    for _, same in groupby(photos, key=lambda photo: (id(photo.source), photo.box is None)):
        yield list(same)

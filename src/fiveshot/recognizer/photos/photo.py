"""One photo: a name to speak of it, its bytes, the picture, and a small copy."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fiveshot.data import MAX_PIXELS, BytesSource, ImageError, ImageSource, decode, decoders
from fiveshot.data.decoder_process import Reduction
from fiveshot.data.decoding import nothing
from fiveshot.data.reduction import Box, Cropped
from fiveshot.errors import InputError
from fiveshot.recognizer.store.rows import MAX_THUMBNAIL

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_THUMBNAIL_PIXELS = 512 * 512  # whoever made it
_AS_THEY_ARE = ("L", "RGB", "RGBA", "I", "F", "I;16")  # modes that TIFF keeps and `decode` understands


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo that is read when it is needed; an error names it.

    >>> import numpy as np
    >>> from fiveshot.data import ArraySource
    >>> photo = Photo(ArraySource(np.zeros((1, 1, 3), np.uint8), "black.bmp"))
    >>> photo.name, photo.image().size, len(photo.sha256)
    ('black.bmp', (1, 1), 64)
    """

    source: ImageSource
    box: Box | None = None  # the part of it that is meant

    @property
    def name(self) -> str:
        """What the photo is called in reports and errors: the path as it was given, where there is one."""
        return self.source.name

    def read(self) -> bytes:
        """Return the encoded bytes."""
        return self.source.read()

    @cached_property
    def sha256(self) -> str:
        """Digest of the encoded bytes, which tells the same file under another name."""
        return self.digest(hashlib.sha256(self.read()).hexdigest())

    def digest(self, file: str) -> str:
        """Return the digest of the photo, given that of its file: two parts of one file are two photos."""
        return file if self.box is None else hashlib.sha256(f"{file} {self.box}".encode()).hexdigest()

    def reduction(self, whole: Reduction) -> Reduction:
        """Return what makes of the part that is meant what ``whole`` makes of a picture."""
        return whole if self.box is None else Cropped(self.box, whole)

    def image(self) -> Image:
        """Return the picture in RGB, upright; what is not a photo is refused by name."""
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


def check_digest(sha256: object, name: str) -> None:
    """Refuse what is not a SHA-256 as it is written here: 64 digits, small letters."""
    if not isinstance(sha256, str) or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise InputError(f"the SHA-256 of {name} is not 64 hexadecimal digits, but {str(sha256)[:70]!r}")


def check_thumbnail(data: bytes, name: str) -> None:
    """Refuse a small copy that is not a small JPEG or WebP."""
    if len(data) > MAX_THUMBNAIL or not (data[:3] == b"\xff\xd8\xff" or data[8:12] == b"WEBP"):
        raise InputError(f"the thumbnail of {name} is too large, or neither JPEG nor WebP")
    decoders().reduce(BytesSource(data, f"thumbnail of {name}"), nothing, max_pixels=MAX_THUMBNAIL_PIXELS)


def picture_source(image: Any, name: str) -> BytesSource:
    """Return a PIL image as an encoded one without loss, upright and without its metadata."""
    from PIL import Image, ImageOps

    if 0 in image.size:
        raise ImageError(name, f"the picture is empty: {image.width} x {image.height} pixels")
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(name, f"too large: {image.width} x {image.height}, the limit is {MAX_PIXELS:,} pixels")
    try:
        upright = ImageOps.exif_transpose(image)
        transparent = "A" in upright.mode or "a" in upright.mode or "transparency" in upright.info
        if transparent:
            upright = upright.convert("RGBA")
        elif upright.mode not in _AS_THEY_ARE:
            upright = upright.convert("RGB")
        clean = Image.frombytes(upright.mode, upright.size, upright.tobytes())
    except Exception as error:  # an image opened lazily finds out here that its file is damaged
        raise ImageError(name, f"damaged or truncated ({error})") from error
    buffer = io.BytesIO()
    clean.save(buffer, "TIFF")
    return BytesSource(buffer.getvalue(), name)

"""One photo: a name to speak of it, its bytes, the picture, and a small copy."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fiveshot.backbones import Preprocessing
from fiveshot.data import MAX_PIXELS, BytesSource, ImageError, ImageSource, decode, decoders
from fiveshot.data.decoding import nothing
from fiveshot.errors import InputError
from fiveshot.recognizer.store.rows import MAX_THUMBNAIL

if TYPE_CHECKING:
    from PIL.Image import Image

THUMBNAIL = 128  # pixels of the longer side
MAX_THUMBNAIL_PIXELS = 512 * 512  # whoever made it
# How a copy of a photo is encoded: the first way that is not much larger than the file that came.
ENCODINGS: tuple[tuple[str, dict[str, int]], ...] = (
    ("JPEG", {"quality": 95, "subsampling": 0}),
    ("PNG", {"compress_level": 6}),  # drawings and flat pictures
    ("JPEG", {"quality": 80}),
    ("JPEG", {"quality": 60}),
)
GROWTH, SMALL_COPY = 2, 256 * 1024  # a copy may be twice as large as the file, or this many bytes
_QUALITY = 80
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
        return hashlib.sha256(self.read()).hexdigest()

    def image(self) -> Image:
        """Return the picture in RGB, upright; what is not a photo is refused by name."""
        return decode(self.source)

    def loaded(self) -> Photo:
        """Return the photo with its bytes in memory, so that digest and picture come from one reading."""
        return replace(self, source=BytesSource(self.read(), self.name))


def thumbnail(image: Image, size: int = THUMBNAIL) -> bytes:
    """Return a small JPEG of the picture: upright, and without the metadata of the original.

    >>> import PIL.Image
    >>> PIL.Image.open(io.BytesIO(thumbnail(PIL.Image.new("RGB", (500, 250))))).size
    (128, 64)
    """
    from PIL import Image, ImageOps

    small = ImageOps.exif_transpose(image).convert("RGB")
    small.thumbnail((size, size), Image.Resampling.LANCZOS)
    clean = Image.frombytes("RGB", small.size, small.tobytes())  # pixels alone: no EXIF, no place, no profile
    buffer = io.BytesIO()
    clean.save(buffer, "JPEG", quality=_QUALITY, optimize=True)
    return buffer.getvalue()


@dataclass(frozen=True)
class Parts:
    """What is made of a photo where it is decoded: pixels for the backbone, and small copies that are kept.

    >>> import PIL.Image
    >>> parts = Parts(Preprocessing(size=8, resize=8), thumbnail=True)
    >>> pixels, small, copy = parts(PIL.Image.new("RGB", (500, 250)))
    >>> len(pixels), small[:2], copy
    (192, b'\\xff\\xd8', None)
    """

    preprocessing: Preprocessing
    thumbnail: bool = False
    copy_of: int | None = None  # bytes of the file that came, where a copy without metadata is kept

    def __call__(self, image: Image) -> tuple[bytes, bytes | None, bytes | None]:
        """Return pixels, thumbnail and copy."""
        (pixels,) = self.preprocessing.pixel_bytes(image)
        small = thumbnail(image) if self.thumbnail else None
        return pixels, small, None if self.copy_of is None else clean_copy(image, self.copy_of)


def clean_copy(image: Image, size: int) -> bytes:
    """Return the picture upright and without metadata, not much larger than the ``size`` of the file that came.

    >>> from PIL import Image
    >>> drawing = Image.new("RGB", (4000, 3000), "red")
    >>> len(clean_copy(drawing, 40_000)) < 256 * 1024
    True
    """
    from PIL import Image

    bare = Image.frombytes("RGB", image.size, image.tobytes())
    copies = []
    for kind, options in ENCODINGS:
        buffer = io.BytesIO()
        bare.save(buffer, kind, **options)
        copies.append(buffer.getvalue())
        if len(copies[-1]) <= max(GROWTH * size, SMALL_COPY):
            return copies[-1]
    return min(copies, key=len)


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

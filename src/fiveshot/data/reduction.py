"""What is made of a photo where it is decoded: the square that a network takes, and small copies that are kept.

Processes that decode import this, so it needs Pillow alone.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiveshot.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

THUMBNAIL = 128  # pixels of the longer side
LONGEST_SIDE = 100  # times the short one: the center crop of a longer strip shows nothing of it
# How a copy of a photo is encoded: the first way that is not much larger than the file that came.
ENCODINGS: tuple[tuple[str, dict[str, int]], ...] = (
    ("JPEG", {"quality": 95, "subsampling": 0}),
    ("PNG", {"compress_level": 6}),  # drawings and flat pictures
    ("JPEG", {"quality": 80}),
    ("JPEG", {"quality": 60}),
)
GROWTH, SMALL_COPY = 2, 256 * 1024  # a copy may be twice as large as the file, or this many bytes
_QUALITY = 80


@dataclass(frozen=True)
class Square:
    """Scales and crops a photo to a square.

    The short side becomes ``resize`` pixels long, the long one in proportion (rounded down), and the center is cut
    out; with ``squash``, both sides get that length first. A strip is refused.

    >>> import PIL.Image
    >>> Square(size=224, resize=256)(PIL.Image.new("RGB", (500, 375))).size
    (224, 224)
    """

    size: int
    resize: int
    interpolation: str = "bicubic"
    squash: int | None = None

    def __call__(self, picture: Image) -> Image:
        """Return the square of a picture in RGB."""
        _check_shape(picture.size)
        if self.squash is not None:
            picture = _resized(picture, self.squash, self.squash, self.squash, self.interpolation)
        short = min(picture.size)
        width, height = (int(self.resize * side / short) for side in picture.size)
        return _resized(picture, width, height, self.size, self.interpolation)


@dataclass(frozen=True)
class Parts:
    """What is made of a photo where it is decoded: pixels for the backbone, and small copies that are kept.

    >>> import PIL.Image
    >>> parts = Parts(Square(size=8, resize=8), thumbnail=True)
    >>> pixels, small, copy = parts(PIL.Image.new("RGB", (500, 250)))
    >>> len(pixels), small[:2], copy
    (192, b'\\xff\\xd8', None)
    """

    square: Square
    thumbnail: bool = False
    copy_of: int | None = None  # bytes of the file that came, where a copy without metadata is kept

    def __call__(self, image: Image) -> tuple[bytes, bytes | None, bytes | None]:
        """Return pixels, thumbnail and copy."""
        pixels = self.square(image).tobytes()
        small = thumbnail(image) if self.thumbnail else None
        return pixels, small, None if self.copy_of is None else clean_copy(image, self.copy_of)


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


def clean_copy(image: Image, size: int) -> bytes:
    """Return the picture upright, without metadata, and at most twice the ``size`` of the file that came.

    A copy of up to 256 kB is never too large. Where no encoding is so small, the picture is halved until one is.

    >>> from PIL import Image
    >>> drawing = Image.new("RGB", (4000, 3000), "red")
    >>> len(clean_copy(drawing, 40_000)) < 256 * 1024
    True
    """
    from PIL import Image

    bare = Image.frombytes("RGB", image.size, image.tobytes())
    while True:
        for kind, options in ENCODINGS:
            buffer = io.BytesIO()
            bare.save(buffer, kind, **options)
            if buffer.tell() <= max(GROWTH * size, SMALL_COPY):
                return buffer.getvalue()
        # A format that packs far better, or noise made to grow: fewer pixels, so that the limit holds.
        bare = bare.resize((max(1, bare.width // 2), max(1, bare.height // 2)), Image.Resampling.LANCZOS)


def _resized(picture: Image, width: int, height: int, side: int, interpolation: str) -> Image:
    """Return the center of a picture that is resized to ``width`` and ``height``: a square of this side.

    Rows are resized and cropped before columns are. So no picture in between is larger than the photo or, with
    the longest shape that is allowed, than 26 MB. Pillow in one call does the same, but from release 13 on
    begins with the columns where that is faster. The two orders round differently, and pixels must not depend
    on the release.
    """
    from PIL.Image import Resampling

    mode = Resampling[interpolation.upper()]
    left, top = round((width - side) / 2), round((height - side) / 2)
    rows = picture.resize((width, picture.height), mode).crop((left, 0, left + side, picture.height))
    return rows.resize((side, height), mode).crop((0, top, side, top + side))


def _check_shape(size: tuple[int, int]) -> None:
    """Refuse a strip so long that its center shows nothing of it."""
    short, long = sorted(size)
    if long > LONGEST_SIDE * short:
        raise InputError(
            f"{size[0]} x {size[1]} pixels: one side is more than {LONGEST_SIDE} times the other",
            hint="cut out the part that matters",
            code="too_long",
        )

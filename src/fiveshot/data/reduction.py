"""Reduce a decoded photo: cut out a part, scale it to a network's input squares, make small copies.

The decoder processes import this module, so it depends only on Pillow.
"""

from __future__ import annotations

import io
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiveshot.data.sources import MAX_PHOTO_BYTES
from fiveshot.errors import InputError, is_number

if TYPE_CHECKING:
    from PIL.Image import Image

# Detectors round, so a box may cross the edge by this much (in pixels, or as a share of the side). It is clipped.
_PIXELS_OVER, _SHARE_OVER = 2.0, 0.01
EXAMPLE = "give x,y,width,height of the part, such as 40,60,200,150 in pixels or 0.1,0.2,0.5,0.5 as shares"
THUMBNAIL_SIZE = 128  # pixels of the longer side
LONGEST_SIDE = 100  # times the short side; the center crop of a longer strip shows almost nothing
INNER_VIEW = 0.75  # of the center crop's side
# The average of several views describes a photo better than one view. With two views, one shows the whole photo,
# also outside the center crop, and one shows the center closely. docs/how-to/backbone.md says how they were
# chosen.
VIEWS: dict[int, tuple[str, ...]] = {
    1: ("center",),
    2: ("whole", "inner"),
    4: ("whole", "inner", "center", "mirrored center"),
}
# Encodings for the copy of a photo: the first whose result is not much larger than the original file is used.
ENCODINGS: tuple[tuple[str, dict[str, int]], ...] = (
    ("JPEG", {"quality": 95, "subsampling": 0}),
    ("PNG", {"compress_level": 6}),  # drawings and flat pictures
    ("JPEG", {"quality": 80}),
    ("JPEG", {"quality": 60}),
)
GROWTH, SMALL_COPY = 2, 256 * 1024  # a copy may be twice as large as the file, or this many bytes
# Where a square begins if its corner lies between two pixels: at the even one in torchvision, at the first one in
# transformers.
ROUNDINGS: dict[str, Callable[[float], int]] = {"even": round, "down": math.floor}
_QUALITY = 80
# The parts of a JPEG file that hold the picture: tables, the size, the intervals. All others are metadata.
_JPEG_TABLES, _JPEG_SIZE, _JPEG_PIXELS = (b"\xff\xdb", b"\xff\xc4", b"\xff\xdd"), b"\xff\xc0", b"\xff\xda"
_JFIF = re.compile(rb"\xff\xe0\0\x10JFIF\0.{7}\0\0", re.DOTALL)  # without a preview
_JPEG_MARKER = re.compile(rb"\xff[^\0\xd0-\xd7]")  # the marker after the pixels
_TRIES = 10  # attempts to draw a random crop
PixelBox = tuple[int, int, int, int]  # top, left, height, width


@dataclass(frozen=True)
class Box:
    """A rectangle in an upright photo: its upper left corner, its width and its height.

    If all four numbers are at most 1, they are shares of the photo's sides; otherwise they are pixels.

    Parameters
    ----------
    x, y : float
        The upper left corner, measured from the upper left corner of the photo.
    width, height : float
        The size; both above zero.

    Raises
    ------
    InputError
        With the code ``bad_box`` when a number is not finite, or the box is empty.

    Examples
    --------
    >>> Box(0.5, 0, 0.5, 1).pixels((640, 480))
    (320, 0, 640, 480)
    >>> Box.parse("40,60,200,150")
    Box(x=40, y=60, width=200, height=150)
    >>> Box(10, 10, 0, 5)
    Traceback (most recent call last):
    fiveshot.errors.InputError: the box 10,10,0,5 is empty
    """

    x: float
    y: float
    width: float
    height: float

    def __post_init__(self) -> None:
        if not all(is_number(value) and math.isfinite(value) for value in self.values):
            raise bad_box(f"the box {self} has a number that is not finite")
        for name, value in zip(("x", "y", "width", "height"), self.values, strict=True):
            # Convert to plain Python numbers, because they go into JSON.
            object.__setattr__(self, name, int(value) if is_number(value, whole=True) else float(value))
        if self.width <= 0 or self.height <= 0:
            raise bad_box(f"the box {self} is empty")

    @classmethod
    def parse(cls, text: str) -> Box:
        """Return the box for a text such as ``40,60,200,150``."""
        try:
            numbers = [_number(part) for part in text.split(",")]
        except ValueError:
            raise bad_box(f"the box {text!r} is not four numbers") from None
        return cls.of(numbers)

    @classmethod
    def of(cls, numbers: object) -> Box:
        """Return a box of four numbers, or the box itself."""
        if isinstance(numbers, Box):
            return numbers
        if not isinstance(numbers, Sequence) or isinstance(numbers, str) or len(numbers) != 4:
            raise bad_box(f"the box {str(numbers)[:80]!r} is not four numbers")
        return cls(*numbers)

    @property
    def values(self) -> tuple[float, float, float, float]:
        """The four numbers, as they were given."""
        return self.x, self.y, self.width, self.height

    @property
    def in_shares(self) -> bool:
        """Whether the numbers are shares of the photo's sides, not pixels."""
        return all(abs(value) <= 1 + _SHARE_OVER for value in self.values)

    @property
    def fits_some_picture(self) -> bool:
        """Whether it begins inside of a picture and, in shares, ends there.

        >>> Box(0.5, 0, 0.5, 1).fits_some_picture, Box(0.9, 0, 0.5, 1).fits_some_picture
        (True, False)
        """
        over = _SHARE_OVER if self.in_shares else _PIXELS_OVER
        ends = max(self.x + self.width, self.y + self.height)
        return min(self.x, self.y) >= -over and (ends <= 1 + over or not self.in_shares)

    def pixels(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom in a picture of this size; refuse a box that lies outside of it."""
        found = []
        for start, length, side in zip(self.values[:2], self.values[2:], size, strict=True):
            scale = side if self.in_shares else 1
            first, last, over = start * scale, (start + length) * scale, max(_PIXELS_OVER, _SHARE_OVER * side)
            if first < -over or last > side + over:
                raise bad_box(f"the box {self} lies outside of the picture, which is {size[0]} x {size[1]} pixels")
            found.append((max(0, round(first)), min(side, round(last))))
        (left, right), (top, bottom) = found
        if left >= right or top >= bottom:
            raise bad_box(f"the box {self} is empty in a picture of {size[0]} x {size[1]} pixels")
        return left, top, right, bottom

    def __str__(self) -> str:
        return ",".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in self.values)


def bad_box(message: str) -> InputError:
    """Return the error for a box that cannot be used."""
    return InputError(message, hint=EXAMPLE, code="bad_box")


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and "." not in text and "e" not in text.lower() else value


@dataclass(frozen=True)
class Squares:
    """Scales and crops a photo to squares, one for each view.

    ``center``: the short side becomes ``resize`` pixels long, the long one in proportion (rounded down), and the
    center is cut out. ``inner``: the same with three quarters of that square's side. ``whole``: the whole photo,
    squeezed. With ``squash``, both sides get that length before anything else. A strip is refused. ``rounding``
    says where a square begins whose corner lies between two pixels: see ``ROUNDINGS``.

    >>> import PIL.Image
    >>> [view.size for view in Squares(size=224, resize=256, views=2)(PIL.Image.new("RGB", (500, 375)))]
    [(224, 224), (224, 224)]
    """

    size: int
    resize: int
    interpolation: str = "bicubic"
    squash: int | None = None
    views: int = 1
    rounding: str = "even"

    def __call__(self, picture: Image) -> list[Image]:
        """Return the squares of a picture in RGB, one for each view."""
        check_shape(picture.size)
        if self.squash is not None:
            picture = _resized(picture, (self.squash, self.squash), self.squash, self.interpolation, self.rounding)
        made: dict[str, Image] = {}
        squares = []
        for name in VIEWS[self.views]:
            part = name.removeprefix("mirrored ")
            if part not in made:
                made[part] = self.part(picture, part)
            squares.append(made[part] if name == part else _mirrored(made[part]))
        return squares

    def part(self, picture: Image, part: str) -> Image:
        """Return the square for one part of a picture: ``center``, ``inner`` or ``whole``."""
        return _resized(picture, self.scaled(picture.size, part), self.size, self.interpolation, self.rounding)

    def scaled(self, sides: tuple[int, int], part: str) -> tuple[int, int]:
        """Return the width and height to which a picture is scaled before its center square is cut out.

        >>> Squares(size=224, resize=256).scaled((500, 375), "center")
        (341, 256)
        """
        if part == "whole":
            return self.size, self.size
        target = self.resize if part == "center" else round(self.resize / INNER_VIEW)
        one, other = (int(target * side / min(sides)) for side in sides)
        return one, other


def random_crop_box(
    height: int, width: int, *, scale: tuple[float, float], ratio: tuple[float, float], rng: random.Random
) -> PixelBox:
    """Draw the box of a random resized crop: its share of the area, its proportions, its place.

    Share uniform in ``scale``, proportions log-uniform in ``ratio``. Boxes that stick out are drawn again;
    after ten tries the largest centered box with allowed proportions is taken.
    """
    for _ in range(_TRIES):
        area = height * width * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        box_height, box_width = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
        if 0 < box_height <= height and 0 < box_width <= width:
            return rng.randint(0, height - box_height), rng.randint(0, width - box_width), box_height, box_width
    aspect = min(max(width / height, ratio[0]), ratio[1])
    box_height = max(1, min(height, round(width / aspect)))
    box_width = max(1, min(width, round(height * aspect)))
    return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width


@dataclass(frozen=True)
class RandomSquare:
    """Cuts a random crop out of a photo, scales it to a square, and mirrors it by chance, for training.

    What is drawn depends on ``draw`` and on the size of the photo alone.

    >>> import PIL.Image
    >>> picture = PIL.Image.effect_noise((500, 375), 50).convert("RGB")
    >>> one, again, other = (RandomSquare(32, draw=(7, n))(picture) for n in (0, 0, 1))
    >>> one == again, one == other
    (True, False)
    """

    size: int
    draw: tuple[int, ...]  # which random numbers: the run, the epoch, the photo
    interpolation: str = "bicubic"
    squash: int | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5  # probability of mirroring left and right
    whole: float = 0.0  # probability of the whole photo, squeezed, instead of a crop

    def __call__(self, picture: Image) -> list[Image]:
        """Return one random view of a picture in RGB."""
        from PIL.Image import Resampling

        check_shape(picture.size)
        mode = Resampling[self.interpolation.upper()]
        # A text is hashed, so similar numbers give unrelated views.
        rng = random.Random(" ".join(map(str, self.draw)))
        if self.squash is not None:
            picture = picture.resize((self.squash, self.squash), mode)
        width, height = picture.size
        top, left, tall, wide = random_crop_box(height, width, scale=self.scale, ratio=self.ratio, rng=rng)
        if rng.random() < self.whole:
            top, left, tall, wide = 0, 0, height, width
        view = picture.crop((left, top, left + wide, top + tall)).resize((self.size, self.size), mode)
        return [_mirrored(view) if rng.random() < self.flip else view]


@dataclass(frozen=True)
class WholePhoto:
    """The whole photo, scaled down if its short side is longer than ``short_side``.

    >>> import PIL.Image
    >>> made = WholePhoto(short_side=50)(PIL.Image.new("RGB", (500, 100)))
    >>> made["size"], len(made["pixels"]) == 3 * 250 * 50
    (b'250 50', True)
    """

    short_side: int | None  # None: as it is
    squash: int | None = None
    interpolation: str = "bicubic"

    def __call__(self, image: Image) -> dict[str, bytes]:
        """Return ``size`` and ``pixels`` of a picture in RGB."""
        from PIL.Image import Resampling

        check_shape(image.size)
        if self.squash is not None:
            image = image.resize((self.squash, self.squash), Resampling[self.interpolation.upper()])
        short = min(image.size)
        if self.short_side is not None and short > self.short_side:
            width, height = (max(1, round(side * self.short_side / short)) for side in image.size)
            image = image.resize((width, height), Resampling.BICUBIC)
        if 3 * image.width * image.height > MAX_PHOTO_BYTES:
            raise InputError(
                f"too large to keep without scaling: {image.width} x {image.height}", code="too_large"
            )
        return {"size": b"%d %d" % image.size, "pixels": image.tobytes()}


def size_of(said: bytes) -> tuple[int, int]:
    """Return width and height from the ``size`` part of a reduction.

    >>> size_of(b"250 50")
    (250, 50)
    """
    width, height = said.split()
    return int(width), int(height)


def check_usable(image: Image) -> dict[str, bytes]:
    """Return no parts: the reduction that only checks whether a photo can be used."""
    check_shape(image.size)
    return {}


@dataclass(frozen=True)
class PixelsAndCopies:
    """Reduces a photo to the pixels for the network and, optionally, copies to keep.

    >>> import PIL.Image
    >>> made = PixelsAndCopies(Squares(size=8, resize=8), thumbnail=True)(PIL.Image.new("RGB", (500, 250)))
    >>> len(made["pixels"]), made["thumbnail"][:2], list(made)
    (192, b'\\xff\\xd8', ['size', 'pixels', 'thumbnail'])
    """

    squares: Squares | RandomSquare
    thumbnail: bool = False
    copy_of: int | None = None  # size in bytes of the original file; None: keep no copy

    def __call__(self, image: Image) -> dict[str, bytes]:
        """Return ``size`` before scaling, ``pixels`` and, if requested, ``thumbnail`` and ``copy``."""
        made = {"size": b"%d %d" % image.size, "pixels": b"".join(view.tobytes() for view in self.squares(image))}
        if self.thumbnail:
            made["thumbnail"] = thumbnail(image)
        if self.copy_of is not None:
            made["copy"] = clean_copy(image, self.copy_of)
        return made


def _mirrored(picture: Image) -> Image:
    from PIL.Image import Transpose

    return picture.transpose(Transpose.FLIP_LEFT_RIGHT)


def thumbnail(image: Image, size: int = THUMBNAIL_SIZE) -> bytes:
    """Return a small JPEG of the picture: upright, and without the metadata of the original.

    >>> import PIL.Image
    >>> PIL.Image.open(io.BytesIO(thumbnail(PIL.Image.new("RGB", (500, 250))))).size
    (128, 64)
    """
    from PIL import Image, ImageOps

    small = ImageOps.exif_transpose(image).convert("RGB")
    small.thumbnail((size, size), Image.Resampling.LANCZOS)
    clean = Image.frombytes("RGB", small.size, small.tobytes())  # pixels only: no EXIF, no location, no profile
    buffer = io.BytesIO()
    clean.save(buffer, "JPEG", quality=_QUALITY, optimize=True)
    return buffer.getvalue()


def is_thumbnail(data: bytes, size: int = THUMBNAIL_SIZE) -> bool:
    """Tell whether a file could come from ``thumbnail``: a small JPEG with one picture and nothing else.

    >>> import PIL.Image
    >>> small = thumbnail(PIL.Image.new("RGB", (500, 250)))
    >>> is_thumbnail(small), is_thumbnail(small + b"more"), is_thumbnail(b"GIF89a")
    (True, False, False)
    """
    about = _JFIF.match(data, 2)
    if not data.startswith(b"\xff\xd8") or about is None:
        return False
    at, sides = about.end(), list[int]()
    while True:
        marker, length = data[at : at + 2], int.from_bytes(data[at + 2 : at + 4], "big")
        if length < 2 or at + 2 + length > len(data):
            return False
        if marker == _JPEG_SIZE:
            sides += [int.from_bytes(data[at + first : at + first + 2], "big") for first in (5, 7)]
        elif marker != _JPEG_PIXELS and marker not in _JPEG_TABLES:
            return False
        at += 2 + length
        if marker == _JPEG_PIXELS:
            break
    end = _JPEG_MARKER.search(data, at)
    is_whole = end is not None and data[end.start() :] == b"\xff\xd9"
    return is_whole and len(sides) == 2 and min(sides) > 0 and max(sides) <= size


def clean_copy(image: Image, size: int) -> bytes:
    """Return the picture upright, without metadata, with at most twice the ``size`` of the original file.

    A copy of up to 256 kB is never too large. If every encoding is too large, the picture is halved until one
    fits.

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
        # The original was compressed much better, or it is hostile noise: use fewer pixels to keep the limit.
        bare = bare.resize((max(1, bare.width // 2), max(1, bare.height // 2)), Image.Resampling.LANCZOS)


def _resized(picture: Image, scaled: tuple[int, int], side: int, interpolation: str, rounding: str) -> Image:
    """Resize a picture to a width and a height, and return its center square of this side.

    Rows are resized and cropped before columns. So no intermediate picture is larger than the photo or, with the
    longest allowed shape, 35 MB. Pillow could do the same in one call, but from release 13 on it starts with the
    columns if that is faster. The two orders round differently, and pixels must not depend on the release.
    """
    from PIL.Image import Resampling

    mode = Resampling[interpolation.upper()]
    width, height = scaled
    left, top = (ROUNDINGS[rounding]((length - side) / 2) for length in scaled)
    rows = picture.resize((width, picture.height), mode).crop((left, 0, left + side, picture.height))
    return rows.resize((side, height), mode).crop((0, top, side, top + side))


def check_shape(size: tuple[int, int]) -> None:
    """Refuse a strip that is so long that its center shows almost nothing."""
    short, long = sorted(size)
    if long > LONGEST_SIDE * short:
        raise InputError(
            f"{size[0]} x {size[1]} pixels: one side is more than {LONGEST_SIDE} times the other",
            hint="cut out the part that matters",
            code="too_long",
        )

"""A part of a photo: a box in pixels or in fractions of its sides, and what cuts it out where photos are decoded.

Processes that decode import this, so it needs Pillow alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiveshot.errors import InputError, is_number

if TYPE_CHECKING:
    from PIL.Image import Image

    from fiveshot.data.decoder_process import Reduction

# Detectors round: a box may reach so far over the edge, in pixels or as a share of the side, and is cut off there.
_PIXELS_OVER, _SHARE_OVER = 2.0, 0.01
EXAMPLE = "give x,y,width,height of the part, as 40,60,200,150 in pixels or 0.1,0.2,0.5,0.5 as shares"


@dataclass(frozen=True)
class Box:
    """A rectangle in a photo as people see it, upright: its left upper corner, its width and its height.

    Four numbers of at most 1 are shares of the photo's sides; others are pixels.

    Parameters
    ----------
    x, y : float
        The left upper corner, counted from the left upper corner of the photo.
    width, height : float
        The size; both above zero.

    Raises
    ------
    InputError
        With the code ``bad_box`` where a number is NaN or infinite, or the box is empty.

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
            raise bad_box(f"the box {self} has a number that is NaN, infinite or none at all")
        for name, value in zip(("x", "y", "width", "height"), self.values, strict=True):
            # Plain numbers, whatever library they come from: they go into JSON.
            object.__setattr__(self, name, int(value) if is_number(value, whole=True) else float(value))
        if self.width <= 0 or self.height <= 0:
            raise bad_box(f"the box {self} is empty")

    @classmethod
    def parse(cls, text: str) -> Box:
        """Return the box that a text such as ``40,60,200,150`` stands for."""
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

    def pixels(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom in a picture of this size; a box that reaches out is refused."""
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


@dataclass(frozen=True)
class Cropped:
    """Makes of a part of a picture what another reduction makes of a whole one.

    >>> import PIL.Image
    >>> Cropped(Box(0, 0, 2, 1), lambda image: [image.tobytes()])(PIL.Image.new("RGB", (8, 8)))
    [b'\\x00\\x00\\x00\\x00\\x00\\x00']
    """

    box: Box
    inner: Reduction

    def __call__(self, image: Image) -> Sequence[bytes | None]:
        """Return what is made of the part."""
        return self.inner(image.crop(self.box.pixels(image.size)))


def bad_box(message: str) -> InputError:
    """Return the error for a box that cannot be used."""
    return InputError(message, hint=EXAMPLE, code="bad_box")


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and "." not in text and "e" not in text.lower() else value

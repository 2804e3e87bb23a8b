"""Decode an image as a person sees it: upright, in colour, on white, the first frame."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fiveshot.data.source import ImageError, ImageSource
from fiveshot.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 178_956_970
"""The largest image that ``decode`` takes unless told otherwise, in pixels: where PIL itself refuses.

>>> MAX_PIXELS > 13_000 * 13_000
True
"""
# A closed list of what photographs come in. PIL also knows formats that start other programs (EPS runs
# Ghostscript), and one, ICO, that it decodes while it opens it, before a size could be refused.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "MPO")
_SIXTEEN_BITS = ("PNG", "PPM")
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
_ORIENTATION = 274  # the EXIF tag
TILE = 512  # pixels of a side
HEIC = "HEIC cannot be read: convert to JPEG, and set the phone's camera to 'most compatible'"
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx")


def decode(source: ImageSource, *, max_pixels: int = MAX_PIXELS) -> Image:
    """Return the image in RGB, or raise ``ImageError`` with its name.

    The EXIF orientation is applied, transparency becomes white, deep greyscale is scaled to 8 bits (NaN and
    infinite pixels are black), and an animation or a multi-page file shows its first frame. The size is checked
    before any pixel is decoded; beyond ``max_pixels``, PIL's own ``Image.MAX_IMAGE_PIXELS`` holds too. It takes
    up to 8 bytes a pixel, and what the format's own decoder needs.

    >>> import numpy as np
    >>> from fiveshot.data.source import ArraySource
    >>> image = decode(ArraySource(np.full((2, 3, 3), 255, np.uint8), "white"))
    >>> image.mode, image.size
    ('RGB', (3, 2))
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about metadata that a viewer would not mention either
        image = _opened(source, max_pixels)
        try:
            image.load()
            image = _upright(image)  # under the same name, so that the one before can go
            return _rgb(image)
        except InputError as error:  # ours, about pixels that no picture can be made of
            raise ImageError(source.name, str(error)) from error
        except Exception as error:  # decoders raise whatever comes to hand on damaged data
            raise ImageError(source.name, f"damaged or truncated ({error})") from error


def image_size(source: ImageSource, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return width and height by the header alone; what ``decode`` refuses by its header is refused alike.

    >>> import numpy as np
    >>> from fiveshot.data.source import ArraySource
    >>> image_size(ArraySource(np.full((2, 3, 3), 255, np.uint8), "white"))
    (3, 2)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _opened(source, max_pixels).size


def _opened(source: ImageSource, max_pixels: int) -> Image:
    """Open an image without decoding any of its pixels."""
    formats = _formats()
    from PIL import Image, UnidentifiedImageError

    name, data = source.name, source.read()
    if not data:
        raise ImageError(name, "the file is empty")
    try:
        image = Image.open(io.BytesIO(data), formats=formats)
    except UnidentifiedImageError as error:
        hint = f"; {HEIC}" if _is_heic(data) else ""
        raise ImageError(name, f"not an image in a known format ({', '.join(formats)}){hint}") from error
    except Image.DecompressionBombError as error:
        raise ImageError(name, f"too large: {error}", code="image_too_large") from error
    except Exception as error:
        raise ImageError(name, f"damaged or truncated ({error})") from error
    if image.width * image.height > max_pixels:
        reason = f"too large: {image.width} x {image.height}, the limit is {max_pixels:,} pixels"
        raise ImageError(name, reason, code="image_too_large")
    return image


def _is_heic(data: bytes) -> bool:
    """Tell by the brands in the first box of a file, ISO/IEC 14496-12: ``length ftyp major version brands``."""
    box = data[: min(int.from_bytes(data[:4], "big"), 256)]
    brands = (box[start : start + 4] for start in range(8, len(box), 4))
    return data[4:8] == b"ftyp" and any(brand in _HEIC_BRANDS for brand in brands)


@cache
def _formats() -> tuple[str, ...]:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("decoding images needs Pillow: pip install fiveshot") from error
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _upright(image: Image) -> Image:
    from PIL import ImageOps

    try:
        if image.getexif().get(_ORIENTATION) not in range(2, 9):
            return image  # exif_transpose would return a copy
        return ImageOps.exif_transpose(image)
    except Exception:  # unreadable EXIF data says nothing about the orientation
        return image


def _rgb(image: Image) -> Image:
    if image.mode == "I" or image.mode == "F" or image.mode.startswith("I;16"):
        low, high = _black_and_white(image)
        return _by_tiles(image, lambda tile: _eight_bits(tile, low, high))
    if image.mode in _WITH_ALPHA or "transparency" in image.info:
        return _by_tiles(image, _on_white)
    return image.convert("RGB")


def _by_tiles(image: Image, made: Callable[[Image], Image]) -> Image:
    """Return the image in RGB, made of one tile after the other: all copies in between are small."""
    from PIL import Image

    result = Image.new("RGB", image.size)
    for box in _boxes(image):
        result.paste(made(image.crop(box)), box[:2])
    return result


def _boxes(image: Image) -> Iterator[tuple[int, int, int, int]]:
    for top in range(0, image.height, TILE):
        for left in range(0, image.width, TILE):
            yield left, top, min(left + TILE, image.width), min(top + TILE, image.height)


def _on_white(image: Image) -> Image:
    from PIL import Image

    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def _black_and_white(image: Image) -> tuple[float, float]:
    """Return the values of deep greyscale that are shown as black and as white."""
    if image.mode.startswith("I;16"):
        return 0.0, 65535.0
    tiles = (np.asarray(image.crop(box)) for box in _boxes(image))
    ends = [(tile.min(), tile.max()) for tile in (tile[np.isfinite(tile)] for tile in tiles) if tile.size]
    if not ends:
        raise InputError("every pixel is NaN or infinite")
    low, high = float(np.min(ends)), float(np.max(ends))
    # Integers of 32 bits hold what fits: 8 bits, or 16. Where the file has 16, PIL may show it as "I" too.
    usual = (1.0,) if image.mode == "F" else (65535.0,) if image.format in _SIXTEEN_BITS else (255.0, 65535.0)
    for white in usual:
        if low >= 0 and high <= white:
            return 0.0, white
    # Otherwise the format says nothing about black and white: the darkest and lightest pixel are.
    return low, high


def _eight_bits(image: Image, low: float, high: float) -> Image:
    """Scale greyscale of 16 or 32 bits, or of floats, to 8 bits."""
    from PIL import Image

    values = np.asarray(image, dtype=np.float64)
    values = np.where(np.isfinite(values), values, low)
    scaled = (values - low) * (255 / (high - low)) if high > low else np.zeros_like(values)
    grey = np.rint(scaled).astype(np.uint8)
    if "transparency" in image.info:
        grey[values == image.info["transparency"]] = 255
    return Image.fromarray(grey)

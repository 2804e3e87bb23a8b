"""Decode an image as a person sees it: upright, in colour, on white, the first frame."""

from __future__ import annotations

import io
import warnings
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
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")


def decode(source: ImageSource, *, max_pixels: int = MAX_PIXELS) -> Image:
    """Return the image in RGB, or raise ``ImageError`` with its name.

    The EXIF orientation is applied, transparency becomes white, deep greyscale is scaled to 8 bits, and an
    animation or a multi-page file shows its first frame. The size is checked before any pixel is decoded;
    beyond ``max_pixels``, PIL's own ``Image.MAX_IMAGE_PIXELS`` holds too.

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
            return _rgb(_upright(image))
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
        raise ImageError(name, f"not an image in a known format ({', '.join(formats)})") from error
    except Image.DecompressionBombError as error:
        raise ImageError(name, f"too large: {error}") from error
    except Exception as error:
        raise ImageError(name, f"damaged or truncated ({error})") from error
    if image.width * image.height > max_pixels:
        raise ImageError(name, f"too large: {image.width} x {image.height}, the limit is {max_pixels:,} pixels")
    return image


@cache
def _formats() -> tuple[str, ...]:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("decoding images needs Pillow: pip install 'fiveshot[images]'") from error
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _upright(image: Image) -> Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # unreadable EXIF data says nothing about the orientation
        return image


def _rgb(image: Image) -> Image:
    from PIL import Image

    if image.mode == "I" or image.mode == "F" or image.mode.startswith("I;16"):
        return _eight_bits(image).convert("RGB")
    if image.mode in _WITH_ALPHA or "transparency" in image.info:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image) -> Image:
    """Scale greyscale of 16 or 32 bits, or of floats, to 8 bits."""
    from PIL import Image

    values = np.asarray(image, dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    if image.mode == "F" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif image.mode != "F" and low >= 0 and high <= 65535:
        low, high = 0.0, 65535.0
    # Otherwise the format says nothing about black and white: the darkest and lightest pixel are.
    scaled = (values - low) * (255 / (high - low)) if high > low else np.zeros_like(values)
    grey = np.rint(scaled).astype(np.uint8)
    if "transparency" in image.info:
        grey[values == image.info["transparency"]] = 255
    return Image.fromarray(grey)

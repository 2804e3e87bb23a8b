"""Decode an image as a person sees it: upright, in color, on white.

Everything that a file claims is checked here before a decoder may believe it. ``decode_bytes`` is the one call in
which decoders work on bytes from outside.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

from fiveshot.data.sources import ImageError, ImageSource
from fiveshot.errors import InputError
from fiveshot.extras import is_installed

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 178_956_970
"""The largest image that ``decode`` takes unless told otherwise, in pixels: where PIL itself refuses.

Examples
--------
>>> MAX_PIXELS > 13_000 * 13_000
True
"""
# A closed list of what photographs come in: each decoder is one more that a hostile file can try. Left out are
# formats that start other programs (EPS runs Ghostscript) and those decoded while they are opened (ICO).
FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "MPO": (".mpo",),
    "HEIF": (".heic", ".heif", ".hif"),
    "AVIF": (".avif",),
}
"""The formats that are read, as PIL calls them, and how the names of their files end."""
ALLOWED = "JPEG, PNG, WebP, GIF, BMP, TIFF, MPO, HEIC, AVIF"
TILE = 512  # pixels of a side
# What a TIFF's tile or strip may hold beyond the image itself: writers pad small images to tiles of usual sizes.
LARGEST_PADDING = 2048 * 2048  # pixels
_SIXTEEN_BITS = "PNG"
_SILENCE = Lock()
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
_ORIENTATION = 274  # the EXIF tag
_WIDTH, _LENGTH, _TILE_WIDTH, _TILE_LENGTH, _ROWS_PER_STRIP = 256, 257, 322, 323, 278  # TIFF tags
_ONE_STRIP = 2**32 - 1  # as TIFF says that all rows lie in one strip
# Photos of phones: both formats lie in one kind of container, ISO/IEC 23008-12, and their brands tell them apart.
_BRANDS = {
    "AVIF": (b"avif", b"avis"),
    "HEIF": (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"),
}
_INSTALL = {
    "AVIF": "AVIF needs Pillow 11.3 or later; install it with: pip install -U pillow",
    "HEIF": "HEIC needs pillow-heif; install it with: pip install 'fiveshot[heic]'",
}


def decode(source: ImageSource, *, max_pixels: int = MAX_PIXELS) -> Image:
    """Return an image in RGB, as a person sees it.

    The EXIF orientation is applied, transparency becomes white, deep grayscale is scaled to 8 bits (NaN and
    infinite pixels are black), and an animation or a multi-page file shows its first frame. The size is checked
    before any pixel is decoded. It takes up to 8 bytes a pixel, and what the format's own decoder needs.

    Parameters
    ----------
    source : ImageSource
        The image.
    max_pixels : int
        The most pixels it may have; beyond that, PIL's own ``Image.MAX_IMAGE_PIXELS`` holds too.

    Returns
    -------
    PIL.Image.Image
        The picture.

    Raises
    ------
    ImageError
        When it cannot be read, is too large, damaged, or in a format that is not read.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, decode
    >>> image = decode(ArraySource(np.full((2, 3, 3), 255, np.uint8), "white"))
    >>> image.mode, image.size
    ('RGB', (3, 2))
    """
    return decode_bytes(source.read(), source.name, max_pixels=max_pixels)


def decode_bytes(data: bytes, name: str, *, max_pixels: int = MAX_PIXELS) -> Image:
    """Do what ``decode`` does for bytes: from here on only decoders work, on nothing but these bytes."""
    # Warnings are about metadata that a viewer would not mention either. Filters are those of the whole process:
    # threads that put them back in turns would leave them wrong. So one thread of a process decodes at a time.
    with _SILENCE, warnings.catch_warnings(action="ignore"):
        try:
            image = _opened(data, name, max_pixels)
            image.load()
            _check_size(image, name, max_pixels)  # HEIC may turn out larger than it said
            image = _upright(image)  # under the same name, so that the one before can go
            return _rgb(image)
        except ImageError:
            raise
        except InputError as error:  # ours, about pixels that no picture can be made of
            raise ImageError(name, str(error)) from error
        except MemoryError as error:
            raise needs_memory(name) from error
        except Exception as error:  # decoders raise whatever comes to hand on damaged data
            raise ImageError(name, f"damaged or truncated ({error})") from error


def needs_memory(name: str) -> ImageError:
    """Return the error for a photo whose decoder asks for more memory than there is, or than it may have."""
    return ImageError(name, "too large: decoding it takes more memory than it may", code="image_too_large")


def nothing(image: Image) -> dict[str, bytes]:
    """Return nothing of a picture: the reduction for those who ask only whether a photo can be decoded."""
    return {}


def _opened(data: bytes, name: str, max_pixels: int) -> Image:
    """Open an image without decoding any of its pixels."""
    from PIL import Image, UnidentifiedImageError

    if not data:
        raise ImageError(name, "the file is empty")
    phone = _phone_format(data)
    if phone is not None and not _reads(phone):
        raise ImageError(name, _INSTALL[phone], code="missing_library")
    try:
        image = Image.open(io.BytesIO(data), formats=usual_formats() if phone is None else (phone,))
    except UnidentifiedImageError as error:
        if phone is not None:
            raise ImageError(name, "damaged or truncated") from error
        raise ImageError(name, f"not a photo in a format that is read ({ALLOWED})") from error
    except Image.DecompressionBombError as error:
        reason = f"too large: the limit is {max_pixels:,} pixels"
        raise ImageError(name, reason, code="image_too_large") from error
    _check_size(image, name, max_pixels)
    if image.format == "TIFF":
        _check_parts(image, name)
    return image


def _check_size(image: Image, name: str, max_pixels: int) -> None:
    if image.width * image.height > max_pixels:
        reason = f"too large: {image.width} x {image.height}, the limit is {max_pixels:,} pixels"
        raise ImageError(name, reason, code="image_too_large")


def _check_parts(image: Any, name: str) -> None:
    """Refuse a TIFF whose tiles or strips are larger than the image: the decoder makes room for a whole one."""
    tags = image.tag_v2
    width, height = tags[_WIDTH], tags[_LENGTH]  # as stored: the orientation may exchange the picture's own
    rows = tags.get(_ROWS_PER_STRIP, _ONE_STRIP)
    parts = [(tags.get(_TILE_WIDTH, 0), tags.get(_TILE_LENGTH, 0)), (width, 0 if rows == _ONE_STRIP else rows)]
    most = max(LARGEST_PADDING, (width + 16) * (height + 16))  # tiles are multiples of 16 pixels
    for wide, tall in parts:
        if not isinstance(wide, int) or not isinstance(tall, int):
            raise ImageError(name, f"damaged: it has parts of {wide} x {tall} pixels")
        if wide * tall > most:
            reason = f"too large: {width} x {height} pixels in parts of {wide} x {tall}"
            raise ImageError(name, reason, code="image_too_large")


def _phone_format(data: bytes) -> str | None:
    """Tell by the brands in the first box of a file, ISO/IEC 14496-12: ``length ftyp major version brands``."""
    if data[4:8] != b"ftyp":
        return None
    box = data[: min(int.from_bytes(data[:4], "big"), 256)]
    brands = {box[start : start + 4] for start in range(8, len(box), 4)}
    return next((kind for kind, known in _BRANDS.items() if not brands.isdisjoint(known)), None)


@cache
def _reads(phone: str) -> bool:
    """Tell whether a format of phones can be read here, and make it ready.

    One thread decodes: others would take the memory that one photo may have, and all photos wait for all cores.
    """
    if phone == "AVIF":
        plugin = import_module("PIL.AvifImagePlugin") if is_installed("PIL.AvifImagePlugin") else None
        if plugin is None or not plugin.SUPPORTED:
            return False
        vars(plugin)["DEFAULT_MAX_THREADS"] = 1  # a setting that Pillow's types do not know
        return True
    if not is_installed("pillow_heif"):
        return False
    # Only the picture itself: no depth, no second copies.
    import_module("pillow_heif").register_heif_opener(
        decode_threads=1, thumbnails=False, depth_images=False, aux_images=False
    )
    return True


@cache
def usual_formats() -> tuple[str, ...]:
    """Return those of the usual formats that this build of Pillow has; no other plug-in of Pillow is imported."""
    from PIL import Image

    for plugin in ("Bmp", "Gif", "Jpeg", "Mpo", "Png", "Tiff", "WebP"):
        import_module(f"PIL.{plugin}ImagePlugin")
    return tuple(name for name in FORMATS if name in Image.OPEN and name not in _BRANDS)


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
    """Return the values of deep grayscale that are shown as black and as white."""
    import numpy as np  # for deep grayscale alone, which few photos are

    if image.mode.startswith("I;16"):
        return 0.0, 65535.0
    tiles = (np.asarray(image.crop(box)) for box in _boxes(image))
    ends = [(tile.min(), tile.max()) for tile in (tile[np.isfinite(tile)] for tile in tiles) if tile.size]
    if not ends:
        raise InputError("every pixel is NaN or infinite")
    low, high = float(np.min(ends)), float(np.max(ends))
    # Integers of 32 bits hold what fits: 8 bits, or 16. Where the file has 16, PIL may show it as "I" too.
    usual = (1.0,) if image.mode == "F" else (65535.0,) if image.format == _SIXTEEN_BITS else (255.0, 65535.0)
    for white in usual:
        if low >= 0 and high <= white:
            return 0.0, white
    # Otherwise the format says nothing about black and white: the darkest and lightest pixel are.
    return low, high


def _eight_bits(image: Image, low: float, high: float) -> Image:
    """Scale grayscale of 16 or 32 bits, or of floats, to 8 bits."""
    import numpy as np
    from PIL import Image

    values = np.asarray(image, dtype=np.float64)
    values = np.where(np.isfinite(values), values, low)
    scaled = (values - low) * (255 / (high - low)) if high > low else np.zeros_like(values)
    gray = np.rint(scaled).astype(np.uint8)
    if "transparency" in image.info:
        gray[values == image.info["transparency"]] = 255
    return Image.fromarray(gray)

"""Decode an image as a person sees it: upright, in color, on white.

The size and the format of a file are checked here before it is decoded. ``decode_bytes`` is the only function in
which decoders work on untrusted bytes.
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
"""The default limit of ``decode``, in pixels; the same as PIL's own limit.

Examples
--------
>>> MAX_PIXELS > 13_000 * 13_000
True
"""
# A fixed list of photo formats: every further decoder is one more target for hostile files. It leaves out formats
# that start other programs (EPS runs Ghostscript) and formats that are decoded on opening (ICO).
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
"""The supported formats, as PIL names them, and their file suffixes."""
ALLOWED = "JPEG, PNG, WebP, GIF, BMP, TIFF, MPO, HEIC, AVIF"
TILE = 512  # pixels of a side
# A TIFF's tile or strip may be larger than the image: writers pad small images to tiles of usual sizes.
LARGEST_PADDING = 2048 * 2048  # pixels
_SIXTEEN_BITS = "PNG"
_SILENCE = Lock()
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
_ORIENTATION = 274  # the EXIF tag
_WIDTH, _LENGTH, _TILE_WIDTH, _TILE_LENGTH, _ROWS_PER_STRIP = 256, 257, 322, 323, 278  # TIFF tags
_ONE_STRIP = 2**32 - 1  # TIFF's value for "all rows in one strip"
# Phone photos: both formats use the container of ISO/IEC 23008-12 and differ in its brands.
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
    before any pixel is decoded. Decoding takes up to 8 bytes a pixel, plus what the format's own decoder needs.

    Parameters
    ----------
    source : ImageSource
        The image.
    max_pixels : int
        The most pixels it may have. PIL's own ``Image.MAX_IMAGE_PIXELS`` applies as well.

    Returns
    -------
    PIL.Image.Image
        The picture.

    Raises
    ------
    ImageError
        When it cannot be read, is too large or damaged, or has an unsupported format.

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
    """Decode bytes as ``decode`` does: from here on, decoders work only on these bytes."""
    # The warnings are about metadata that does not matter to a viewer. Warning filters are global to the process,
    # and threads that restore them in turns would leave them wrong. So only one thread of a process decodes at a
    # time.
    with _SILENCE, warnings.catch_warnings(action="ignore"):
        try:
            image = _opened(data, name, max_pixels)
            image.load()
            _check_size(image, name, max_pixels)  # a HEIC can be larger than its header says
            image = _upright(image)  # the same variable, so that the earlier image is freed
            return _rgb(image)
        except ImageError:
            raise
        except InputError as error:  # our own, for pixels that are not usable
            raise ImageError(name, str(error)) from error
        except MemoryError as error:
            raise needs_memory(name) from error
        except Exception as error:  # decoders raise many kinds of exceptions on damaged data
            raise ImageError(name, f"damaged or truncated ({error})") from error


def needs_memory(name: str) -> ImageError:
    """Return the error for a photo whose decoder needs more memory than it may use."""
    return ImageError(name, "too large: decoding it needs more memory than allowed", code="image_too_large")


def decode_only(image: Image) -> dict[str, bytes]:
    """Return no parts: the reduction that only checks whether a photo can be decoded."""
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
        raise ImageError(name, f"not a photo in a supported format ({ALLOWED})") from error
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
    """Refuse a TIFF whose tiles or strips are larger than the image: the decoder allocates a whole one."""
    tags = image.tag_v2
    width, height = tags[_WIDTH], tags[_LENGTH]  # as stored; the orientation may swap the picture's sides
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
    """Return HEIF or AVIF by the first box, ISO/IEC 14496-12: ``length ftyp major version brands``."""
    if data[4:8] != b"ftyp":
        return None
    box = data[: min(int.from_bytes(data[:4], "big"), 256)]
    brands = {box[start : start + 4] for start in range(8, len(box), 4)}
    return next((kind for kind, known in _BRANDS.items() if not brands.isdisjoint(known)), None)


@cache
def _reads(phone: str) -> bool:
    """Tell whether a phone format can be read here, and set up its decoder.

    Only one thread decodes: more threads would use up a photo's memory limit, and photos are decoded in parallel
    anyway.
    """
    if phone == "AVIF":
        plugin: Any = import_module("PIL.AvifImagePlugin") if is_installed("PIL.AvifImagePlugin") else None
        if plugin is None or not plugin.SUPPORTED:
            return False
        plugin.DEFAULT_MAX_THREADS = 1  # Pillow has its options for decoding AVIF as names in this module
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
    """Return the usual formats that this build of Pillow supports; imports no other Pillow plug-in."""
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
    except Exception:  # unreadable EXIF data: treat the image as upright
        return image


def _rgb(image: Image) -> Image:
    if image.mode == "I" or image.mode == "F" or image.mode.startswith("I;16"):
        low, high = _black_and_white(image)
        return _by_tiles(image, lambda tile: _eight_bits(tile, low, high))
    if image.mode in _WITH_ALPHA or "transparency" in image.info:
        return _by_tiles(image, _on_white)
    return image.convert("RGB")


def _by_tiles(image: Image, made: Callable[[Image], Image]) -> Image:
    """Return the image in RGB, converted tile by tile so that intermediate copies are small."""
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
    """Return the values of deep grayscale that become black and white."""
    import numpy as np  # needed only for deep grayscale, which is rare

    if image.mode.startswith("I;16"):
        return 0.0, 65535.0
    tiles = (np.asarray(image.crop(box)) for box in _boxes(image))
    ends = [(tile.min(), tile.max()) for tile in (tile[np.isfinite(tile)] for tile in tiles) if tile.size]
    if not ends:
        raise InputError("every pixel is NaN or infinite")
    low, high = float(np.min(ends)), float(np.max(ends))
    # 32-bit integers usually hold values of 8 or 16 bits; PIL may also open a 16-bit file as "I".
    usual = (1.0,) if image.mode == "F" else (65535.0,) if image.format == _SIXTEEN_BITS else (255.0, 65535.0)
    for white in usual:
        if low >= 0 and high <= white:
            return 0.0, white
    # Otherwise the format does not define black and white: use the darkest and the lightest pixel.
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

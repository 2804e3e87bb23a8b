"""Decode an image as a person sees it, upright, in color, on white; and find the images that cannot be used.

Everything that a file claims is checked here before a decoder may believe it. ``decode_bytes`` is the one call in
which decoders work on bytes from outside.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.data.dataset import ImageDataset
from fiveshot.data.sources import ImageError, ImageSource
from fiveshot.errors import InputError, counted, some_of

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
}
"""The formats that are read, as PIL calls them, and how the names of their files end."""
ALLOWED = "JPEG, PNG, WebP, GIF, BMP, TIFF, MPO"
SHOWN = 5  # the bad images named in an error; the rest are counted
TILE = 512  # pixels of a side
HEIC = "HEIC cannot be read: convert to JPEG, and set the phone's camera to 'most compatible'"
# What a TIFF's tile or strip may hold beyond the image itself: writers pad small images to tiles of usual sizes.
LARGEST_PADDING = 2048 * 2048  # pixels
_SIXTEEN_BITS = "PNG"
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
_ORIENTATION = 274  # the EXIF tag
_WIDTH, _LENGTH, _TILE_WIDTH, _TILE_LENGTH, _ROWS_PER_STRIP = 256, 257, 322, 323, 278  # TIFF tags
_ONE_STRIP = 2**32 - 1  # as TIFF says that all rows lie in one strip
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx")


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about metadata that a viewer would not mention either
        image = _opened(data, name, max_pixels)
        try:
            image.load()
            image = _upright(image)  # under the same name, so that the one before can go
            return _rgb(image)
        except InputError as error:  # ours, about pixels that no picture can be made of
            raise ImageError(name, str(error)) from error
        except Exception as error:  # decoders raise whatever comes to hand on damaged data
            raise ImageError(name, f"damaged or truncated ({error})") from error


def image_size(source: ImageSource, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return width and height by the header alone; what ``decode`` refuses by its header is refused alike.

    >>> import numpy as np
    >>> from fiveshot.data.sources import ArraySource
    >>> image_size(ArraySource(np.full((2, 3, 3), 255, np.uint8), "white"))
    (3, 2)
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _opened(source.read(), source.name, max_pixels).size


def _opened(data: bytes, name: str, max_pixels: int) -> Image:
    """Open an image without decoding any of its pixels."""
    from PIL import Image, UnidentifiedImageError

    if not data:
        raise ImageError(name, "the file is empty")
    try:
        image = Image.open(io.BytesIO(data), formats=_formats())
    except UnidentifiedImageError as error:
        hint = f"; {HEIC}" if _is_heic(data) else ""
        raise ImageError(name, f"not a photo in a format that is read ({ALLOWED}){hint}") from error
    except Image.DecompressionBombError as error:
        raise ImageError(name, f"too large: {error}", code="image_too_large") from error
    except Exception as error:
        raise ImageError(name, f"damaged or truncated ({error})") from error
    if image.width * image.height > max_pixels:
        reason = f"too large: {image.width} x {image.height}, the limit is {max_pixels:,} pixels"
        raise ImageError(name, reason, code="image_too_large")
    if image.format == "TIFF":
        _check_parts(image, name)
    return image


def _check_parts(image: Any, name: str) -> None:
    """Refuse a TIFF whose tiles or strips are larger than the image: the decoder makes room for a whole one."""
    tags = image.tag_v2
    width, height = tags[_WIDTH], tags[_LENGTH]  # as stored: the orientation may exchange the picture's own
    rows = tags.get(_ROWS_PER_STRIP, _ONE_STRIP)
    parts = [
        (tags.get(_TILE_WIDTH, 0), tags.get(_TILE_LENGTH, 0)),
        (width, 0 if rows == _ONE_STRIP else rows),
    ]
    most = max(LARGEST_PADDING, (width + 16) * (height + 16))  # tiles are multiples of 16 pixels
    for wide, tall in parts:
        if not isinstance(wide, int) or not isinstance(tall, int):
            raise ImageError(name, f"damaged: it has parts of {wide} x {tall} pixels")
        if wide * tall > most:
            reason = f"too large: {width} x {height} pixels in parts of {wide} x {tall}"
            raise ImageError(name, reason, code="image_too_large")


def _is_heic(data: bytes) -> bool:
    """Tell by the brands in the first box of a file, ISO/IEC 14496-12: ``length ftyp major version brands``."""
    box = data[: min(int.from_bytes(data[:4], "big"), 256)]
    brands = (box[start : start + 4] for start in range(8, len(box), 4))
    return data[4:8] == b"ftyp" and any(brand in _HEIC_BRANDS for brand in brands)


@cache
def _formats() -> tuple[str, ...]:
    """Return those of the formats that this build of Pillow has; no other plug-in of Pillow is imported."""
    from PIL import Image

    for plugin in ("Bmp", "Gif", "Jpeg", "Mpo", "Png", "Tiff", "WebP"):
        import_module(f"PIL.{plugin}ImagePlugin")
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
    """Return the values of deep grayscale that are shown as black and as white."""
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
    from PIL import Image

    values = np.asarray(image, dtype=np.float64)
    values = np.where(np.isfinite(values), values, low)
    scaled = (values - low) * (255 / (high - low)) if high > low else np.zeros_like(values)
    gray = np.rint(scaled).astype(np.uint8)
    if "transparency" in image.info:
        gray[values == image.info["transparency"]] = 255
    return Image.fromarray(gray)


@dataclass(frozen=True)
class BadImage:
    """An image that cannot be used, and why.

    Parameters
    ----------
    name : str
        The image.
    reason : str
        Why it cannot be used.

    Examples
    --------
    >>> BadImage("cat/1.jpg", "the file is empty").reason
    'the file is empty'
    """

    name: str
    reason: str


def bad_images_error(bad: Sequence[BadImage], total: int) -> InputError:
    """Return the one error that lists the first bad images, counts them all and offers the way out.

    Parameters
    ----------
    bad : sequence of BadImage
        The images that cannot be used.
    total : int
        How many images there are in all.

    Returns
    -------
    InputError
        The error to raise, with the code ``bad_images``.

    Examples
    --------
    >>> print(bad_images_error([BadImage("cat/1.jpg", "the file is empty")], total=8))
    1 of 8 images cannot be used:
      cat/1.jpg: the file is empty
    repair or remove them, or leave them out with --skip-bad
    """
    head = f"{len(bad)} of {counted(total, 'image')} cannot be used:"
    way_out = "repair or remove them, or leave them out with --skip-bad"
    return InputError("\n".join([head, *bad_lines(bad), way_out]), code="bad_images")


def bad_lines(bad: Sequence[BadImage], shown: int = SHOWN) -> list[str]:
    """Return a line for each of the first bad images, and one that counts the rest.

    >>> bad_lines([BadImage(f"cat/{number}.jpg", "the file is empty") for number in range(3)], shown=1)
    ['  cat/0.jpg: the file is empty', '  and 2 more']
    """
    lines = [f"  {image.name}: {image.reason}" for image in bad[:shown]]
    return [*lines, f"  and {len(bad) - shown:,} more"] if len(bad) > shown else lines


def check_images(
    sources: Iterable[ImageSource], *, skip_bad: bool, max_pixels: int = MAX_PIXELS
) -> tuple[NDArray[np.int64], tuple[BadImage, ...]]:
    """Decode every image and tell the good ones from the bad ones.

    Parameters
    ----------
    sources : iterable of ImageSource
        The images.
    skip_bad : bool
        Whether bad images are only listed; otherwise any is an error.
    max_pixels : int
        The most pixels that a good image may have.

    Returns
    -------
    good : ndarray of int64
        Positions of the good images.
    bad : tuple of BadImage
        The others.

    Raises
    ------
    InputError
        When there are bad images, unless ``skip_bad``.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, check_images
    >>> thumbnail, poster = (ArraySource(np.zeros((side, side, 3), np.uint8), f"{side}.png") for side in (8, 80))
    >>> good, bad = check_images([thumbnail, poster], skip_bad=True, max_pixels=1000)
    >>> good.tolist(), bad
    ([0], (BadImage(name='80.png', reason='too large: 80 x 80, the limit is 1,000 pixels'),))
    """
    good: list[int] = []
    bad: list[BadImage] = []
    for position, source in enumerate(sources):
        try:
            decode(source, max_pixels=max_pixels)
        except ImageError as error:
            bad.append(BadImage(error.name, error.reason))
        else:
            good.append(position)
    if bad and not skip_bad:
        raise bad_images_error(bad, len(good) + len(bad))
    return np.array(good, dtype=np.int64), tuple(bad)


def check_dataset(
    dataset: ImageDataset, *, skip_bad: bool, max_pixels: int = MAX_PIXELS
) -> tuple[ImageDataset, tuple[BadImage, ...]]:
    """Check both splits of a dataset.

    Parameters
    ----------
    dataset : ImageDataset
        The dataset.
    skip_bad : bool
        Whether bad images are left out, and the dataset notes how many; otherwise any is an error.
    max_pixels : int
        The most pixels that a good image may have.

    Returns
    -------
    dataset : ImageDataset
        The dataset without its bad images.
    bad : tuple of BadImage
        These images.

    Raises
    ------
    InputError
        When there are bad images, unless ``skip_bad``; or when a class has no good training image.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit, check_dataset
    >>> images = tuple(ArraySource(np.zeros((side, side, 3), np.uint8), f"{side}.png") for side in (8, 80))
    >>> split = ImageSplit(images, np.array([0, 0]))
    >>> kept, bad = check_dataset(ImageDataset("dark", ("night",), split, split), skip_bad=True, max_pixels=1000)
    >>> len(kept.train), len(kept.test), kept.differences
    (1, 1, ('left out 2 bad images of 4',))
    """
    n_train = len(dataset.train)
    images = dataset.train.images + dataset.test.images
    good, bad = check_images(images, skip_bad=skip_bad, max_pixels=max_pixels)
    if not bad:
        return dataset, ()
    train = dataset.train.select(good[good < n_train])
    test = dataset.test.select(good[good >= n_train] - n_train)
    gone = sorted(set(dataset.train.labels.tolist()) - set(train.labels.tolist()))
    if gone:
        names = some_of([dataset.class_names[label] for label in gone])
        raise InputError(
            f"{counted(len(gone), 'class')} without a usable training image: {names}",
            hint="repair some of them",
        )
    kept = replace(dataset, train=train, test=test)
    return kept.noting(f"left out {counted(len(bad), 'bad image')} of {len(images)}"), bad

"""A batch of images read, marked, decoded and cropped: everything before the network."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import BadImage, BytesSource, ImageError, ImageSource, decode
from fiveshot.errors import InputError
from fiveshot.features.image_marks import CONTENT_BYTES, UNREADABLE, content_mark

PixelTransform = Callable[[Any], NDArray[np.uint8]]

NO_PIXELS = np.zeros((0, 3, 1, 1), np.uint8)


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """The images at positions ``start`` to ``stop`` of a list, ready for the network."""

    start: int
    stop: int
    marks: NDArray[np.uint8] = field(repr=False)  # (stop - start, 32): of the contents
    kept: NDArray[np.int64]  # (n_kept,): positions of the images that could be decoded
    pixels: NDArray[np.uint8] = field(repr=False)  # (n_kept, 3, size, size), uint8
    bad: tuple[tuple[int, BadImage], ...]  # with their positions
    decode_seconds: float  # reading and marking included
    transform_seconds: float


def read_batch(images: Sequence[ImageSource], start: int, stop: int, transform: PixelTransform) -> ImageBatch:
    """Read each image once, for its mark and its pixels; those that cannot be decoded are listed."""
    marks, kept, pixels, bad = bytearray(), [], [], []
    decoding = transforming = 0.0
    for position in range(start, stop):
        source, began = images[position], time.perf_counter()
        mark = UNREADABLE
        try:
            data = source.read()
            mark = content_mark(data)
            image = decode(BytesSource(data, source.name))
            decoded = time.perf_counter()
            pixels.append(transform(image))
        except ImageError as error:
            bad.append((position, BadImage(error.name, error.reason)))
        except InputError as error:  # decoded, but of a shape that cannot be used
            bad.append((position, BadImage(source.name, str(error))))
        else:
            kept.append(position)
            transforming += time.perf_counter() - decoded
            began += time.perf_counter() - decoded
        marks += mark
        decoding += time.perf_counter() - began
    return ImageBatch(
        start,
        stop,
        np.frombuffer(marks, np.uint8).reshape(stop - start, CONTENT_BYTES),
        np.array(kept, dtype=np.int64),
        np.stack(pixels) if pixels else NO_PIXELS,
        tuple(bad),
        decoding,
        transforming,
    )

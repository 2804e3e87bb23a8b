"""All images of a run decoded once, end to end in one buffer that may lie on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.backbones import Preprocessing
from fiveshot.data import BadImage, ImageSource, decoders
from fiveshot.data.reduction import Whole, usable

Integers = NDArray[np.int64]
_REPORT = 32  # images between two reports of the progress


@dataclass(frozen=True, eq=False)
class PixelPool:
    """Images of different sizes in one flat buffer."""

    pixels: Tensor  # (n_pixels, 3), uint8
    heights: Integers  # (n_images,)
    widths: Integers  # (n_images,)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.heights)

    @property
    def offsets(self) -> Integers:  # (n_images,)
        """Where each image starts in the buffer."""
        return np.concatenate([[0], np.cumsum(self.heights * self.widths)[:-1]]).astype(np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of the buffer."""
        return self.pixels.numel()

    def image(self, row: int) -> Tensor:
        """Return one image, (3, height, width) of uint8, without copying it."""
        height, width, start = int(self.heights[row]), int(self.widths[row]), int(self.offsets[row])
        return self.pixels[start : start + height * width].view(height, width, 3).permute(2, 0, 1)

    def to(self, device: torch.device) -> PixelPool:
        """Return the pool with its buffer on a device."""
        return PixelPool(self.pixels.to(device), self.heights, self.widths)


def whole_images(preprocessing: Preprocessing, *, margin: float) -> Whole:
    """Return how far images are made smaller before they are kept; a ``margin`` of 0 keeps them as they are.

    A small random crop of a large photograph is softer than one cut from the original: what the network is shown
    of the whole image is what it is shown of its parts.
    """
    short = max(round(margin * preprocessing.size), preprocessing.resize) if margin else None
    return Whole(short, preprocessing.squash, preprocessing.train_interpolation or preprocessing.interpolation)


@dataclass(frozen=True, eq=False)
class Decoded:
    """Decoded images, the positions of those that could be used, and the others."""

    pool: PixelPool | None  # None: more than the budget, or not asked for
    good: Integers  # (n_images,)
    bad: tuple[BadImage, ...]


def decode_all(
    sources: Sequence[ImageSource],
    whole: Whole,
    *,
    budget: float,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Decoded:
    """Have every image decoded once; what exceeds ``budget`` bytes in all is not kept."""
    images: list[NDArray[np.uint8]] = []
    sizes: list[tuple[int, int]] = []
    good: list[int] = []
    bad: list[BadImage] = []
    used = 0
    reduction = whole if budget else usable
    found = decoders().stream(((source, reduction) for source in sources), workers=workers)
    for done, one in enumerate(found, 1):
        if one.error is not None:
            bad.append(BadImage(one.error.name, one.error.reason))
        else:
            good.append(done - 1)
        if one.parts:
            size, pixels = (part or b"" for part in one.parts)
            sizes.append(Whole.size(size))
            images.append(np.frombuffer(pixels, np.uint8).reshape(-1, 3))
            used += len(pixels)
            if used > budget:
                images.clear()
        if on_progress is not None and (done % _REPORT == 0 or done == len(sources)):
            on_progress(done, len(sources))
    pool = None
    if images and used <= budget:
        widths, heights = np.array(sizes, dtype=np.int64).T
        pool = PixelPool(torch.from_numpy(np.concatenate(images)), heights, widths)
    return Decoded(pool, np.array(good, dtype=np.int64), tuple(bad))

"""All images of a run decoded once, end to end in one buffer that may lie on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fiveshot.backbones import Preprocessing
from fiveshot.data import BadImage, ImageError, ImageSource, decode

Integers = NDArray[np.int64]
_PIL_FILTERS = {"lanczos": 1, "bilinear": 2, "bicubic": 3}
_CHUNK = 32  # images that a worker hands over at a time


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


@dataclass(frozen=True)
class Decoding:
    """How far images are made smaller before they are kept.

    A small random crop of a large photograph is softer than one cut from the original: what the network is shown
    of the whole image is what it is shown of its parts.
    """

    short_side: int | None  # longest short side that is kept; None: as it is
    squash: int | None = None
    interpolation: str = "bicubic"

    @classmethod
    def of(cls, preprocessing: Preprocessing, *, margin: float) -> Decoding:
        """Return the decoding for a preprocessing; a ``margin`` of 0 keeps images as they are."""
        short = max(round(margin * preprocessing.size), preprocessing.resize) if margin else None
        return cls(short, preprocessing.squash, preprocessing.train_interpolation or preprocessing.interpolation)

    def __call__(self, source: ImageSource) -> Tensor:
        """Return one image, (height, width, 3) of uint8."""
        image: Any = decode(source)
        if self.squash is not None:
            image = image.resize((self.squash, self.squash), resample=_PIL_FILTERS[self.interpolation])
        short = min(image.size)
        if self.short_side is not None and short > self.short_side:
            size = [max(1, round(side * self.short_side / short)) for side in image.size]
            image = image.resize(size, resample=_PIL_FILTERS["bicubic"])
        return torch.from_numpy(np.array(image))


@dataclass(frozen=True, eq=False)
class Decoded:
    """Decoded images, the positions of those that could be used, and the others."""

    pool: PixelPool | None  # None: more than the budget, or not asked for
    good: Integers  # (n_images,)
    bad: tuple[BadImage, ...]


def decode_all(
    sources: Sequence[ImageSource],
    decoding: Decoding,
    *,
    budget: float,
    workers: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Decoded:
    """Decode every image once with worker processes; what exceeds ``budget`` bytes in all is not kept."""
    parts: list[Tensor] = []
    sizes: list[tuple[int, int]] = []
    good: list[int] = []
    bad: list[BadImage] = []
    used = 0
    loader: Any = DataLoader(
        _Chunks(sources, decoding),
        batch_size=None,
        num_workers=workers,
        generator=torch.Generator(),  # or else it draws from the global one
    )
    for flat, shapes, positions, refused in loader:
        used += flat.numel()
        # A copy gives the worker's shared memory back.
        parts = [*parts, flat.clone() if workers else flat] if used <= budget else []
        sizes += shapes
        good += positions
        bad += [BadImage(*entry) for entry in refused]
        if on_progress is not None:
            on_progress(len(good) + len(bad), len(sources))
    pool = None
    if used <= budget and good:
        heights, widths = np.array(sizes, dtype=np.int64).T
        pool = PixelPool(torch.cat(parts), heights, widths)
    return Decoded(pool, np.array(good, dtype=np.int64), tuple(bad))


class _Chunks(Dataset[Any]):
    """Chunks of decoded images, end to end; errors travel as values, because workers lose their types."""

    def __init__(self, sources: Sequence[ImageSource], decoding: Decoding) -> None:
        self.sources, self.decoding = sources, decoding

    def __len__(self) -> int:
        return -(-len(self.sources) // _CHUNK)

    def __getitem__(self, chunk: int) -> tuple[Tensor, list[tuple[int, int]], list[int], list[tuple[str, str]]]:
        images, good, bad = [], [], []
        for position in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, len(self.sources))):
            try:
                images.append(self.decoding(self.sources[position]))
                good.append(position)
            except ImageError as error:
                bad.append((error.name, error.reason))
        flat = torch.cat([torch.empty(0, 3, dtype=torch.uint8), *(image.view(-1, 3) for image in images)])
        return flat, [(image.shape[0], image.shape[1]) for image in images], good, bad

"""Views of a run's images: random views for training, fixed ones for measuring.

All random choices of an epoch are drawn before it starts, from the seed and the epoch's number. So a resumed run
makes the same choices as an uninterrupted one, there is no generator state to restore, and a GPU never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.backbones import Pixels, Preprocessing, normal_levels, normalize_tensor
from fiveshot.data import (
    BadImage,
    ImageSource,
    PixelsAndCopies,
    Reduced,
    WholePhoto,
    check_usable,
    decoders,
    size_of,
)
from fiveshot.tuning._crops import (
    Axis,
    center_axis,
    center_extent,
    crop_axis,
    exact_levels,
    padded,
    resample,
)
from fiveshot.tuning._recipes import TuneRecipe
from fiveshot.tuning.execution import log_without_compiling

Rows = NDArray[np.int64]
ORDER, CROPS = 0, 1  # purposes of an epoch's independent random generators
_TRIES = 10
_REPORT = 32  # images between two reports of the progress


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The order in which the images of one epoch are shown."""

    epoch: int
    order: Rows  # (n,), positions among the training images
    batch_size: int

    @property
    def batches(self) -> list[slice]:
        """Positions in the order that make up each batch; the last may be smaller."""
        n = len(self.order)
        return [slice(start, min(start + self.batch_size, n)) for start in range(0, n, self.batch_size)]


def plan_epoch(recipe: TuneRecipe, n_images: int, *, epoch: int, processes: int = 1) -> EpochPlan:
    """Draw the plan of an epoch; a last batch with fewer images than processes is left out.

    >>> plan = plan_epoch(TuneRecipe(batch_size=4), 10, epoch=3)
    >>> sorted(plan.order.tolist()) == list(range(10)), [len(plan.order[b]) for b in plan.batches]
    (True, [4, 4, 2])
    """
    order = np.random.default_rng([recipe.seed, epoch, ORDER]).permutation(n_images)
    tail = n_images % recipe.batch_size
    kept = n_images - (tail if tail < processes else 0)
    return EpochPlan(epoch, order[:kept], recipe.batch_size)


def share_of(batch: slice, part: tuple[int, int]) -> slice:
    """Return the contiguous part of a batch that one of several processes works on.

    >>> [share_of(slice(10, 15), (rank, 2)) for rank in range(2)]
    [slice(10, 13, None), slice(13, 15, None)]
    """
    rank, world = part
    n = batch.stop - batch.start
    bounds = [batch.start + (n * r + world - 1) // world for r in (rank, rank + 1)]
    return slice(*bounds)


class LoadedViews:
    """Images that the decoders decode and crop one by one, while the network works on earlier ones."""

    def __init__(
        self,
        sources: Sequence[ImageSource],
        preprocessing: Preprocessing,
        device: torch.device,
        *,
        workers: int | None = None,
    ) -> None:
        self.sources, self.device, self.workers = sources, device, workers
        self.preprocessing = replace(preprocessing, views=1)  # one view, even if features average several

    def train(
        self, rows: Rows, plan: EpochPlan, recipe: TuneRecipe, *, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Tensor]:
        """Yield random crops, randomly flipped; each depends only on seed, epoch and image."""
        shown = rows[plan.order]

        def view(row: int) -> PixelsAndCopies:
            draw = (recipe.seed, plan.epoch, CROPS, row)
            square = self.preprocessing.random_square(
                draw,
                scale=recipe.crop_scale,
                ratio=recipe.crop_ratio,
                flip=recipe.flip,
                whole=recipe.whole,
            )
            return PixelsAndCopies(square)

        batches = [shown[share_of(batch, part)].tolist() for batch in plan.batches]
        yield from self._loaded([[(row, view(row)) for row in batch] for batch in batches])

    def measure(self, rows: Rows, *, batch_size: int) -> Iterator[Tensor]:
        """Yield center crops."""
        parts = PixelsAndCopies(self.preprocessing.squares)
        batches = [rows[start : start + batch_size].tolist() for start in range(0, len(rows), batch_size)]
        yield from self._loaded([[(row, parts) for row in batch] for batch in batches])

    def _loaded(self, batches: Sequence[Sequence[tuple[int, PixelsAndCopies]]]) -> Iterator[Tensor]:
        asked = ((self.sources[row], parts) for batch in batches for row, parts in batch)
        ahead = max(map(len, batches), default=0)
        decoded = decoders().stream(asked, workers=self.workers, ahead=ahead)
        for batch in batches:
            squares = [self._square(found) for found in islice(decoded, len(batch))]
            pixels = torch.from_numpy(np.stack(squares))
            if self.device.type == "cuda":
                pixels = pixels.pin_memory().to(self.device, non_blocking=True)
            yield normalize_tensor(pixels, self.preprocessing)

    def _square(self, found: Reduced) -> Pixels:
        if found.error is not None:
            raise found.error
        (pixels,) = self.preprocessing.from_bytes(found.parts["pixels"])
        square: Pixels = pixels
        return square


class PooledViews:
    """Crops and flips made on the device from decoded images in its memory.

    ``compiled`` makes full batches several times faster, after compilation.
    """

    def __init__(
        self, pool: PixelPool, preprocessing: Preprocessing, device: torch.device, *, compiled: bool = False
    ) -> None:
        self.preprocessing, self.device = preprocessing, device
        self._compiled: Any = torch.compile(self.crop, dynamic=False) if compiled else None
        self.pool = replace(pool, pixels=pool.pixels.to(device))
        self._number_format = exact_levels(device)
        self._offsets = torch.from_numpy(pool.offsets).to(device)
        self._heights = torch.from_numpy(pool.heights).to(device)
        self._widths = torch.from_numpy(pool.widths).to(device)
        self._mean, self._std = normal_levels(preprocessing, device)

    def train(
        self, rows: Rows, plan: EpochPlan, recipe: TuneRecipe, *, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Tensor]:
        """Yield random resized crops, randomly flipped."""
        shown = rows[plan.order]
        rng = np.random.default_rng([recipe.seed, plan.epoch, CROPS])
        scale = recipe.crop_scale or self.preprocessing.train_scale
        heights, widths = self.pool.heights[shown], self.pool.widths[shown]
        boxes = random_crop_boxes(heights, widths, scale=scale, ratio=recipe.crop_ratio, rng=rng)
        whole = rng.random(len(shown)) < recipe.whole
        boxes[whole] = np.stack([np.zeros_like(heights), np.zeros_like(heights), heights, widths], axis=1)[whole]
        flips = rng.random(len(shown)) < recipe.flip
        on_device = [torch.from_numpy(a).to(self.device) for a in (shown, boxes, flips)]
        # The size of the largest image, so that all batches have one shape that suits matrix products.
        largest = padded(int(self.pool.heights.max())), padded(int(self.pool.widths.max()))
        for batch in plan.batches:
            own = share_of(batch, part)
            given = [a[own] for a in on_device]
            crops = None
            if self._compiled is not None and batch.stop - batch.start == plan.batch_size:
                try:
                    crops = self._compiled(*given, extent=largest)
                except Exception as error:
                    log_without_compiling(error)
                    self._compiled = None
            if crops is None:
                extent = boxes[own, 2:].max(axis=0)
                crops = self.crop(*given, extent=(int(extent[0]), int(extent[1])))
            yield crops

    def crop(self, rows: Tensor, boxes: Tensor, flips: Tensor, *, extent: tuple[int, int]) -> Tensor:
        """Return the boxes (n, 4) of the images ``rows``, resized to the network's input and normalized."""
        wanted = self.preprocessing
        mode = wanted.train_interpolation or wanted.interpolation
        tall = crop_axis(boxes[:, 0], boxes[:, 2], size=wanted.size, extent=extent[0])
        wide = crop_axis(boxes[:, 1], boxes[:, 3], size=wanted.size, extent=extent[1])
        return self._resampled(rows, tall, wide, mode, flips)

    def measure(self, rows: Rows, *, batch_size: int) -> Iterator[Tensor]:
        """Yield center crops."""
        wanted, mode = self.preprocessing, self.preprocessing.interpolation
        heights, widths = self.pool.heights[rows], self.pool.widths[rows]
        resized = [_resized(heights, heights, widths, wanted), _resized(widths, heights, widths, wanted)]
        on_device = torch.from_numpy(rows).to(self.device)
        for start in range(0, len(rows), batch_size):
            own = slice(start, start + batch_size)
            axes = []
            for lengths, targets in zip((heights[own], widths[own]), resized, strict=True):
                pairs = zip(lengths.tolist(), targets[own].tolist(), strict=True)
                extent = max(center_extent(a, b, size=wanted.size, interpolation=mode) for a, b in pairs)
                length, target = (torch.from_numpy(a).to(self.device) for a in (lengths, targets[own]))
                axes.append(center_axis(length, target, size=wanted.size, interpolation=mode, extent=extent))
            tall, wide = axes
            yield self._resampled(on_device[own], tall, wide, mode)

    def _resampled(self, rows: Tensor, tall: Axis, wide: Axis, mode: str, flips: Tensor | None = None) -> Tensor:
        """Return the images ``rows``, resampled along both axes and normalized."""
        heights, widths = self._heights[rows][:, None], self._widths[rows][:, None]
        y = tall.origin.long()[:, None] + torch.arange(tall.extent, device=self.device)
        x = wide.origin.long()[:, None] + torch.arange(wide.extent, device=self.device)
        line = self._offsets[rows][:, None] + torch.minimum(y, heights - 1) * widths  # (n, tall)
        windows = self.pool.pixels[
            line[:, :, None] + torch.minimum(x, widths - 1)[:, None, :]
        ]  # (n, tall, wide, 3)
        size, kind = self.preprocessing.size, self._number_format
        vertical, horizontal = tall.weights(size, mode), wide.weights(size, mode, reverse=flips)
        return resample(windows, vertical.to(kind), horizontal.to(kind)).sub_(self._mean).div_(self._std)


def _resized(lengths: Rows, heights: Rows, widths: Rows, preprocessing: Preprocessing) -> Rows:
    """Return the length of an axis after the short side was resized, rounded down as torchvision does."""
    if preprocessing.squash == preprocessing.resize:
        return lengths
    short = np.minimum(heights, widths)
    return (preprocessing.resize * lengths / short).astype(np.int64)


def random_crop_boxes(
    heights: Rows,
    widths: Rows,
    *,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    rng: np.random.Generator,
) -> Rows:  # (n, 4): top, left, height, width
    """Draw a random resized crop for every image, distributed as ``fiveshot.backbones`` draws a single one."""
    n = len(heights)
    areas = heights * widths * rng.uniform(*scale, size=(_TRIES, n))
    aspects = np.exp(rng.uniform(np.log(ratio[0]), np.log(ratio[1]), size=(_TRIES, n)))
    tall, wide = np.rint(np.sqrt(areas / aspects)), np.rint(np.sqrt(areas * aspects))
    fits = (tall > 0) & (tall <= heights) & (wide > 0) & (wide <= widths)
    first = fits.argmax(axis=0), np.arange(n)
    # If no attempt fits: the largest centered box with allowed proportions.
    aspect = np.clip(widths / heights, *ratio)
    lost = ~fits.any(axis=0)
    tall = np.where(lost, np.minimum(heights, np.rint(widths / aspect)), tall[first]).astype(np.int64)
    wide = np.where(lost, np.minimum(widths, np.rint(heights * aspect)), wide[first]).astype(np.int64)
    places = rng.random((2, n))
    top = np.where(lost, (heights - tall) // 2, np.floor(places[0] * (heights - tall + 1)))
    left = np.where(lost, (widths - wide) // 2, np.floor(places[1] * (widths - wide + 1)))
    return np.stack([top, left, tall, wide], axis=1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class PixelPool:
    """Images of different sizes in one flat buffer."""

    pixels: Tensor  # (n_pixels, 3), uint8
    heights: Rows  # (n_images,)
    widths: Rows  # (n_images,)

    @property
    def offsets(self) -> Rows:  # (n_images,)
        """The start of each image in the buffer."""
        return np.concatenate([[0], np.cumsum(self.heights * self.widths)[:-1]]).astype(np.int64)


# The source of a run's images; ``rows`` are positions among all images. ``train`` yields the batches of an epoch,
# each (n, 3, size, size) and normalized, on the device. ``part`` is the index of the process and the number of
# processes; each gets its share of every batch. ``measure`` yields the views that features are made from, in
# order.
Views = LoadedViews | PooledViews


def whole_images(preprocessing: Preprocessing, *, margin: float) -> WholePhoto:
    """Return the reduction that scales images down before they are kept; with a ``margin`` of 0 it does not scale.

    A small random crop of a scaled photo is softer than one cut from the original: parts are shown at the same
    resolution as the whole image.
    """
    short = max(round(margin * preprocessing.size), preprocessing.resize) if margin else None
    return WholePhoto(
        short, preprocessing.squash, preprocessing.train_interpolation or preprocessing.interpolation
    )


@dataclass(frozen=True, eq=False)
class Decoded:
    """Decoded images, the positions of the usable ones, and the bad images."""

    pool: PixelPool | None  # None: above the budget, or not requested
    good: Rows  # (n_images,)
    bad: tuple[BadImage, ...]


def decode_all(
    sources: Sequence[ImageSource],
    whole: WholePhoto,
    *,
    budget: float,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Decoded:
    """Decode every image once; keep the pixels only if all of them fit into ``budget`` bytes."""
    images: list[NDArray[np.uint8]] = []
    sizes: list[tuple[int, int]] = []
    good: list[int] = []
    bad: list[BadImage] = []
    used = 0
    reduction = whole if budget else check_usable
    found = decoders().stream(((source, reduction) for source in sources), workers=workers)
    for done, one in enumerate(found, 1):
        if one.error is not None:
            bad.append(BadImage(one.error.name, one.error.reason))
        else:
            good.append(done - 1)
        if one.parts:
            pixels = one.parts["pixels"]
            sizes.append(size_of(one.parts["size"]))
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

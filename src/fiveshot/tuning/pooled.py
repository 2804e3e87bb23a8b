"""Views made on the device from decoded images that lie there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fiveshot.backbones import Preprocessing
from fiveshot.tuning.pixels import PixelPool
from fiveshot.tuning.plan import CROPS, EpochPlan, epoch_rng, random_crop_boxes
from fiveshot.tuning.recipe import TuneRecipe
from fiveshot.tuning.resample import centre_axis, centre_extent, crop_axis, resample
from fiveshot.tuning.views import Rows, share_of


class PooledViews:
    """Crops and flips made on the device from decoded images that lie there."""

    def __init__(self, pool: PixelPool, preprocessing: Preprocessing, device: torch.device) -> None:
        self.preprocessing, self.device = preprocessing, device
        self.pool = pool.to(device)
        self._offsets = torch.from_numpy(pool.offsets).to(device)
        self._heights = torch.from_numpy(pool.heights).to(device)
        self._widths = torch.from_numpy(pool.widths).to(device)
        self._mean, self._std = (
            255 * torch.tensor(v, device=device).view(3, 1, 1) for v in (preprocessing.mean, preprocessing.std)
        )

    def train(
        self, rows: Rows, plan: EpochPlan, recipe: TuneRecipe, *, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Tensor]:
        """Yield random resized crops, flipped by chance."""
        shown = rows[plan.order]
        rng = epoch_rng(recipe.seed, plan.epoch, CROPS)
        scale = recipe.crop_scale or self.preprocessing.train_scale
        heights, widths = self.pool.heights[shown], self.pool.widths[shown]
        boxes = random_crop_boxes(heights, widths, scale=scale, ratio=recipe.crop_ratio, rng=rng)
        flips = rng.random(len(shown)) < recipe.flip
        on_device = [torch.from_numpy(a).to(self.device) for a in (shown, boxes, flips)]
        for batch in plan.batches:
            own = share_of(batch, part)
            extent = boxes[own, 2:].max(axis=0)
            yield self.crop(*(a[own] for a in on_device), extent=(int(extent[0]), int(extent[1])))

    def crop(self, rows: Tensor, boxes: Tensor, flips: Tensor, *, extent: tuple[int, int]) -> Tensor:
        """Return the boxes (n, 4) of the images ``rows``, resized to the network's input and normalised."""
        wanted = self.preprocessing
        mode = wanted.train_interpolation or wanted.interpolation
        tall = crop_axis(boxes[:, 0], boxes[:, 2], size=wanted.size, extent=extent[0])
        wide = crop_axis(boxes[:, 1], boxes[:, 3], size=wanted.size, extent=extent[1])
        windows = self._windows(rows, tall.origin, wide.origin, extent)
        vertical, horizontal = tall.weights(wanted.size, mode), wide.weights(wanted.size, mode, reverse=flips)
        return self._normalised(resample(windows, vertical, horizontal))

    def measure(self, rows: Rows, *, batch_size: int) -> Iterator[Tensor]:
        """Yield centre crops."""
        wanted, mode = self.preprocessing, self.preprocessing.interpolation
        heights, widths = self.pool.heights[rows], self.pool.widths[rows]
        resized = [_resized(heights, heights, widths, wanted), _resized(widths, heights, widths, wanted)]
        on_device = torch.from_numpy(rows).to(self.device)
        for start in range(0, len(rows), batch_size):
            own = slice(start, start + batch_size)
            axes = []
            for lengths, targets in zip((heights[own], widths[own]), resized, strict=True):
                pairs = zip(lengths.tolist(), targets[own].tolist(), strict=True)
                extent = max(centre_extent(a, b, size=wanted.size, interpolation=mode) for a, b in pairs)
                length, target = (torch.from_numpy(a).to(self.device) for a in (lengths, targets[own]))
                axes.append(centre_axis(length, target, size=wanted.size, interpolation=mode, extent=extent))
            windows = self._windows(
                on_device[own], axes[0].origin, axes[1].origin, (axes[0].extent, axes[1].extent)
            )
            matrices = [axis.weights(wanted.size, mode) for axis in axes]
            yield self._normalised(resample(windows, *matrices))

    def _windows(self, rows: Tensor, top: Tensor, left: Tensor, extent: tuple[int, int]) -> Tensor:
        heights, widths = self._heights[rows], self._widths[rows]
        y = top.long()[:, None] + torch.arange(extent[0], device=self.device)
        x = left.long()[:, None] + torch.arange(extent[1], device=self.device)
        y, x = torch.minimum(y, heights[:, None] - 1), torch.minimum(x, widths[:, None] - 1)
        line = self._offsets[rows][:, None] + y * widths[:, None]  # (n, tall)
        return self.pool.pixels[line[:, :, None] + x[:, None, :]]  # (n, tall, wide, 3)

    def _normalised(self, images: Tensor) -> Tensor:
        return images.sub_(self._mean).div_(self._std)


def _resized(lengths: Rows, heights: Rows, widths: Rows, preprocessing: Preprocessing) -> Rows:
    """Return the length of an axis after the short side was resized, rounded down as torchvision does."""
    if preprocessing.squash == preprocessing.resize:
        return lengths
    short = np.minimum(heights, widths)
    return (preprocessing.resize * lengths / short).astype(np.int64)

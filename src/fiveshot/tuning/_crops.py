"""Crop and resize pictures on their device, as input for tuning.

Resizing is linear and separable: out = A · crop · Bᵀ, where row i of A holds the filter's weights of output row i.
It is two batched products with whole matrices. The filters, their widening when an image is made smaller
(antialiasing) and their cut at the border are those of PIL and torchvision's antialiased resize.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def padded(length: int) -> int:
    """Return the next multiple of 16, because a GPU multiplies such matrices faster.

    >>> padded(500), padded(512)
    (512, 512)
    """
    return -(-length // 16) * 16


def exact_levels(device: torch.device) -> torch.dtype:
    """Return a number format with exact gray levels and fast products."""
    return torch.float16 if device.type == "cuda" else torch.float32


def _cubic(x: Tensor) -> Tensor:
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1  # a = −0.5, as PIL has it
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def _lanczos(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 3, torch.sinc(x) * torch.sinc(x / 3), torch.zeros_like(x))


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp_min(0)


FILTERS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {  # with the radius outside which they are 0
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}


@dataclass(frozen=True, eq=False)
class Axis:
    """Positions of the output pixels along one axis of each image, in input pixels, and what they may read."""

    start: Tensor  # (n,), the output's edge
    step: Tensor  # (n,), length of an output pixel
    low: Tensor  # (n,), first input pixel that counts
    high: Tensor  # (n,), end of those that count
    origin: Tensor  # (n,), first input pixel that is gathered
    extent: int  # number of input pixels that are gathered

    def weights(self, size: int, interpolation: str, *, reverse: Tensor | None = None) -> Tensor:
        """Return the matrices (n, size, extent); where ``reverse``, the output runs backwards."""
        kernel, _ = FILTERS[interpolation]
        places = torch.arange(size, device=self.start.device, dtype=torch.float32) + 0.5  # (size,)
        if reverse is not None:
            places = torch.where(reverse[:, None], size - places, places)
        centers = self.start[:, None] + places * self.step[:, None]  # (n, size)
        pixels = self.origin[:, None] + torch.arange(self.extent, device=self.start.device) + 0.5  # (n, extent)
        stretch = self.step.clamp_min(1)[:, None, None]
        weights = kernel((pixels[:, None, :] - centers[:, :, None]) / stretch)
        seen = (pixels > self.low[:, None]) & (pixels < self.high[:, None])
        weights = weights * seen[:, None, :]
        return weights / weights.sum(dim=2, keepdim=True)


def crop_axis(start: Tensor, length: Tensor, *, size: int, extent: int) -> Axis:
    """Return the axis of a crop that is cut out and then resized; pixels outside the crop do not count."""
    start, length = start.float(), length.float()
    return Axis(start, length / size, start, start + length, start, extent)


def center_axis(length: Tensor, resized: Tensor, *, size: int, interpolation: str, extent: int) -> Axis:
    """Return the axis of an image of ``length`` that is resized as a whole and then cropped in the middle."""
    step = length.float() / resized.float()
    # torchvision's CenterCrop rounds half to even, so does torch.
    start = torch.round((resized - size) / 2.0) * step
    radius = FILTERS[interpolation][1] * step.clamp_min(1)
    origin = (start - radius).floor().clamp_min(0)
    return Axis(start, step, torch.zeros_like(step), length.float(), origin, extent)


def center_extent(length: int, resized: int, *, size: int, interpolation: str) -> int:
    """Return the largest number of pixels of an axis that a center crop of ``size`` reads."""
    step = length / resized
    radius = FILTERS[interpolation][1] * max(step, 1.0)
    return min(length, math.ceil(size * step + 2 * radius) + 2)


def resample(
    windows: Tensor, vertical: Tensor, horizontal: Tensor
) -> Tensor:  # (n, 3, height, width), 0..255 in float32
    """Apply the matrices (n, height, extent_y) and (n, width, extent_x) to uint8 windows (n, y, x, 3)."""
    n, tall, wide, channels = windows.shape
    # The colors of a row are adjacent, so that both steps are one product for each window.
    lines = windows.permute(0, 1, 3, 2).to(vertical.dtype).reshape(n, tall, channels * wide)
    rows = torch.bmm(vertical, lines).view(n, -1, wide)
    views = torch.bmm(rows, horizontal.mT).view(n, vertical.shape[1], channels, -1).permute(0, 2, 1, 3)
    return views.clamp_(0, 255)  # bicubic filters overshoot

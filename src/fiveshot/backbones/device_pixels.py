"""Photos decoded, scaled and cropped on a GPU, many at once, to the squares that a network takes.

Cores decode and scale photos far more slowly than a GPU looks at them. A GPU decodes JPEG itself (``nvjpeg``), and
scaling is two matrix products (``resample``). What a file says is checked first: only plain JPEG files
in color go to the GPU. All others, and those that it refuses, are for the decoders of ``fiveshot.data``.

Resizing is linear and separable: out = A · crop · Bᵀ, where row i of A holds the filter's weights of output row i.
The matrices of a batch are cheap to compute, and two batched products do the rest on any device. The filters,
their widening when an image is made smaller (antialiasing) and their cut at the border are those of PIL and
torchvision's antialiased resize; what differs is that nothing is rounded to whole gray levels on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.data import ArraySource
from fiveshot.data.decoding import JpegFile
from fiveshot.data.reduction import VIEWS

MOST_PIXELS = 48_000_000  # that are scaled at once, the padding of small photos beside large ones included

Picture: TypeAlias = ArraySource | JpegFile
Size: TypeAlias = tuple[int, int]  # height and width
Decode: TypeAlias = Callable[[Sequence[JpegFile], Sequence[Tensor]], bool]  # into their places; False: refused


@dataclass(frozen=True, eq=False)
class DevicePixels:
    """Makes squares as ``Preprocessing.pixels`` does, but for single gray levels: sums are rounded elsewhere."""

    preprocessing: Preprocessing
    device: torch.device
    decode: Decode | None = None  # None: all files are refused

    def enter_thread(self, numbers: Iterator[int]) -> None:
        """Let the GPU do what this thread asks for beside, and before, what the network does, from now on."""
        if self.device.type == "cuda":
            torch.cuda.set_stream(_stream(self.device, next(numbers)))

    def squares(self, pictures: Sequence[Picture]) -> Tensor | None:
        """Return the squares (n, views, 3, size, size), or None where a file is refused."""
        sizes = [_size(picture) for picture in pictures]
        made = []
        for own in _groups(sizes):
            batch = self._placed(pictures[own], sizes[own])
            if batch is None:
                return None
            made.append(self._squares(batch, sizes[own]))
        return torch.cat(made) if made else None

    def placed(self, pixels: Pixels) -> Tensor:
        """Return squares that were made elsewhere, on the device."""
        return torch.from_numpy(pixels).to(self.device)

    def joined(self, squares: Tensor | None, others: Sequence[Pixels], order: NDArray[np.int64]) -> Tensor:
        """Return the squares made here, those made elsewhere behind them, and all of that in this order."""
        if squares is not None and not others:
            return squares  # in their order already
        parts = [] if squares is None else [squares]
        parts += [self.placed(pixels) for pixels in others]
        if not parts:
            return torch.empty(0, *self.preprocessing.shape, dtype=torch.uint8)
        return torch.cat(parts)[torch.from_numpy(order).to(self.device)]

    def _placed(self, pictures: Sequence[Picture], sizes: Sequence[Size]) -> Tensor | None:
        """Return pictures, upright (n, 3, height, width), each in its corner; None where a file is refused."""
        tall, wide = (padded(max(side)) for side in zip(*sizes, strict=True))
        # What lies beside a picture counts for nothing, whatever it is.
        batch = torch.empty(len(pictures), 3, tall, wide, dtype=torch.uint8, device=self.device)
        arrays = [picture.array for picture in pictures if isinstance(picture, ArraySource)]
        if len(arrays) == len(pictures) and len(set(sizes)) == 1:  # one transfer for all
            pixels = torch.from_numpy(np.stack(arrays)).to(self.device)
            batch[:, :, : sizes[0][0], : sizes[0][1]] = pixels.permute(0, 3, 1, 2)
            return batch
        files: list[JpegFile] = []
        places: list[Tensor] = []
        turned: list[tuple[Tensor, Tensor, int]] = []
        for row, (picture, (height, width)) in enumerate(zip(pictures, sizes, strict=True)):
            place = batch[row, :, :height, :width]
            if isinstance(picture, ArraySource):
                place.copy_(torch.tensor(picture.array, device=self.device).permute(2, 0, 1))
                continue
            facts = picture.facts
            if facts.orientation > 1:
                stored = torch.empty(3, facts.height, facts.width, dtype=torch.uint8, device=self.device)
                turned.append((place, stored, facts.orientation))
                place = stored
            files.append(picture)
            places.append(place)
        if files and (self.decode is None or not self.decode(files, places)):
            return None
        for place, stored, orientation in turned:
            place.copy_(upright(stored, orientation))
        return batch

    def _squares(self, batch: Tensor, sizes: Sequence[Size]) -> Tensor:
        wanted, n = self.preprocessing, len(batch)
        if wanted.squash is not None:
            side = wanted.squash
            squashed = [(side, side)] * n
            batch = self._scaled(batch, *self._weights(batch, sizes, [squashed], side)[0])
            sizes = squashed
        batch = batch.to(exact_levels(self.device))
        names = VIEWS[wanted.views]
        parts = list(dict.fromkeys(name.removeprefix("mirrored ") for name in names))
        targets = [[wanted.squares.scaled(size, part) for size in sizes] for part in parts]
        made = {
            part: self._scaled(batch, *weights)
            for part, weights in zip(parts, self._weights(batch, sizes, targets, wanted.size), strict=True)
        }
        squares = torch.empty(n, *wanted.shape, dtype=torch.uint8, device=self.device)
        for view, name in enumerate(names):
            part = name.removeprefix("mirrored ")
            squares[:, view] = made[part] if name == part else made[part].flip(-1)
        return squares

    def _scaled(self, batch: Tensor, down: Tensor, across: Tensor) -> Tensor:
        """Return the centers (n, 3, side, side) of pictures after both steps: rows first, as PIL does."""
        n, channels, tall, wide = batch.shape
        side = down.shape[2]
        # Colors lie beside each other, so that both steps are one product for each picture.
        columns = _levels(across, batch.reshape(n, channels * tall, wide))  # (n, side, channels · tall)
        rows = _levels(down, columns.view(n, side * channels, tall))  # (n, side, side · channels)
        return rows.view(n, side, side, channels).permute(0, 3, 1, 2)

    def _weights(
        self, batch: Tensor, sizes: Sequence[Size], targets: Sequence[Sequence[Size]], side: int
    ) -> list[tuple[Tensor, Tensor]]:
        """Return the matrices (parts, n, side, extent) of both axes that scale pictures and cut out centers.

        Photos of one camera have few sizes, so each matrix is computed once, and all of them in the same few
        steps: a GPU that is busy with the network lets each step wait.
        """
        lengths = [
            (size[axis], target[axis])
            for own in targets
            for axis in (0, 1)
            for size, target in zip(sizes, own, strict=True)
        ]
        different = {pair: row for row, pair in enumerate(dict.fromkeys(lengths))}
        rows = [different[pair] for pair in lengths]
        numbers = torch.tensor([*chain.from_iterable(different), *rows])
        if self.device.type == "cuda":  # from memory that the GPU reads by itself, so that nobody waits for it
            numbers = numbers.pin_memory().to(self.device, non_blocking=True)
        before, after = numbers[: 2 * len(different)].view(-1, 2).unbind(dim=1)
        mode, extents = self.preprocessing.interpolation, batch.shape[2:]
        axis = center_axis(before, after, size=side, interpolation=mode, extent=max(extents))
        matrices = replace(axis, origin=torch.zeros_like(axis.origin)).weights(side, mode)
        parts = _parts(matrices)
        found = numbers[2 * len(different) :].view(len(targets), 2, len(sizes))
        return [(parts[:, down, :, : extents[0]], parts[:, across, :, : extents[1]]) for down, across in found]


@cache
def _stream(device: torch.device, number: int) -> Any:
    """Return one of a few streams: whatever it has prepared, such as memory, is there for the next thread."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def upright(picture: Tensor, orientation: int) -> Tensor:
    """Return a picture (..., height, width) as a person sees it; ``orientation`` is EXIF's, 1 to 8.

    >>> upright(torch.tensor([[1, 2], [3, 4]]), 6).tolist()
    [[3, 1], [4, 2]]
    """
    if orientation >= 5:
        picture = picture.transpose(-2, -1)
    # After the exchange of the axes: 6 mirrors left and right, 8 top and bottom, 7 both.
    mirrored = {2: [-1], 3: [-2, -1], 4: [-2], 6: [-1], 7: [-2, -1], 8: [-2]}.get(orientation, [])
    return picture.flip(mirrored) if mirrored else picture


def _size(picture: Picture) -> Size:
    """Return height and width of a picture as a person sees it."""
    if isinstance(picture, ArraySource):
        height, width = picture.array.shape[:2]
        return height, width
    height, width = picture.facts.height, picture.facts.width
    return (width, height) if picture.facts.orientation >= 5 else (height, width)


def padded(length: int) -> int:
    """Return the next multiple of eight: a GPU multiplies such matrices faster.

    >>> padded(500), padded(504)
    (504, 504)
    """
    return -(-length // 8) * 8


def exact_levels(device: torch.device) -> torch.dtype:
    """Return a number format that has all gray levels, and in which products are fast."""
    return torch.float16 if device.type == "cuda" else torch.float32


def _parts(weights: Tensor) -> Tensor:
    """Return numbers (parts, ...) in that format whose sums are the weights, as exact as PIL has them."""
    first = weights.to(exact_levels(weights.device))
    return torch.stack([first, (weights - first).half()]) if weights.is_cuda else first[None]


def _levels(weights: Tensor, levels: Tensor) -> Tensor:
    """Return weights · levelsᵀ as gray levels; halves go up, as PIL has it."""
    turned = levels.to(weights.dtype).mT
    if weights.is_cuda:
        sums = torch.bmm(weights[0], turned, out_dtype=torch.float32)
        sums.add_(torch.bmm(weights[1], turned, out_dtype=torch.float32))
    else:
        sums = torch.bmm(weights[0], turned)
    return sums.add_(0.5).clamp_(0, 255).to(torch.uint8)  # bicubic filters overshoot


def _groups(sizes: Sequence[Size]) -> Iterator[slice]:
    """Yield ranges of pictures that are padded to one size: few enough for the memory, at least one."""
    start, tall, wide = 0, 0, 0
    for position, (height, width) in enumerate(sizes):
        tall, wide = max(tall, height), max(wide, width)
        if position > start and (position + 1 - start) * tall * wide > MOST_PIXELS:
            yield slice(start, position)
            start, tall, wide = position, height, width
    if sizes:
        yield slice(start, len(sizes))


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
    """Where the output's pixels lie along one axis of each image, in input pixels, and what they may see."""

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
    """Return the axis of a crop that is cut out first and resized then: nothing beyond its edge counts."""
    start, length = start.float(), length.float()
    return Axis(start, length / size, start, start + length, start, extent)


def center_axis(length: Tensor, resized: Tensor, *, size: int, interpolation: str, extent: int) -> Axis:
    """Return the axis of an image of ``length`` resized as a whole and cropped in the middle then."""
    step = length.float() / resized.float()
    # torchvision's CenterCrop rounds half to even, so does torch.
    start = torch.round((resized - size) / 2.0) * step
    radius = FILTERS[interpolation][1] * step.clamp_min(1)
    origin = (start - radius).floor().clamp_min(0)
    return Axis(start, step, torch.zeros_like(step), length.float(), origin, extent)


def center_extent(length: int, resized: int, *, size: int, interpolation: str) -> int:
    """Return how many pixels of an axis a center crop of ``size`` looks at, at most."""
    step = length / resized
    radius = FILTERS[interpolation][1] * max(step, 1.0)
    return min(length, math.ceil(size * step + 2 * radius) + 2)


def resample(
    windows: Tensor, vertical: Tensor, horizontal: Tensor
) -> Tensor:  # (n, 3, height, width), 0..255 in float32
    """Apply the matrices (n, height, extent_y) and (n, width, extent_x) to uint8 windows (n, y, x, 3)."""
    n, tall, wide, channels = windows.shape
    # The colors of a row lie one after the other, so that both steps are one product for each window.
    lines = windows.permute(0, 1, 3, 2).to(vertical.dtype).reshape(n, tall, channels * wide)
    rows = torch.bmm(vertical, lines).view(n, -1, wide)
    views = torch.bmm(rows, horizontal.mT).view(n, vertical.shape[1], channels, -1).permute(0, 2, 1, 3)
    return views.clamp_(0, 255)  # bicubic filters overshoot

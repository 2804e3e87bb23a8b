"""Photos decoded, scaled and cropped on a GPU, many at once, to the squares that a network takes.

Cores decode and scale photos far more slowly than a GPU looks at them. A GPU decodes JPEG itself, and scaling is
two matrix products (``resample``). What a file says is checked first: only plain JPEG files
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
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.data import ArraySource
from fiveshot.data.decoding import JpegFile
from fiveshot.data.reduction import VIEWS
from fiveshot.extras import import_extra

MOST_PIXELS = 48_000_000  # that are scaled at once, the padding of small photos beside large ones included
_SIDE = 8  # photos are padded to a multiple of this: a GPU multiplies such matrices faster

Picture: TypeAlias = ArraySource | JpegFile


@dataclass(frozen=True, eq=False)
class DevicePixels:
    """Makes squares as ``Preprocessing.pixels`` does, but for single gray levels: sums are rounded elsewhere."""

    preprocessing: Preprocessing
    device: torch.device

    def enter_thread(self) -> None:
        """Let the GPU do what this thread asks for beside what other threads ask for, from now on."""
        if self.device.type == "cuda":
            torch.cuda.set_stream(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]

    def squares(self, pictures: Sequence[Picture]) -> Tensor | None:
        """Return the squares (n, views, 3, size, size), or None where a file is refused."""
        decoded = self._decoded([picture for picture in pictures if isinstance(picture, JpegFile)])
        if decoded is None:
            return None
        next_file = iter(decoded)
        next_array = iter(
            self._uploaded([picture.array for picture in pictures if isinstance(picture, ArraySource)])
        )
        on_device = [next(next_file if isinstance(picture, JpegFile) else next_array) for picture in pictures]
        made = [self._squares(on_device[start:stop]) for start, stop in _groups(on_device)]
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

    def _uploaded(self, arrays: Sequence[NDArray[np.uint8]]) -> list[Tensor]:
        """Return arrays, upright (3, height, width), in one piece where they are of one size."""
        if len({array.shape for array in arrays}) == 1:
            return list(torch.from_numpy(np.stack(arrays)).to(self.device).permute(0, 3, 1, 2))
        return [torch.tensor(array, device=self.device).permute(2, 0, 1) for array in arrays]

    def _decoded(self, files: Sequence[JpegFile]) -> list[Tensor] | None:
        """Return photos, upright (3, height, width), or None where one of them is refused."""
        if not files:
            return []
        io = import_extra("torchvision.io")
        if not hasattr(io, "decode_jpeg"):  # later releases leave it to another library
            return None
        encoded = [torch.frombuffer(_writable(file.data), dtype=torch.uint8) for file in files]
        try:
            pictures = io.decode_jpeg(encoded, mode=io.ImageReadMode.RGB, device=self.device)
        except RuntimeError:
            return None
        sizes = [(file.facts.height, file.facts.width) for file in files]
        if [tuple(picture.shape[1:]) for picture in pictures] != sizes:
            return None
        return [upright(picture, file.facts.orientation) for picture, file in zip(pictures, files, strict=True)]

    def _squares(self, pictures: Sequence[Tensor]) -> Tensor:
        wanted, n = self.preprocessing, len(pictures)
        sizes = [(picture.shape[1], picture.shape[2]) for picture in pictures]
        tall, wide = (-(-max(side) // _SIDE) * _SIDE for side in zip(*sizes, strict=True))
        # Gray levels are whole numbers up to 255 in both formats.
        kind = torch.float16 if self.device.type == "cuda" else torch.float32
        batch = torch.zeros(n, 3, tall, wide, dtype=kind, device=self.device)
        if len(set(sizes)) == 1:
            batch[:, :, : sizes[0][0], : sizes[0][1]] = torch.stack(list(pictures))
        else:
            for row, (picture, (height, width)) in enumerate(zip(pictures, sizes, strict=True)):
                batch[row, :, :height, :width] = picture
        if wanted.squash is not None:
            side = wanted.squash
            batch = self._scaled(batch, sizes, [(side, side)] * n, side)
            sizes = [(side, side)] * n
        made: dict[str, Tensor] = {}
        squares = torch.empty(n, *wanted.shape, dtype=torch.uint8, device=self.device)
        for view, name in enumerate(VIEWS[wanted.views]):
            part = name.removeprefix("mirrored ")
            if part not in made:
                targets = [wanted.squares.scaled(size, part) for size in sizes]
                made[part] = self._scaled(batch, sizes, targets, wanted.size)
            squares[:, view] = made[part] if name == part else made[part].flip(-1)
        return squares

    def _scaled(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], targets: Sequence[tuple[int, int]], side: int
    ) -> Tensor:
        """Return the centers (n, 3, side, side) of pictures scaled to their targets: rows first, as PIL does."""
        n, channels, tall, wide = batch.shape
        down, across = (
            self._weights(
                [(size[i], target[i]) for size, target in zip(sizes, targets, strict=True)], side, extent
            ).to(batch.dtype)
            for i, extent in enumerate((tall, wide))
        )
        # Colors lie beside each other, so that both steps are one product for each picture.
        columns = _levels(across @ batch.reshape(n, channels * tall, wide).mT)  # (n, side, channels · tall)
        turned = _levels(columns.view(n, side * channels, tall) @ down.mT)  # (n, side · channels, side)
        return turned.view(n, side, channels, side).permute(0, 2, 3, 1)

    def _weights(self, lengths: Sequence[tuple[int, int]], side: int, extent: int) -> Tensor:
        """Return the matrices (n, side, extent) of center crops; lengths are before and after, whole pictures.

        Photos of one camera have few sizes, so each matrix is computed once.
        """
        mode, different = self.preprocessing.interpolation, list(dict.fromkeys(lengths))
        before, after = torch.tensor(different, device=self.device).unbind(dim=1)
        axis = center_axis(before, after, size=side, interpolation=mode, extent=extent)
        matrices = replace(axis, origin=torch.zeros_like(axis.origin)).weights(side, mode)
        return matrices[torch.tensor([different.index(pair) for pair in lengths], device=self.device)]


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


def _writable(data: bytes | memoryview) -> bytearray | memoryview:
    """Return the data as torch wants it, though nobody writes there."""
    return data if isinstance(data, memoryview) else bytearray(data)


def _levels(values: Tensor) -> Tensor:
    return values.add_(0.5).floor_().clamp_(0, 255)  # halves go up, as PIL has it; bicubic filters overshoot


def _groups(pictures: Sequence[Tensor]) -> Iterator[tuple[int, int]]:
    """Yield ranges of pictures that are padded to one size: few enough for the memory, at least one."""
    start, tall, wide = 0, 0, 0
    for position, picture in enumerate(pictures):
        tall, wide = max(tall, picture.shape[1]), max(wide, picture.shape[2])
        if position > start and (position + 1 - start) * tall * wide > MOST_PIXELS:
            yield start, position
            start, tall, wide = position, picture.shape[1], picture.shape[2]
    if pictures:
        yield start, len(pictures)


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
    rows = torch.bmm(vertical, windows.reshape(n, tall, wide * channels).to(vertical.dtype))
    height = rows.shape[1]
    planes = rows.view(n, height, wide, channels).permute(0, 3, 1, 2).reshape(n, channels * height, wide)
    views = torch.bmm(planes, horizontal.transpose(1, 2)).view(n, channels, height, -1)
    return views.clamp_(0, 255)  # bicubic filters overshoot

"""Photos decoded, scaled and cropped on a GPU, many at once, to the squares that a network takes.

Cores decode and scale photos far more slowly than a GPU looks at them. A GPU decodes JPEG itself, and scaling is
two matrix products (:mod:`~fiveshot.backbones.resample`). What a file says is checked first: only plain JPEG files
in color go to the GPU. All others, and those that it refuses, are for the decoders of ``fiveshot.data``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.backbones.resample import Axis, center_axis
from fiveshot.data.jpeg import JpegFacts
from fiveshot.data.reduction import VIEWS
from fiveshot.extras import import_extra

MOST_PIXELS = 48_000_000  # that are scaled at once, the padding of small photos beside large ones included

Picture: TypeAlias = "NDArray[np.uint8] | tuple[bytes, JpegFacts]"  # (height, width, 3), or a plain JPEG file


@dataclass(frozen=True, eq=False)
class DevicePixels:
    """Makes squares as ``Preprocessing.pixels`` does, but for single gray levels: sums are rounded elsewhere."""

    preprocessing: Preprocessing
    device: torch.device

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Let the GPU do what is asked for in this block beside what other threads ask for."""
        if self.device.type != "cuda":
            yield
            return
        own: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(own):
            yield

    def squares(self, pictures: Sequence[Picture]) -> Tensor | None:
        """Return the squares (n, views, 3, size, size), or None where a file is refused."""
        files = [picture for picture in pictures if isinstance(picture, tuple)]
        decoded = self._decoded(files)
        if decoded is None:
            return None
        next_file = iter(decoded)
        on_device = [
            next(next_file) if isinstance(picture, tuple) else self._uploaded(picture) for picture in pictures
        ]
        made = [self._squares(on_device[start:stop]) for start, stop in _groups(on_device)]
        return torch.cat(made) if made else None

    def joined(self, squares: Tensor | None, others: Sequence[Pixels], order: NDArray[np.int64]) -> Tensor:
        """Return the squares made here, those made elsewhere behind them, and all of that in this order."""
        parts = [] if squares is None else [squares]
        parts += [torch.from_numpy(pixels).to(self.device) for pixels in others]
        if not parts:
            return torch.empty(0, *self.preprocessing.shape, dtype=torch.uint8)
        return torch.cat(parts)[torch.from_numpy(order).to(self.device)]

    def _uploaded(self, array: NDArray[np.uint8]) -> Tensor:
        return torch.tensor(array, device=self.device).permute(2, 0, 1)

    def _decoded(self, files: Sequence[tuple[bytes, JpegFacts]]) -> list[Tensor] | None:
        """Return photos, upright (3, height, width), or None where one of them is refused."""
        if not files:
            return []
        io = import_extra("torchvision.io")
        if not hasattr(io, "decode_jpeg"):  # later releases leave it to another library
            return None
        encoded = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data, _ in files]
        try:
            pictures = io.decode_jpeg(encoded, mode=io.ImageReadMode.RGB, device=self.device)
        except RuntimeError:
            return None
        sizes = [(facts.height, facts.width) for _, facts in files]
        if [tuple(picture.shape[1:]) for picture in pictures] != sizes:
            return None
        return [upright(picture, facts.orientation) for picture, (_, facts) in zip(pictures, files, strict=True)]

    def _squares(self, pictures: Sequence[Tensor]) -> Tensor:
        wanted = self.preprocessing
        sizes = [(picture.shape[1], picture.shape[2]) for picture in pictures]
        batch = pictures[0].new_zeros(len(pictures), 3, *(max(side) for side in zip(*sizes, strict=True)))
        for row, picture in enumerate(pictures):
            batch[row, :, : picture.shape[1], : picture.shape[2]] = picture
        if wanted.squash is not None:
            side = wanted.squash
            batch = self._scaled(batch, sizes, [(side, side)] * len(sizes), side)
            sizes = [(side, side)] * len(sizes)
        made: dict[str, Tensor] = {}
        squares = []
        for name in VIEWS[wanted.views]:
            part = name.removeprefix("mirrored ")
            if part not in made:
                made[part] = self._scaled(
                    batch, sizes, [wanted.squares.scaled(size, part) for size in sizes], wanted.size
                )
            squares.append(made[part] if name == part else made[part].flip(-1))
        return torch.stack(squares, dim=1)

    def _scaled(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]], targets: Sequence[tuple[int, int]], side: int
    ) -> Tensor:
        """Return the centers (n, 3, side, side) of pictures scaled to their targets: rows first, as PIL does."""
        kind = torch.float16 if batch.is_cuda else torch.float32  # pixels are whole numbers up to 255 in both
        n, channels, tall, wide = batch.shape
        lengths, resized = (torch.tensor(pairs, device=batch.device) for pairs in (sizes, targets))
        down, across = (
            self._axis(lengths[:, i], resized[:, i], side, extent)
            .weights(side, self.preprocessing.interpolation)
            .to(kind)
            for i, extent in enumerate((tall, wide))
        )
        rows = _levels(batch.reshape(n, channels * tall, wide).to(kind) @ across.transpose(1, 2))
        return _levels(down[:, None] @ rows.view(n, channels, tall, side)).to(torch.uint8)

    def _axis(self, length: Tensor, resized: Tensor, side: int, extent: int) -> Axis:
        """Return the axis of a center crop of pictures that are there as a whole."""
        mode = self.preprocessing.interpolation
        axis = center_axis(length, resized, size=side, interpolation=mode, extent=extent)
        return replace(axis, origin=torch.zeros_like(axis.origin))


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

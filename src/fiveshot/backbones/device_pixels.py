"""Photos decoded, scaled and cropped on a GPU, many at once, to the squares that a network takes.

Cores decode and scale photos far more slowly than a GPU looks at them. A GPU decodes JPEG itself: NVIDIA's
decoder is called directly, and gives the pixels that Pillow makes of a photo. torchvision calls the same library,
but has it repeat the stored colors where Pillow interpolates them, so that features differ; its threads wait for
each other; and it is about to leave decoding to other libraries. What a file says is checked first: only plain
JPEG files in color go to the GPU. All others, and those that it refuses, go to the decoders of ``fiveshot.data``.

Resizing is linear and separable: out = A · crop · Bᵀ, where row i of A holds the filter's weights of output row i.
With Triton, ``gpu_scaling`` does it. Elsewhere, and for the crops of training, it is two batched products with
whole matrices. The filters, their widening when an image is made smaller (antialiasing) and their cut at the
border are those of PIL and torchvision's antialiased resize.
"""

from __future__ import annotations

import ctypes
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.data import ArraySource
from fiveshot.data.decoding import JpegFile
from fiveshot.data.reduction import VIEWS

_log = logging.getLogger(__name__)
_ANY, _HARDWARE = 0, 3  # what decodes: the GPU's multiprocessors and a core, or units of its own for plain photos
_INTERPOLATE = 1 << 5  # colors, when they are enlarged to the picture's size
_PLANES = 3  # red, green and blue, one after the other
BEYOND = 64  # bytes that are read at once where pictures are scaled: memory goes on so far behind the last one
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
        batch = self._room(len(pictures), tall, wide)
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

    def _room(self, n: int, tall: int, wide: int) -> Tensor:
        """Return memory for pictures (n, 3, tall, wide), and for what is read behind the last one."""
        size = n * 3 * tall * wide
        memory = torch.empty(size + BEYOND, dtype=torch.uint8, device=self.device)
        return memory[:size].view(n, 3, tall, wide)

    def _squares(self, batch: Tensor, sizes: Sequence[Size]) -> Tensor:
        wanted, n = self.preprocessing, len(batch)
        if wanted.squash is not None:
            side = wanted.squash
            squashed = self._room(n, side, padded(side))
            self._scale(batch, sizes, [(side, side)] * n, squashed[..., :side])
            batch, sizes = squashed, [(side, side)] * n
        squares = torch.empty(n, *wanted.shape, dtype=torch.uint8, device=self.device)
        made: dict[str, Tensor] = {}
        for view, name in enumerate(VIEWS[wanted.views]):
            part = name.removeprefix("mirrored ")
            if part not in made:
                made[part] = squares[:, view] if name == part else torch.empty_like(squares[:, view])
                scaled = {size: wanted.squares.scaled(size, part) for size in set(sizes)}  # mostly a few
                self._scale(batch, sizes, [scaled[size] for size in sizes], made[part])
            if name != part:
                squares[:, view] = made[part].flip(-1)
        return squares

    def _scale(self, batch: Tensor, sizes: Sequence[Size], targets: Sequence[Size], out: Tensor) -> None:
        """Scale pictures to their targets, and write the centers: rows first, as PIL does."""
        quick = quick_scaling(self.device)
        if quick is not None:
            quick(batch, sizes, targets, self.preprocessing.interpolation, out)
            return
        n, channels, tall, wide = batch.shape
        side = out.shape[-1]
        down, across = (
            self._weights([size[i] for size in sizes], [target[i] for target in targets], side, batch.shape[2 + i])
            for i in (0, 1)
        )
        # Colors lie beside each other, so that both steps are one product for each picture.
        columns = _levels(across, batch.reshape(n, channels * tall, wide))  # (n, side, channels · tall)
        rows = _levels(down, columns.view(n, side * channels, tall))  # (n, side, side · channels)
        out.copy_(rows.view(n, side, side, channels).permute(0, 3, 1, 2))

    def _weights(self, lengths: Sequence[int], targets: Sequence[int], side: int, extent: int) -> Tensor:
        """Return the matrices (n, side, extent) that scale one axis and cut out the center."""
        mode = self.preprocessing.interpolation
        before, after = torch.tensor([lengths, targets], device=self.device)
        axis = center_axis(before, after, size=side, interpolation=mode, extent=extent)
        return replace(axis, origin=torch.zeros_like(axis.origin)).weights(side, mode)


@cache
def _stream(device: torch.device, number: int) -> Any:
    """Return one of a few streams: whatever it has prepared, such as memory, is there for the next thread."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


@cache
def quick_scaling(device: torch.device) -> Callable[..., None] | None:
    """Return what scales on a GPU; None elsewhere, or where Triton is missing or cannot compile."""
    if device.type != "cuda":
        return None
    try:
        from fiveshot.backbones._gpu_scaling import scale_centers

        one, other = torch.zeros(2, 1, 3, 16, 16, dtype=torch.uint8, device=device)
        scale_centers(one, [(16, 16)], [(16, 16)], "bicubic", other)
    except Exception as error:  # whatever Triton raises, or the compiler that it starts
        _log.warning("photos are scaled by matrix products, which takes longer (%s)", error)
        return None
    return scale_centers


class _Image(ctypes.Structure):
    _fields_ = (("channel", ctypes.c_void_p * 4), ("pitch", ctypes.c_size_t * 4))


@dataclass(eq=False)
class _State:
    """What the library keeps for the photos of one stream."""

    state: ctypes.c_void_p
    count: int = 0  # photos that it is ready for
    lock: threading.Lock = field(default_factory=threading.Lock)


class JpegDecoder:
    """Decodes photos on one GPU, into memory that lies there; threads with streams of their own do so at once."""

    def __init__(self, library: ctypes.CDLL, device: torch.device) -> None:
        self._library, self._device = library, device
        self._states: dict[tuple[int | None, int], _State] = {}  # by handle and stream
        with torch.cuda.device(device):
            self._any, self._hardware = self._handle(_ANY), self._handle(_HARDWARE)

    def __call__(self, files: Sequence[JpegFile], places: Sequence[Tensor]) -> bool:
        """Decode each file into its place, (3, height, width) of uint8; return False where one is refused.

        The work is done in the order of the thread's stream; nobody waits for it here.
        """
        plain = [file.facts.baseline for file in files]
        with torch.cuda.device(self._device):
            for handle, kind in ((self._hardware or self._any, True), (self._any, False)):
                chosen = [row for row, own in enumerate(plain) if own is kind]
                if chosen and not self._decode(handle, [files[i] for i in chosen], [places[i] for i in chosen]):
                    return False
        return True

    def _handle(self, backend: int) -> ctypes.c_void_p | None:
        """Return the library's own handle, or None where the GPU does not have what is asked for."""
        handle = ctypes.c_void_p()
        made = self._library.nvjpegCreateEx(backend, None, None, _INTERPOLATE, ctypes.byref(handle))
        return None if made else handle

    def _decode(self, handle: ctypes.c_void_p | None, files: Sequence[JpegFile], places: Sequence[Tensor]) -> bool:
        stream: Any = torch.cuda.current_stream(self._device)
        own = None if handle is None else self._state(handle, stream.cuda_stream)
        if own is None:
            return False
        count = len(files)
        images = (_Image * count)()
        for image, place in zip(images, places, strict=True):
            start, (plane, row, _) = place.data_ptr(), place.stride()
            image.channel[:3] = [start, start + plane, start + 2 * plane]
            image.pitch[:3] = [row, row, row]
        encoded = [np.frombuffer(file.data, np.uint8) for file in files]
        data = (ctypes.c_void_p * count)(*(array.ctypes.data for array in encoded))
        sizes = (ctypes.c_size_t * count)(*map(len, encoded))
        library, failed = self._library, 0
        with own.lock:
            if own.count != count:
                failed = library.nvjpegDecodeBatchedInitialize(handle, own.state, count, 1, _PLANES)
                own.count = 0 if failed else count
            given = (data, sizes, images, ctypes.c_void_p(stream.cuda_stream))
            failed = failed or library.nvjpegDecodeBatched(handle, own.state, *given)
            if failed:  # what state it is in now, nobody says
                own.count = 0
        return not failed

    def _state(self, handle: ctypes.c_void_p, stream: int) -> _State | None:
        key = handle.value, stream
        if key not in self._states:
            state = ctypes.c_void_p()
            if self._library.nvjpegJpegStateCreate(handle, ctypes.byref(state)):
                return None
            self._states[key] = _State(state)
        return self._states[key]


@cache
def jpeg_decoder(device: torch.device) -> JpegDecoder | None:
    """Return what decodes on a GPU; None where nvJPEG is not to be found."""
    library = _library() if device.type == "cuda" else None
    return None if library is None else JpegDecoder(library, device)


def _library() -> ctypes.CDLL | None:
    found: list[str] = []
    places = (("nvidia", "*/lib/libnvjpeg.so.*"), ("torchvision", "../torchvision.libs/libnvjpeg*"))
    for package, pattern in places:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            found += map(str, sorted(Path(folder).glob(pattern)))
    for name in (*found, "libnvjpeg.so.13", "libnvjpeg.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


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
    """Return the next multiple of 16: a GPU reads and multiplies such matrices faster.

    >>> padded(500), padded(512)
    (512, 512)
    """
    return -(-length // 16) * 16


def exact_levels(device: torch.device) -> torch.dtype:
    """Return a number format that has all gray levels, and in which products are fast."""
    return torch.float16 if device.type == "cuda" else torch.float32


def _levels(weights: Tensor, levels: Tensor) -> Tensor:
    """Return weights · levelsᵀ as gray levels; halves go up, as PIL has it."""
    sums = torch.bmm(weights, levels.to(weights.dtype).mT)
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

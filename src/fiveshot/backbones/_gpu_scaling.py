"""Pictures scaled on a GPU by the filters of PIL: each output pixel is a weighted sum of the few that it covers.

A tile of the output is a product of the pixels that it covers and of their weights, which are computed where they
are needed. Matrices of weights for whole pictures would be ten times as much to read and write, all of it beside a
network that needs the GPU's memory itself.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from fiveshot.backbones.device_pixels import BEYOND, FILTERS, center_axis

_LINES, _PLACES = 128, 32  # a tile of the output
_PI = tl.constexpr(math.pi)
_ALIGNED = tl.constexpr(16)  # reading begins at such places


def scale_centers(
    pictures: Tensor, sizes: Sequence[tuple[int, int]], targets: Sequence[tuple[int, int]], mode: str, out: Tensor
) -> None:
    """Scale pictures to their targets, and write the centers; rows first and rounded in between, as PIL does.

    Parameters
    ----------
    pictures : tensor of shape (n, 3, tall, wide)
        Gray levels, each picture in its left upper corner; ``BEYOND`` more bytes follow the last one.
    sizes, targets : sequence of (int, int)
        Height and width of each picture, and of what it is scaled to before its center is cut out.
    mode : {"bilinear", "bicubic", "lanczos"}
        The filter.
    out : tensor of shape (n, 3, side, side)
        Where the centers are written.
    """
    n, _, tall, _ = pictures.shape
    side = out.shape[-1]
    length, scaled = torch.tensor([sizes, targets], dtype=torch.float32).mT  # (2, n) each, height first
    axis = center_axis(length, scaled, size=side, interpolation=mode, extent=side)
    reach = FILTERS[mode][1] * axis.step.clamp_min(1)
    end = torch.minimum(axis.start + side * axis.step + reach + 1, axis.high)  # of what the center looks at
    table = torch.stack([axis.start, axis.step, axis.high, axis.origin, end], dim=2)  # (2, n, 5)
    if pictures.is_cuda:  # from memory that the GPU reads by itself, so that nobody waits for it
        table = table.pin_memory().to(pictures.device, non_blocking=True)
    down, across = table
    rows = pictures.new_empty(n, 3, tall + BEYOND, triton.cdiv(side, _LINES) * _LINES)
    _scale_lines(pictures, rows[:, :, :tall], across, down, mode, side)
    _scale_lines(rows.mT, out.mT, down, None, mode, side)


def _scale_lines(source: Tensor, target: Tensor, axis: Tensor, other: Tensor | None, mode: str, side: int) -> None:
    """Scale along the last axis; lines that the center along the other one does not look at are left out."""
    lines = target.shape[2]
    grid = (3 * len(source), triton.cdiv(lines, _LINES), triton.cdiv(side, _PLACES))
    options = {"FILTER": mode, "RADIUS": FILTERS[mode][1], "LINES": _LINES, "PLACES": _PLACES, "CHUNK": BEYOND}
    _scale[grid](source, target, axis, other, lines, side, *source.stride(), *target.stride(), **options)


@triton.jit
def _scale(
    source,
    target,
    axis,  # (n, 5): where the output begins, the pixels for one of it, how many there are, which are looked at
    other,  # the same of the lines, or None: all of them, and memory for a whole tile
    count,  # of lines
    side,
    source_image,
    source_color,
    source_line,
    source_place,
    target_image,
    target_color,
    target_line,
    target_place,
    FILTER: tl.constexpr,
    RADIUS: tl.constexpr,
    LINES: tl.constexpr,
    PLACES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    image, color = (tl.program_id(0) // 3).to(tl.int64), tl.program_id(0) % 3
    line, place = tl.program_id(1) * LINES, tl.program_id(2) * PLACES
    lines, places = line + tl.arange(0, LINES), place + tl.arange(0, PLACES)
    read, wanted = lines, lines < count
    needed = True
    if other is not None:
        low, high = tl.load(other + 5 * image + 3), tl.load(other + 5 * image + 4)
        read, wanted = tl.minimum(lines, count - 1), lines < high
        needed = (line < high) & (line + LINES > low)
    if needed:
        edge, step = tl.load(axis + 5 * image), tl.load(axis + 5 * image + 1)
        length = tl.load(axis + 5 * image + 2)
        stretch = tl.maximum(step, 1.0)
        centers = edge + (places + 0.5) * step
        begin = tl.maximum(edge + (place + 0.5) * step - RADIUS * stretch, 0.0).to(tl.int32)
        end = tl.minimum(edge + (place + PLACES - 0.5) * step + RADIUS * stretch + 1, length).to(tl.int32)
        corner = source + image * source_image + color * source_color + read[:, None] * source_line
        sums = tl.zeros((LINES, PLACES), tl.float32)
        total = tl.zeros((PLACES,), tl.float32)
        for start in range(begin // _ALIGNED * _ALIGNED, end, CHUNK):
            at = start + tl.arange(0, CHUNK)
            x = tl.abs(at[:, None] + 0.5 - centers[None, :]) / stretch
            if FILTER == "bilinear":
                weights = tl.maximum(1.0 - x, 0.0)
            elif FILTER == "bicubic":  # a = −0.5
                near = (1.5 * x - 2.5) * x * x + 1.0
                far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
                weights = tl.where(x < 1, near, tl.where(x < 2, far, 0.0))
            else:
                angle = _PI * tl.maximum(x, 1e-6)
                weights = tl.where(x < 3, 3.0 * tl.sin(angle) * tl.sin(angle / 3.0) / (angle * angle), 0.0)
            weights = tl.where((at < length)[:, None], weights, 0.0)
            total += tl.sum(weights, axis=0)
            # What lies beyond the picture is read too, and counts for nothing. Half precision has all gray levels;
            # a weight is the sum of two such numbers.
            pixels = tl.load(corner + at[None, :] * source_place).to(tl.float16)
            large = weights.to(tl.float16)
            sums = tl.dot(pixels, large, sums)
            sums = tl.dot(pixels, (weights - large.to(tl.float32)).to(tl.float16), sums)
        levels = tl.minimum(tl.maximum(sums / total[None, :] + 0.5, 0.0), 255.0)  # bicubic filters overshoot
        corner = target + image * target_image + color * target_color + lines[:, None] * target_line
        seen = wanted[:, None] & (places < side)[None, :]
        tl.store(corner + places[None, :] * target_place, levels.to(tl.int32).to(tl.uint8), mask=seen)

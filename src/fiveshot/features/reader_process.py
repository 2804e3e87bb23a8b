"""Decoding in a process of its own: what it is given when it starts, and what it sends back."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fiveshot.backbones import Preprocessing
from fiveshot.data import ImageSource
from fiveshot.features.image_batches import NO_PIXELS, ImageBatch, PixelTransform, read_batch

_given: tuple[Sequence[ImageSource], PixelTransform] | None = None


def prepare_reader(images: Sequence[ImageSource], preprocessing: Preprocessing) -> None:
    """Keep what every batch needs, once in the life of a process."""
    global _given
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _given = images, preprocessing.pixel_transform()


def read_in_process(start: int, stop: int) -> tuple[ImageBatch, NDArray[np.uint8]]:
    """Read a batch; its pixels travel as an array, because tensors would share memory by open files."""
    if _given is None:
        raise RuntimeError("prepare_reader must run first")
    images, transform = _given
    batch = read_batch(images, start, stop, transform)
    return replace(batch, pixels=NO_PIXELS), batch.pixels.numpy()

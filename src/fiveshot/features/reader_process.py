"""Decoding in a process of its own: what it is given when it starts, and what it sends back."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Sequence
from multiprocessing.context import BaseContext

from fiveshot.backbones import Preprocessing
from fiveshot.data import ImageSource
from fiveshot.features.image_batches import ImageBatch, PixelTransform, read_batch

# Imported once by the process that the others are forked from.
PRELOADED = [__name__, "PIL.JpegImagePlugin", "PIL.PngImagePlugin"]
_given: tuple[Sequence[ImageSource], PixelTransform] | None = None


def reader_context() -> BaseContext:
    """Return how readers are started: never forked from this process, whose threads a fork would break.

    Where there is a fork server, they are forked from that: it has imported everything and runs no thread.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def prepare_reader(images: Sequence[ImageSource], preprocessing: Preprocessing) -> None:
    """Keep what every batch needs, once in the life of a process."""
    global _given
    warnings.simplefilter("ignore")
    _given = images, preprocessing.pixels


def read_in_process(start: int, stop: int) -> ImageBatch:
    """Read a batch."""
    if _given is None:
        raise RuntimeError("prepare_reader must run first")
    images, transform = _given
    return read_batch(images, start, stop, transform)

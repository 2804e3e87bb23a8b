"""From photos to features: decode once, for the network, the digest and the small copy alike."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import torch

from fiveshot.data import BadImage, ImageError
from fiveshot.data.check import SHOWN
from fiveshot.errors import InputError
from fiveshot.features import Runner
from fiveshot.features.batch_stream import default_batch_size, default_workers, device_of, forward_streams
from fiveshot.features.runner import one_thread
from fiveshot.progress import Progress
from fiveshot.recognizer.class_record import Floats
from fiveshot.recognizer.photo import Photo, thumbnail

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, eq=False)
class SeenPhoto:
    """A photo after the backbone."""

    name: str
    sha256: str
    feature: Floats  # (d,)
    thumbnail: bytes | None
    original: bytes | None


def see_photos(
    runner: Runner,
    photos: Sequence[Photo],
    *,
    thumbnails: bool = False,
    originals: bool = False,
    progress: Progress | None = None,
) -> list[SeenPhoto]:
    """Return the features of photos, in order; what cannot be decoded raises one error that lists it all."""
    runner.extractor  # noqa: B018  # made ready before threads ask for it
    workers = default_workers()
    streams = forward_streams(runner, workers)
    size = max(1, min(default_batch_size(runner), -(-len(photos) // streams)))
    batches = [photos[start : start + size] for start in range(0, len(photos), size)]
    seen: list[SeenPhoto] = []
    bad: list[BadImage] = []
    with QUIET, one_thread(), ThreadPoolExecutor(streams) as pool:
        # Of a few photos the stream that has fewer makes all thumbnails; of many, they would pile up undone.
        later = pool if len(batches) <= streams else None
        for looked, refused in pool.map(_Look(runner, thumbnails, originals, later), batches):
            good = [photo() for photo in looked]
            seen += good
            bad += refused
            if progress is not None:
                progress(len(seen) + len(bad), len(photos))
    if bad:
        raise _refusal(bad, len(photos))
    return seen


class _Quiet:
    """No warnings as long as any thread looks at photos.

    Decoding silences them, which is a setting of the whole process: threads that change it and put it back in
    turns would leave it wrong. So the first one sets it and the last one puts it back.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._held = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._held.enter_context(warnings.catch_warnings(action="ignore"))
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._held.close()


QUIET = _Quiet()


@dataclass(frozen=True, eq=False)
class _Look:
    runner: Runner
    thumbnails: bool
    originals: bool
    later: Executor | None  # where thumbnails are made, if not at once

    def __call__(self, photos: Sequence[Photo]) -> tuple[list[Callable[[], SeenPhoto]], list[BadImage]]:
        transform = self.runner.preprocessing.pixel_transform()
        kept, pixels = [], []
        bad: list[BadImage] = []
        for photo, held, image in _decoded(photos, bad):
            kept.append((photo.name, held, self._thumbnail(image)))
            pixels.append(transform(image))
        if not kept:
            return [], bad
        batch = torch.stack(pixels).to(device_of(self.runner))
        vectors = self.runner.features(self.runner.preprocessing.normalise(batch)).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise InputError(
                f"the features of {kept[0][0]} hold NaN or infinity; the backbone's weights look damaged"
            )
        seen: list[Callable[[], SeenPhoto]] = [
            partial(self._seen, name, held, vector.astype(np.float32), small)
            for (name, held, small), vector in zip(kept, vectors, strict=True)
        ]
        return seen, bad

    def _thumbnail(self, image: Image) -> Callable[[], bytes | None]:
        if not self.thumbnails:
            return lambda: None
        if self.later is not None:
            return self.later.submit(thumbnail, image).result
        made = thumbnail(image)
        return lambda: made

    def _seen(self, name: str, held: Photo, vector: Floats, small: Callable[[], bytes | None]) -> SeenPhoto:
        return SeenPhoto(name, held.sha256, vector, small(), held.read() if self.originals else None)


def _decoded(photos: Sequence[Photo], bad: list[BadImage]) -> Iterator[tuple[Photo, Photo, Image]]:
    for photo in photos:
        try:
            held = photo.loaded()
            yield photo, held, held.image()
        except ImageError as error:
            bad.append(BadImage(error.name, error.reason))


def _refusal(bad: Sequence[BadImage], total: int) -> InputError:
    if total == 1:
        return ImageError(bad[0].name, bad[0].reason)
    lines = [f"  {photo.name}: {photo.reason}" for photo in bad[:SHOWN]]
    more = [f"  and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
    head = f"{len(bad)} of {total} photos cannot be used:"
    return InputError("\n".join([head, *lines, *more, "repair them or leave them out; nothing was changed"]))

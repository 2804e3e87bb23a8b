"""From photos in requests to features: decoding and the backbone, shared by all requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import torch

from fiveshot.data import ImageError
from fiveshot.features import Runner
from fiveshot.features.batch_stream import default_workers, device_of
from fiveshot.features.runner import one_thread
from fiveshot.recognizer.class_record import Floats
from fiveshot.recognizer.extraction import QUIET
from fiveshot.recognizer.manifest import Options
from fiveshot.service.batcher import Batcher, forward
from fiveshot.service.errors import busy
from fiveshot.service.metrics import Metrics
from fiveshot.service.settings import Settings
from fiveshot.service.uploads import Prepared, Upload, bad_photos, prepare

NOTHING_KEPT = Options(keep_photos=False, thumbnails=False)


class Looking:
    """Takes on photos up to a limit, decodes them, and lets them share forward passes."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._pending = 0
        self._batcher: Batcher | None = None
        self._decoders = ThreadPoolExecutor(default_workers(), thread_name_prefix="decode")
        self._held = ExitStack()

    def start(self, runner: Runner) -> None:
        """Make the backbone ready, once: whoever fails afterwards may begin again."""
        if self._batcher is not None:
            return
        with ExitStack() as held:
            held.enter_context(QUIET)  # as long as the service runs
            if device_of(runner).type == "cpu":
                held.enter_context(one_thread())  # several streams of one thread each
            size = runner.preprocessing.size
            forward(runner, [torch.zeros(3, size, size, dtype=torch.uint8)])
            self._batcher = Batcher(
                runner,
                latency=self._settings.latency,
                size=self._settings.batch_size,
                on_batch=self._metrics.batch,
            )
            self._held = held.pop_all()

    @contextmanager
    def work_on(self, photos: int) -> Iterator[None]:
        """Take on so many photos, unless that is too much."""
        if self._pending + photos > max(self._settings.limits.pending, photos):
            raise busy(f"{self._pending} photos are in work already")
        self._pending += photos
        self._metrics.pending.set(self._pending)
        try:
            yield
        finally:
            self._pending -= photos
            self._metrics.pending.set(self._pending)

    async def prepared(
        self, runner: Runner, uploads: Sequence[Upload], keep: Options = NOTHING_KEPT
    ) -> list[Prepared]:
        """Decode photos; one error names all that cannot be used."""
        loop = asyncio.get_running_loop()
        one = partial(self._prepared, runner, keep)
        done = await asyncio.gather(*(loop.run_in_executor(self._decoders, one, upload) for upload in uploads))
        refused = [result for result in done if isinstance(result, ImageError)]
        if refused:
            raise bad_photos(refused, len(uploads))
        return [result for result in done if isinstance(result, Prepared)]

    def _prepared(self, runner: Runner, keep: Options, upload: Upload) -> Prepared | ImageError:
        try:
            return prepare(
                runner,
                upload,
                pixels=self._settings.limits.pixels,
                keep_small=keep.thumbnails,
                keep_copy=keep.keep_photos,
            )
        except ImageError as error:
            return error

    async def features(self, runner: Runner, photos: Sequence[Prepared]) -> Floats:
        """Return the features of photos, (n, width)."""
        assert self._batcher is not None  # there since the model was loaded
        waiting = self._batcher.submit(runner, [photo.pixels for photo in photos])
        vectors = await asyncio.gather(*map(asyncio.wrap_future, waiting))
        return np.stack(vectors)

    def close(self) -> None:
        """Finish what has begun."""
        self._decoders.shutdown()
        if self._batcher is not None:
            self._batcher.close()
        self._held.close()

"""From photos in requests to features: decoding, and forward passes that several requests share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from weakref import WeakValueDictionary

import numpy as np

from fiveshot.backbones import Embedder, Vectors, default_workers
from fiveshot.data import BadImage, Photo, by_source
from fiveshot.features import Keep, PhotoVector, Seen, decode_photos, embed
from fiveshot.recognizer import Options, PhotoRecord, photo_record
from fiveshot.service._errors import PHOTO_HINT, ApiError, busy
from fiveshot.service._gate import CURRENT_CLIENT, Metrics, SharedCapacity
from fiveshot.service.settings import Settings
from fiveshot.work import one_thread

NOTHING_KEPT = Options(keep_photos=False, thumbnails=False)


class PhotoPipeline:
    """Accepts photos up to a limit, decodes them, and combines them into forward passes."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._pending = SharedCapacity(settings.limits.pending)
        self._batcher: Batcher | None = None
        # A slow photo does not delay other clients: each client has as many threads as there are cores.
        self._decoders = ThreadPoolExecutor(4 * default_workers(), thread_name_prefix="decode")
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._held = ExitStack()

    def start(self, embedder: Embedder) -> None:
        """Prepare the backbone once. After a failure it can be called again."""
        if self._batcher is not None:
            return
        with ExitStack() as held:
            if embedder.on_cpu:
                held.enter_context(one_thread())  # several streams with one thread each
            embedder.features(np.zeros((1, *embedder.preprocessing.shape), np.uint8))
            self._batcher = Batcher(embedder, self._settings, self._metrics)
            self._held = held.pop_all()

    @contextmanager
    def work_on(self, photos: int) -> Iterator[None]:
        """Accept a number of photos, or refuse them if that is too many."""
        client, pending = CURRENT_CLIENT.get(), self._pending
        counted = min(photos, pending.most)  # one request may have more, if nothing else is in progress
        if not pending.take(client, counted):
            raise busy(f"{pending.held} photos are in progress already")
        self._metrics.pending.set(pending.held)
        try:
            yield
        finally:
            pending.give_back(client, counted)
            self._metrics.pending.set(pending.held)

    async def records(
        self, embedder: Embedder, photos: Sequence[Photo], keep: Options = NOTHING_KEPT, *, strict: bool = True
    ) -> tuple[list[PhotoRecord], list[BadImage]]:
        """Decode photos and compute their features; also return the photos that cannot be used.

        With ``strict``, one error names all photos that cannot be used, and no features are computed.
        """
        turns = self._turns.setdefault(CURRENT_CLIENT.get(), asyncio.Semaphore(default_workers()))
        kept = Keep(keep.thumbnails, "copy" if keep.keep_photos else None)

        def decode(same: Sequence[Photo]) -> list[Seen | BadImage]:
            limit = self._settings.limits.pixels
            return decode_photos(same, embedder.preprocessing, kept, max_pixels=limit)

        async def in_turn(same: Sequence[Photo]) -> list[Seen | BadImage]:
            async with turns:
                return await asyncio.get_running_loop().run_in_executor(self._decoders, decode, same)

        decoded = list(chain.from_iterable(await asyncio.gather(*map(in_turn, by_source(photos)))))
        bad = [one for one in decoded if isinstance(one, BadImage)]
        if bad and strict:
            raise bad_photos(bad, len(photos))
        good = [(photo, one) for photo, one in zip(photos, decoded, strict=True) if isinstance(one, Seen)]
        assert self._batcher is not None  # set when the model was loaded
        waiting = self._batcher.submit(embedder, [seen for _, seen in good])
        vectors = await asyncio.gather(*map(asyncio.wrap_future, waiting))
        return [
            photo_record(PhotoVector(photo, vector, seen.sha256, seen.thumbnail, seen.original))
            for (photo, seen), vector in zip(good, vectors, strict=True)
        ], bad

    def close(self) -> None:
        """Finish running work."""
        self._decoders.shutdown()
        if self._batcher is not None:
            self._batcher.close()
        self._held.close()


def bad_photos(errors: Sequence[BadImage], total: int) -> ApiError:
    """Return the one error for all photos that cannot be used."""
    message = "; ".join(f"{error.name}: {error.reason}" for error in errors[:10])
    if total > 1:
        message = f"{len(errors)} of {total} photos cannot be used, so nothing was done: {message}"
    details = [{"name": one.name, "code": one.code, "message": one.reason} for one in errors]
    if any(error.code == "image_too_large" for error in errors):
        return ApiError(413, "too_large", message, "make the photo smaller", details=details)
    return ApiError(422, "bad_photo", message, PHOTO_HINT, details=details)


@dataclass(eq=False)
class _QueuedPhoto:
    embedder: Embedder
    seen: Seen
    since: float
    result: Future[Vectors] = field(default_factory=Future)


class Batcher:
    """Collects photos and passes them through the backbone together.

    While the backbone is idle, a photo waits at most ``latency`` seconds for others. While it is busy, photos
    collect in the queue. On a CPU, one stream per core takes photos from the same queue, each on one thread. This
    uses the cores better than one stream with several threads.
    """

    def __init__(self, embedder: Embedder, settings: Settings, metrics: Metrics) -> None:
        self._size, self._latency = settings.batch_size or embedder.batch_size, settings.latency
        self._metrics = metrics
        self._queue: deque[_QueuedPhoto] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"backbone-{number}", daemon=True)
            for number in range(embedder.streams(default_workers()))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, embedder: Embedder, photos: Sequence[Seen]) -> list[Future[Vectors]]:
        """Queue photos; each gets its feature as soon as it is ready."""
        now = time.monotonic()
        items = [_QueuedPhoto(embedder, one, now) for one in photos]
        with self._changed:
            if self._closed:
                raise RuntimeError("the service is shutting down")
            self._queue.extend(items)
            self._changed.notify(len(items))
        return [item.result for item in items]

    def close(self) -> None:
        """Finish the queue, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._next():
            wanted = [item for item in batch if item.result.set_running_or_notify_cancel()]
            if wanted:
                self._run(wanted)

    def _run(self, batch: list[_QueuedPhoto]) -> None:
        began = time.perf_counter()
        try:
            vectors = embed(batch[0].embedder, [item.seen for item in batch])
        except BaseException as error:
            for item in batch:
                item.result.set_exception(error)
            return
        self._metrics.batches.observe(len(batch))
        self._metrics.forward.observe(time.perf_counter() - began)
        for item, vector in zip(batch, vectors, strict=True):
            item.result.set_result(vector)

    def _next(self) -> list[_QueuedPhoto]:
        """Return photos for one backbone; an empty list means the end."""
        with self._changed:
            while not self._queue:
                if self._closed:
                    return []
                self._changed.wait()
            until = self._queue[0].since + self._latency
            while self._queue and len(self._queue) < self._size and not self._closed:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            if not self._queue:  # another stream was faster
                return self._next()
            return self._taken()

    def _taken(self) -> list[_QueuedPhoto]:
        # Idle streams get their share, so that a short queue uses all cores.
        share = -(-len(self._queue) // len(self._threads)) if len(self._queue) < self._size else self._size
        batch = [self._queue.popleft()]
        while self._queue and len(batch) < share and self._queue[0].embedder is batch[0].embedder:
            batch.append(self._queue.popleft())
        if self._queue:
            self._changed.notify()
        return batch

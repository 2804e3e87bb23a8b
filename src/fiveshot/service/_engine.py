"""The recognizer behind the service: predictions on a snapshot, changes one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from fiveshot.backbones import Embedder
from fiveshot.data import BadImage, Photo
from fiveshot.errors import FiveshotError, InputError
from fiveshot.recognizer import (
    NONE,
    ConflictError,
    LostModelError,
    ModelReader,
    NotErasedError,
    NotUndoableError,
    PhotoRecord,
    Recognizer,
    Snapshot,
    correct_seen,
    database_state,
    erase_pending,
    learn_seen,
    photo_id,
)
from fiveshot.service._errors import ApiError, busy, from_library, loading, not_found, without_path
from fiveshot.service._gate import Metrics
from fiveshot.service._photos import PhotoPipeline, bad_photos
from fiveshot.service._schemas import ClassPage, PhotoList
from fiveshot.service.settings import Settings
from fiveshot.values import (
    ChangeMade,
    LearnedClass,
    PhotoChange,
    PhotosMade,
    Prediction,
    RejectionReply,
    ServedClass,
)

MOST_NAMES = 100  # photos named with an answer
READERS = 4  # threads: scores of a class's photos take a while, and pictures should not wait for them
Result = TypeVar("Result")
log = logging.getLogger("fiveshot.service")


@dataclass(frozen=True, eq=False)
class Serving:
    """What predictions need: a snapshot whose head is ready, and its backbone."""

    snapshot: Snapshot
    embedder: Embedder


class Engine:
    """Everything that works on photos and classes.

    Decoding, the backbone, scoring and changes have their own threads. A change is committed and its head is
    derived. Then one assignment replaces the served state, so no prediction ever waits for a change.
    Only the thread of changes uses the recognizer itself, so its state after a change is the state of that change.
    Other threads read the database through a reader with its own connection, which waits for no writer.
    """

    def __init__(self, open_model: Callable[[], Recognizer], settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self._open_model = open_model
        self._recognizer: Recognizer | None = None
        self._not_ready = loading("the model is being loaded", "try again in a moment")
        self._photos = PhotoPipeline(settings, metrics)
        self._serving: Serving | None = None
        self._model_reader: ModelReader | None = None
        self.openings = 1  # counts models at the path; cached data belong to one of them
        self._listed: tuple[Snapshot, list[ServedClass]] | None = None  # of the state that was requested last
        self._copy_seen: tuple[int, ...] = ()  # state of a new model's files when it was last seen
        self._closing = False
        self._scorer = ThreadPoolExecutor(1, thread_name_prefix="score")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._reader = ThreadPoolExecutor(READERS, thread_name_prefix="read")

    @property
    def recognizer(self) -> Recognizer:
        """The model, after it was opened."""
        if self._recognizer is None:
            raise self._not_ready
        return self._recognizer

    @property
    def path(self) -> Path | None:
        """The path of the model, after it was opened."""
        return None if self._recognizer is None else self._recognizer.path

    @property
    def serving(self) -> Serving:
        """What predictions use now."""
        if self._closing:
            raise busy("the service is shutting down")
        if self._serving is None:
            raise self._not_ready
        return self._serving

    async def keep_up(self) -> None:
        """Open the model, load the backbone and derive the head; later, read the changes of other processes.

        After a failure it can be called again.
        """
        loads = self._serving is None

        def load() -> None:
            if self._recognizer is None:
                self._recognizer = self._open_model()
            else:
                self._take_up()
            if loads:
                if self._model_reader is None:
                    self._model_reader = ModelReader.open(self._recognizer.path)
                self._photos.start(self._recognizer.embedder)
            self._publish()

        try:
            await _in(self._writer, load)
        except LostModelError:
            raise
        except Exception:
            if loads:
                self._not_ready = loading("the model cannot be loaded", "look at the service's log")
            raise

    def _publish(self) -> None:
        """Serve the present state as soon as its head is ready."""
        snapshot = self.recognizer.snapshot
        if self._serving is None or snapshot is not self._serving.snapshot:
            embedder = self.recognizer.embedder
            snapshot.head, snapshot.rejection, snapshot.sure  # noqa: B018  # derived here, not while a request waits
            self._serving = Serving(snapshot, embedder)
        self.metrics.state.set(snapshot.state)
        self.metrics.classes.set(len(snapshot.memory.labels))

    def _take_up(self) -> None:
        """Read the changes of other processes; also open a model that replaced the former one."""
        try:
            self.recognizer.refresh()
        except LostModelError as lost:
            self._serving = None
            try:
                self._reopen(lost)
            except LostModelError as error:
                self._not_ready = from_library(error, self.path)
                raise

    def _reopen(self, lost: LostModelError) -> None:
        """Open the model that is at the path now, as soon as it is complete: copying may still be in progress."""
        path = self.recognizer.path
        seen, self._copy_seen = self._copy_seen, database_state(path)
        if lost.is_gone or seen != self._copy_seen:
            raise lost
        try:
            self.recognizer.reopen()
            reader = ModelReader.open(path)
        except FiveshotError as error:
            text = f"{lost.message}, and what is there now cannot be opened"
            raise LostModelError(text, hint=str(error), code=lost.code) from error
        before, self._model_reader = self._model_reader, reader
        if before is not None:
            before.close()
        self.openings += 1
        log.warning("%s; the new model is served now", lost.message)

    async def ready(self) -> None:
        """Refuse unless the service accepts photos: the model is loaded and still at its path."""
        self.serving  # noqa: B018  # raises the error to answer with
        await self.read(ModelReader.require_model)

    async def settle(self) -> None:
        """Erase remaining traces, if no other process blocks that now."""
        await _in(self._writer, lambda: erase_pending(self.recognizer))

    async def predict(
        self,
        uploads: Sequence[Photo],
        top: int,
        sure: float | None = None,
        why: int = 0,
        *,
        skip_bad: bool = False,
    ) -> tuple[list[Prediction], list[BadImage], int]:
        """Return what photos show, which photos cannot be used (with ``skip_bad``), and the state of the model."""
        embedder = self.serving.embedder
        if not len(self.serving.snapshot.memory.labels):
            raise ApiError(409, "no_classes", "the model knows no class yet", "teach it one first")
        with self._photos.work_on(len(uploads)):
            seen, bad = await self._photos.records(embedder, uploads, strict=not skip_bad)
            if not seen:
                raise bad_photos(bad, len(uploads))
            serving = self.serving
            if serving.embedder is not embedder:
                raise _replaced()
            found = await _in(self._scorer, lambda: serving.snapshot.predict_photos(seen, top, sure=sure, why=why))
        self.metrics.photos.labels("predict").inc(len(seen))
        return found, bad, serving.snapshot.state

    async def learn(
        self, name: str, uploads: Sequence[Photo], *, repeated: bool = False
    ) -> tuple[LearnedClass, bool]:
        """Learn a class, or add photos to it; also return whether that was done before.

        ``repeated`` means not to learn exactly the same photos again.
        """
        serving = self.serving
        with self._photos.work_on(len(uploads)):
            seen, _ = await self._photos.records(serving.embedder, uploads, serving.snapshot.manifest.options)
            return await self._change(lambda: self._learn(name, serving.embedder, seen, repeated))

    async def seen(self, uploads: Sequence[Photo]) -> tuple[list[PhotoRecord], list[BadImage]]:
        """Compute features of photos that may be learned later; also return photos that cannot be used."""
        serving = self.serving
        keep = replace(serving.snapshot.manifest.options, thumbnails=True)  # to show them in the meantime
        with self._photos.work_on(len(uploads)):
            good, bad = await self._photos.records(serving.embedder, uploads, keep, strict=False)
        self.metrics.photos.labels("sort").inc(len(good))
        return good, bad

    async def learn_seen(self, name: str, embedder: Embedder, photos: Sequence[PhotoRecord]) -> LearnedClass:
        """Learn photos whose features were computed before."""
        reply, _ = await self._change(lambda: self._learn(name, embedder, photos, False))
        return reply

    def _learn(
        self, name: str, embedder: Embedder, photos: Sequence[PhotoRecord], repeated: bool
    ) -> tuple[LearnedClass, bool]:
        snapshot = self.recognizer.snapshot
        row = snapshot.contents.by_name.get(name)
        learned = () if row is None else sorted(zip(row.photos.ids, row.sha256s, strict=True))
        last = [sha256 for _, sha256 in learned[-len(photos) :]]
        if row is not None and repeated and last == [photo.sha256 for photo in photos]:
            return LearnedClass(name, row.total.count, 0, created=False, state=snapshot.state), True
        try:
            report = learn_seen(self.recognizer, name, photos, fingerprint=embedder.fingerprint, add=True)
        except ConflictError as error:
            raise _replaced() from error
        self.metrics.photos.labels("learn").inc(report.added)
        created = name not in snapshot.contents
        return LearnedClass(**vars(report), created=created, state=self.recognizer.snapshot.state), False

    async def rename(self, old: str, new: str) -> ChangeMade:
        """Give a class another name."""

        def change() -> ChangeMade:
            contents = self.recognizer.snapshot.contents
            if old not in contents:
                raise not_found(f"there is no class {old!r}")
            if new in contents:
                hint = f"choose another name, or join the two: move all photos of {old!r} to {new!r}"
                raise ApiError(409, "name_taken", f"there is a class {new!r} already", hint)
            self.recognizer.rename(old, new)
            return ChangeMade("rename", (new,), 1, self.recognizer.snapshot.state)

        return await self._change(change)

    async def classes(self, search: str, offset: int, limit: int) -> ClassPage:
        """Return a page of the classes whose names contain a text."""
        snapshot = self.serving.snapshot
        if self._listed is None or self._listed[0] is not snapshot:
            self._listed = snapshot, list_classes(snapshot)
        wanted = search.strip().casefold()
        found = [one for one in self._listed[1] if wanted in one.name.casefold()]
        page = found[offset : offset + limit]
        counts = await self.read(lambda reader: reader.count_thumbnails(snapshot, [one.name for one in page]))
        classes = [replace(one, thumbnails=counts[one.name]) for one in page]
        return ClassPage(classes=classes, total=len(found), offset=offset, state=snapshot.state)

    async def photos(self, name: str) -> PhotoList:
        """List the photos of a class, or of ``none of these``, with their ids and scores."""
        snapshot = self._snapshot_with(name)
        photos = await self.read(lambda reader: reader.photos(snapshot, name))
        return PhotoList(photos=photos, state=snapshot.state)

    async def thumbnail(self, name: str, number: int) -> bytes:
        """Return the small copy of a photo of a class, counted from 0."""
        snapshot = self._snapshot_with(name)
        found = await self.read(lambda reader: reader.thumbnail(snapshot, name, number))
        if found is None:
            raise not_found(f"there is no picture {number} of {name!r}")
        return found

    def _snapshot_with(self, name: str) -> Snapshot:
        """Return the served state; refuse a class that it does not have."""
        snapshot = self.serving.snapshot
        if name != NONE and name not in snapshot.contents:
            raise not_found(f"there is no class {name!r}")
        return snapshot

    async def correct(self, name: str, uploads: Sequence[Photo]) -> PhotosMade:
        """Say what photos show, a class or none of these: they are learned, or moved from their class."""
        serving = self.serving
        with self._photos.work_on(len(uploads)):
            seen, _ = await self._photos.records(serving.embedder, uploads, serving.snapshot.manifest.options)
            made_by = serving.embedder.fingerprint
            reply = await self.change_photos(lambda model: correct_seen(model, seen, name, fingerprint=made_by))
        self.metrics.photos.labels("learn").inc(len(reply.ids))
        return reply

    async def picture(self, number: int, *, kept: bool) -> bytes:
        """Return the small copy of a photo, or the photo itself if it is stored."""
        picture = await self.read(lambda reader: reader.picture(number, kept=kept))
        if picture is None:
            raise not_found(f"there is no picture of {photo_id(number)}")
        return picture

    async def change_photos(
        self, change: Callable[[Recognizer], PhotoChange], erased: PhotoChange | None = None
    ) -> PhotosMade:
        """Change photos; ``erased`` is what is done even if traces cannot be erased yet."""

        def run() -> PhotosMade:
            pending = None
            try:
                done = change(self.recognizer)
            except NotErasedError as error:
                assert erased is not None
                pending, done = without_path(str(error), self.recognizer.path), erased
            except InputError as error:
                raise _replaced() if error.code == ConflictError.default_code else _not_changed(error) from error
            return PhotosMade(**vars(done), state=self.recognizer.snapshot.state, pending=pending)

        return await self._change(run)

    async def forget(self, name: str, *, for_good: bool) -> ChangeMade:
        """Forget a class; ``for_good`` erases all traces, even if it was forgotten before."""

        def change() -> ChangeMade:
            pending = None
            try:
                self.recognizer.forget(name, for_good=for_good)
            except NotErasedError as error:
                pending = without_path(str(error), self.recognizer.path)
            except InputError as error:
                raise not_found(f"there is no class {name!r}") from error
            return ChangeMade("forget", (name,), 1, self.recognizer.snapshot.state, pending)

        return await self._change(change)

    async def set_rate(self, *, false_rejection: float | None, wrong_answers: float | None) -> RejectionReply:
        """Change the rate of false rejections, or of wrong answers."""

        def change() -> RejectionReply:
            now = self.recognizer.set(false_rejection=false_rejection, wrong_answers=wrong_answers)
            return RejectionReply(**vars(now), state=self.recognizer.snapshot.state)

        return await self._change(change)

    async def rejected_at(self, rate: float | None) -> RejectionReply:
        """Return how many learned photos a rate of false rejections would call unknown; by default the present
        rate."""
        snapshot = self.serving.snapshot
        rate = snapshot.manifest.options.false_rejection if rate is None else rate
        now = await asyncio.to_thread(snapshot.rejected_at, rate)
        return RejectionReply(**vars(now), state=snapshot.state)

    async def undo(self, *, past_forget: bool, state: int | None) -> ChangeMade:
        """Undo the last change that was not undone yet; with ``state``, only in that state."""

        def change() -> ChangeMade:
            try:
                undone = self.recognizer.undo(past_forget=past_forget, state=state)
            except InputError as error:
                raise _not_undone(error) from error
            named = tuple(undone.classes[:MOST_NAMES])
            return ChangeMade(undone.action, named, len(undone.classes), self.recognizer.snapshot.state)

        return await self._change(change)

    async def _change(self, change: Callable[[], Result]) -> Result:
        """Run a change after earlier changes. When this returns, it is on the disk and predictions use it.

        If the new state cannot be served yet, the change has not failed: an error would make the client send it
        again. The log has a line, and the next ``keep_up`` tries again.
        """

        def run() -> Result:
            self.recognizer.refresh()
            try:
                return change()
            finally:
                try:
                    self._publish()
                except Exception:
                    log.exception("the last state of the model cannot be served yet")

        self.serving  # noqa: B018  # refuse changes while the model is being loaded
        return await _in(self._writer, run)

    async def read(self, look: Callable[[ModelReader], Result]) -> Result:
        """Read from the model's database, in the last committed state."""

        def run() -> Result:
            assert self._model_reader is not None  # set when the model was loaded
            return look(self._model_reader)

        return await _in(self._reader, run)

    async def close(self) -> None:
        """Finish running work, then close the model."""
        self._closing = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for pool in (self._writer, self._reader):
            pool.shutdown()
        self._photos.close()
        self._scorer.shutdown()
        for opened in (self._model_reader, self._recognizer):
            if opened is not None:
                opened.close()


def list_classes(snapshot: Snapshot) -> list[ServedClass]:
    """Return the classes of a snapshot, sorted without regard to case; small copies are counted per page."""
    contents = snapshot.contents
    statistics = contents.memory.statistics
    found = []
    for name, summary in zip(snapshot.classes, statistics.summaries, strict=True):
        row = contents.by_name.get(name)
        changed = row.changed if row is not None else 0
        found.append(ServedClass(name, summary.count, name in contents.base_file, 0, changed))
    return sorted(found, key=lambda one: (one.name.casefold(), one.name))


async def _in(pool: Executor, work: Callable[[], Result]) -> Result:
    """Run work in a thread of a pool."""
    return await asyncio.get_running_loop().run_in_executor(pool, work)


def _replaced() -> ApiError:
    return busy("the model's backbone was replaced in the meantime")


def _not_changed(error: InputError) -> ApiError:
    """Return the error for a change of photos that was not possible."""
    missing = error.code in ("no_photo", "removed_photo", "no_class", "no_sighting")
    conflicts = ("other_class", "same_class", "last_photo", "no_classes", "no_suggestion", "two_names", "changed")
    status = 404 if missing else 409 if error.code in conflicts else 422
    hint = error.hint
    if error.code in ("no_photo", "bad_id", "no_photos"):
        hint = "list the ids of a class with GET /v1/classes/{name}/photos"
    elif error.code == "no_sighting":
        hint = "list the sightings with GET /v1/sightings; nothing was changed"
    return ApiError(status, error.code, error.message, hint)


def _not_undone(error: InputError) -> ApiError:
    """Return the error for an undo that was not possible."""
    if isinstance(error, ConflictError):
        return ApiError(409, "changed", error.message, error.hint or "look at the model again")
    if isinstance(error, NotUndoableError):
        hint = error.hint or "go back to an exported copy of the model"
        if error.action in ("forget", "remove"):
            hint = "to undo the change before it: POST /v1/undo?past_forget=true"
        return ApiError(409, "not_undoable", error.message, hint)
    return ApiError(409, "nothing_to_undo", error.message, error.hint or "there is nothing to do")

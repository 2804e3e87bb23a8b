"""The recogniser behind the service: predictions on a snapshot, changes one after the other."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from fiveshot.errors import FiveshotError
from fiveshot.features import Runner
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.class_record import Floats
from fiveshot.recognizer.conflict import ConflictError
from fiveshot.recognizer.folder import ModelFolder
from fiveshot.recognizer.insight import LearnReport
from fiveshot.recognizer.prediction import Prediction
from fiveshot.recognizer.snapshot import Snapshot
from fiveshot.service.errors import ApiError, busy, from_library
from fiveshot.service.looking import Looking
from fiveshot.service.metrics import Metrics
from fiveshot.service.settings import Settings
from fiveshot.service.uploads import Prepared, Upload

Result = TypeVar("Result")
log = logging.getLogger("fiveshot.service")


@dataclass(frozen=True, eq=False)
class Serving:
    """What answers are made of: a snapshot whose head is ready, and the backbone that fits it."""

    snapshot: Snapshot
    runner: Runner


@dataclass(frozen=True, eq=False)
class Learned:
    """What came of learning; a ``replayed`` request had been done before and changed nothing."""

    report: LearnReport
    created: bool
    state: int
    replayed: bool = False


class Engine:
    """Everything that works on photos and classes.

    Decoding, the backbone, scoring and changes have threads of their own. A change is committed, its head is
    derived, and then what is served is replaced in one assignment: no prediction ever waits for a change.
    The recogniser itself belongs to the thread of changes, so that its state after a change is that change's.
    Others look into the database through a connection of their own, which waits for no writer.
    """

    def __init__(self, recognizer: Recognizer, settings: Settings, metrics: Metrics) -> None:
        self.recognizer, self.settings, self.metrics = recognizer, settings, metrics
        self._looking = Looking(settings, metrics)
        self._serving: Serving | None = None
        self._view: ModelFolder | None = None
        self._closing = False
        self._scorer = ThreadPoolExecutor(1, thread_name_prefix="score")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="read")

    @property
    def serving(self) -> Serving:
        """What answers are made of now."""
        if self._serving is None or self._closing:
            raise busy("the model is being loaded" if self._serving is None else "the service is about to end")
        return self._serving

    @property
    def ready(self) -> bool:
        """Whether photos are taken."""
        return self._serving is not None and not self._closing

    async def start(self) -> None:
        """Load the backbone and derive the head."""

        def load() -> None:
            if self._view is None:
                self._view = ModelFolder(self.recognizer.path, readonly=True)
            self._looking.start(self.recognizer.runner)
            self._publish()

        await self._in(self._writer, load)

    def _publish(self) -> None:
        """Let answers be made of the state in force, once its head is ready."""
        snapshot = self.recognizer.snapshot
        if self._serving is None or snapshot is not self._serving.snapshot:
            runner = self.recognizer.runner
            snapshot.head, snapshot.rejection  # noqa: B018  # derived here, not when somebody waits for it
            self._serving = Serving(snapshot, runner)
        self.metrics.state.set(snapshot.state)
        self.metrics.classes.set(len(snapshot.memory.labels))

    async def refresh(self) -> None:
        """Take up what other processes have changed."""

        def run() -> None:
            self.recognizer.refresh()
            self._publish()

        await self._in(self._writer, run)

    async def settle(self) -> None:
        """Erase what a purge had to leave in the files, if nobody is in its way any more."""
        await self._in(self._writer, self.recognizer.settle)

    async def change(self, change: Callable[[], Result]) -> Result:
        """Run a change after those before it; when this returns it is on the disk, and answers know it.

        Where answers cannot be made of it yet, that is no failure of the change: whoever was told so would send
        it again. It is logged, and the next ``refresh`` tries once more.
        """

        def run() -> Result:
            self.recognizer.refresh()
            try:
                return change()
            finally:
                try:
                    self._publish()
                except Exception:
                    log.exception("answers cannot be made of the model's last state yet")

        return await self._in(self._writer, run)

    async def read(self, look: Callable[[sqlite3.Connection], Result]) -> Result:
        """Look something up in the model's database, in the state that is committed by now."""

        def run() -> Result:
            assert self._view is not None  # there since the model was loaded
            with self._view.reading() as connection:
                return look(connection)

        return await self._in(self._reader, run)

    async def predict(self, uploads: Sequence[Upload], top: int) -> tuple[list[Prediction], int]:
        """Say what photos show, and in which state of the model."""
        runner = self.serving.runner
        if not len(self.serving.snapshot.memory.labels):
            raise ApiError(409, "no_classes", "the model knows no class yet", "teach it one first")
        with self._looking.work_on(len(uploads)):
            prepared = await self._looking.prepared(runner, uploads)
            X = await self._looking.features(runner, prepared)
            serving = self.serving
            if serving.runner is not runner:
                raise _replaced()
            names = [one.name for one in prepared]
            found = await self._in(self._scorer, lambda: serving.snapshot.predict_features(X, top, photos=names))
        self.metrics.photos.labels("predict").inc(len(names))
        return found, serving.snapshot.state

    async def learn(self, name: str, uploads: Sequence[Upload], *, repeated: bool = False) -> Learned:
        """Learn a class, or add photos to it; ``repeated`` asks not to learn the very same photos again."""
        serving = self.serving
        with self._looking.work_on(len(uploads)):
            keep = serving.snapshot.manifest.options
            prepared = await self._looking.prepared(serving.runner, uploads, keep)
            X = await self._looking.features(serving.runner, prepared)
            learned = await self.change(lambda: self._learn(name, serving.runner, prepared, X, repeated))
        self.metrics.photos.labels("learn").inc(learned.report.added)
        return learned

    def _learn(self, name: str, runner: Runner, photos: Sequence[Prepared], X: Floats, repeated: bool) -> Learned:
        snapshot = self.recognizer.snapshot
        sha256s = [photo.sha256 for photo in photos]
        row = snapshot.contents.by_name.get(name)
        if repeated and row is not None and list(row.sha256s[-len(sha256s) :]) == sha256s:
            report = LearnReport(name, photos=row.total.count, added=0)
            return Learned(report, created=False, state=snapshot.state, replayed=True)
        try:
            report = self.recognizer.learn_features(
                name,
                X,
                sha256s=sha256s,
                thumbnails=[photo.thumbnail for photo in photos],
                originals=[photo.copy for photo in photos],
                photos=[photo.name for photo in photos],
                fingerprint=runner.fingerprint,
                add=True,
            )
        except ConflictError as error:
            raise _replaced() from error
        return Learned(report, created=name not in snapshot.contents, state=self.recognizer.snapshot.state)

    async def close(self) -> None:
        """Finish what has begun, then close the model."""
        self._closing = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for pool in (self._writer, self._reader):
            pool.shutdown()
        self._looking.close()
        self._scorer.shutdown()
        if self._view is not None:
            self._view.close()
        self.recognizer.close()

    async def _in(self, pool: Executor, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except FiveshotError as error:
            raise from_library(error, self.recognizer.path) from error


def _replaced() -> ApiError:
    return busy("the model's backbone was replaced meanwhile")

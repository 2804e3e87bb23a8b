"""One pass over any number of photos: each is answered once, and the answer goes wherever it was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiveshot.data import BadImage, FileSource, ImageError
from fiveshot.errors import FiveshotError, InputError
from fiveshot.progress import Progress
from fiveshot.recognizer.answers.folders import ClassFolders, Placed, Way
from fiveshot.recognizer.answers.pictures import annotate
from fiveshot.recognizer.answers.sidecars import write_keywords
from fiveshot.recognizer.answers.table import AnswerTable, open_table
from fiveshot.recognizer.photos.photo import Photo
from fiveshot.recognizer.recognition.snapshot import Prediction

if TYPE_CHECKING:
    from fiveshot.recognizer.recognizer import Recognizer

CHUNK = 64  # answers that go to a file together


@dataclass(frozen=True)
class Places:
    """Where answers go, beside to whoever asks."""

    out: Path | None = None
    overwrite: bool = False
    mark: bool = False  # of UTF-8, in CSV
    into: Path | None = None
    way: Way = "copy"
    dry_run: bool = False
    xmp: bool = False
    pictures: Path | None = None


@dataclass
class Delivered:
    """What came of it, in numbers."""

    answers: int = 0
    earlier: int = 0  # answers that the file had before
    bad: list[BadImage] = field(default_factory=list)
    placed: Placed | None = None
    sidecars: int = 0
    pictures: int = 0
    labels: Counter[str] = field(default_factory=Counter)


class Delivery:
    """Answers photos and delivers the answers; ``delivered`` counts while it goes on.

    Photos come back one by one, in order, so that however many there are few are in memory.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        places: Places,
        *,
        top: int = 5,
        sure: float | None = None,
        why: int = 0,
        strict: bool = False,
    ) -> None:
        self.delivered = Delivered()
        self._recognizer, self._places, self._top = recognizer, places, top
        self._wanted: dict[str, Any] = {"top": top, "sure": sure, "why": why}
        self._strict = strict  # one bad photo refuses all
        self._asked: list[Photo] = []  # photos on their way to the network, in order

    def run(
        self, photos: Iterable[Photo], *, total: int, progress: Progress | None = None
    ) -> Iterator[Prediction]:
        """Yield the answers, after each has been delivered."""
        places, done = self._places, self.delivered
        with ExitStack() as opened:
            table: AnswerTable | None = None
            if places.out is not None and not places.dry_run:
                snapshot = self._recognizer.refresh()
                table = open_table(
                    places.out, snapshot, top=self._top, overwrite=places.overwrite, mark=places.mark
                )
                opened.callback(table.close)
                done.earlier = table.earlier
            folders = None
            if places.into is not None:
                folders = ClassFolders(places.into, places.way, dry_run=places.dry_run)
                opened.callback(folders.close)
                done.placed = folders.placed
            passed = Counter[str]()
            left = self._remembered(photos, table, passed)
            stream = self._stream(left)
            waiting: list[Prediction] = []
            parts: list[tuple[Photo, Prediction]] = []
            for one in stream:
                photo = self._photo_of(one)
                if parts and parts[0][0].source is not photo.source:
                    self._draw(parts)
                    parts = []
                parts.append((photo, one))
                self._deliver(photo, one, folders)
                waiting.append(one)
                if table is not None and len(waiting) >= CHUNK:
                    table.add(waiting)
                    waiting = []
                done.answers += 1
                done.labels[one.label or ""] += 1
                if progress is not None:
                    progress(done.answers + len(done.bad) + passed["earlier"], total)
                yield one
                if table is None:
                    waiting = []
            self._draw(parts)
            if table is not None:
                table.add(waiting)
                table.finish()

    def _stream(self, photos: Iterable[Photo]) -> Iterator[Prediction]:
        if not self._strict:
            return self._recognizer.stream(photos, **self._wanted, on_bad=self._note_bad)
        listed = list(photos)  # all of them are looked at before the first answer
        return iter(self._recognizer.predict(listed, **self._wanted) if listed else ())

    def _remembered(
        self, photos: Iterable[Photo], table: AnswerTable | None, passed: Counter[str]
    ) -> Iterator[Photo]:
        """Yield the photos that are still to be answered, and remember them until they are."""
        for photo in photos:
            if table is not None and photo in table:
                passed["earlier"] += 1
                continue
            self._asked.append(photo)
            yield photo

    def _photo_of(self, prediction: Prediction) -> Photo:
        """Return the photo of an answer: answers come in order, and bad photos have none."""
        while True:
            photo = self._asked.pop(0)
            if photo.name == prediction.photo and ((photo.box.values if photo.box else None) == prediction.box):
                return photo

    def _note_bad(self, bad: Iterable[BadImage]) -> None:
        self.delivered.bad.extend(bad)

    def _deliver(self, photo: Photo, one: Prediction, folders: ClassFolders | None) -> None:
        """Take an answer to its places; what cannot be done for one photo is noted, and the others go on."""
        file = photo.source.path if isinstance(photo.source, FileSource) else None
        if folders is not None:
            refused = len(folders.placed.refused)
            target = folders.put(photo, one.label)
            self._note_bad(BadImage(*why, "not_placed") for why in folders.placed.refused[refused:])
            file = target if target is not None and folders.way == "move" else file
        if self._places.xmp and one.label is not None and not self._places.dry_run:
            try:
                if file is None:
                    raise InputError("it is not a file of its own, so nothing can lie beside it", code="no_file")
                self.delivered.sidecars += write_keywords(file, one.label)
            except (FiveshotError, OSError) as error:
                reason = error.message if isinstance(error, FiveshotError) else str(error)
                self._note_bad([BadImage(photo.name, reason, "no_sidecar")])

    def _draw(self, parts: list[tuple[Photo, Prediction]]) -> None:
        if self._places.pictures is None or not parts or self._places.dry_run:
            return
        try:
            annotate(parts[0][0], [one for _, one in parts], self._places.pictures)
            self.delivered.pictures += 1
        except ImageError as error:
            self._note_bad([BadImage(error.name, error.reason, error.code)])

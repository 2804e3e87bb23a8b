"""One pass over any number of photos: each is answered once, and the answer goes to all output targets."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiveshot.data import BadImage, Box, FileSource, ImageError, Photo, decoders
from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.recognizer.answers._table import AnswerTable, open_table
from fiveshot.recognizer.answers.folders import ClassFolders, Placed, Way
from fiveshot.recognizer.answers.sidecars import write_keywords
from fiveshot.values import Prediction
from fiveshot.work import Progress

if TYPE_CHECKING:
    from PIL.Image import Image

    from fiveshot.recognizer._recognizer import Recognizer

CHUNK = 64  # answers that go to a file together
LONGEST_SIDE = 1600  # pixels of an annotated picture
COLORS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#800000")
CAPTION_LENGTH = 60  # characters of a caption


@dataclass(frozen=True)
class OutputTargets:
    """Output targets of predictions: a table, class folders, keywords next to photos, annotated copies."""

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
    """Numbers of delivered answers."""

    answers: int = 0
    earlier: int = 0  # answers that were already in the file
    bad: list[BadImage] = field(default_factory=list)
    placed: Placed | None = None
    sidecars: int = 0
    pictures: int = 0
    labels: Counter[str] = field(default_factory=Counter)


class Delivery:
    """Answers photos and delivers the answers; ``delivered`` counts them during the run.

    Photos are returned one by one, in order, so only a few are in memory at a time.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        places: OutputTargets,
        *,
        top: int = 5,
        sure: float | None = None,
        why: int = 0,
        strict: bool = False,
    ) -> None:
        self.delivered = Delivered()
        self._recognizer, self._places = recognizer, places
        self._wanted: dict[str, Any] = {"top": top, "sure": sure, "why": why}
        self._strict = strict  # one bad photo stops everything
        self._asked: list[Photo] = []  # photos on their way to the network, in order
        self._passed = 0  # photos that the file had answers for, or that were placed before

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
                    places.out, snapshot, top=self._wanted["top"], overwrite=places.overwrite, mark=places.mark
                )
                opened.callback(table.close)
                done.earlier = table.earlier
            folders = None
            if places.into is not None:
                folders = ClassFolders(places.into, places.way, dry_run=places.dry_run)
                opened.callback(folders.close)
                done.placed = folders.placed
            waiting: list[Prediction] = []
            parts: list[tuple[Photo, Prediction]] = []
            for one in self._stream(self._remembered(photos, table, folders)):
                photo = self._photo_of(one)
                if parts and parts[0][0].source is not photo.source:
                    self._draw(parts)
                    parts = []
                parts.append((photo, one))
                self._deliver(photo, one, folders)
                if table is not None:
                    waiting.append(one)
                    if len(waiting) >= CHUNK:
                        table.add(waiting)
                        waiting = []
                done.answers += 1
                done.labels[one.label or ""] += 1
                if progress is not None:
                    progress(done.answers + len(done.bad) + self._passed, total)
                yield one
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
        self, photos: Iterable[Photo], table: AnswerTable | None, folders: ClassFolders | None
    ) -> Iterator[Photo]:
        """Yield the photos without an answer, and remember them until they are answered."""
        for photo in photos:
            if folders is not None and folders.has(photo):
                self._passed += 1
                folders.placed.there += 1
                continue
            if table is not None and photo in table:
                self._passed += 1
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
        """Send an answer to its targets. A failure for one photo is noted, and the others continue."""
        file = photo.source.path if isinstance(photo.source, FileSource) else None
        if folders is not None:
            refused = len(folders.placed.refused)
            target = folders.put(photo, one.label)
            self._note_bad(BadImage(*why, "not_placed") for why in folders.placed.refused[refused:])
            file = target if target is not None and folders.way == "move" else file
        if self._places.xmp and one.label is not None and not self._places.dry_run:
            try:
                if file is None:
                    raise InputError("it is not a single file, so no file can be put next to it", code="no_file")
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


@dataclass(frozen=True)
class Annotated:
    """Draws frames and captions on a picture, and returns it as JPEG."""

    notes: tuple[tuple[Box | None, str, str], ...]  # the part, its text, a color

    def __call__(self, image: Image) -> dict[str, bytes]:
        """Return the annotated picture."""
        from PIL import ImageDraw, ImageFont

        scale = min(1.0, LONGEST_SIDE / max(image.size))
        size = tuple(max(1, round(side * scale)) for side in image.size)
        drawn = image.resize((size[0], size[1])) if scale < 1 else image.copy()
        draw = ImageDraw.Draw(drawn)
        height = max(11, min(size) // 25)
        font = ImageFont.load_default(height)
        for box, text, color in self.notes:
            left, top, right, bottom = (0, 0, *image.size) if box is None else box.pixels(image.size)
            corner = (left * scale, top * scale)
            if box is not None:
                edge = (*corner, max(corner[0], right * scale - 1), max(corner[1], bottom * scale - 1))
                draw.rectangle(edge, outline=color, width=max(2, height // 8))
            around = draw.textbbox(corner, text, font=font)
            # Above the frame if there is space, otherwise inside.
            up = min(around[3] - corner[1] + 4, corner[1])
            draw.rectangle((corner[0], corner[1] - up, around[2] + 4, around[3] - up + 4), fill=color)
            draw.text((corner[0] + 2, corner[1] - up + 2), text, fill="white", font=font)
        buffer = io.BytesIO()
        drawn.save(buffer, "JPEG", quality=90)
        return {"picture": buffer.getvalue()}


def annotate(photo: Photo, predictions: Sequence[Prediction], folder: Path) -> Path:
    """Write a copy of a photo with its answers to a folder, under an unused name; return its path."""
    notes = tuple(
        (None if one.box is None else Box(*one.box), _caption(one), COLORS[number % len(COLORS)])
        for number, one in enumerate(predictions)
    )
    data = decoders().reduce(photo.source, Annotated(notes)).parts["picture"]
    stem, number = Path(photo.name).name, 1
    target = folder / f"{stem}.jpg"
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(data)
            return target
        except FileExistsError:
            number += 1
            target = folder / f"{stem} ({number}).jpg"
        except OSError as error:
            if os.path.lexists(target):
                target.unlink(missing_ok=True)
            raise StorageError(f"cannot write {target}: {error.strerror or error}", code="not_written") from error


def _caption(one: Prediction) -> str:
    """Return a short text about a photo."""
    if one.label is None:
        return f"{one.answer}?"[:CAPTION_LENGTH]
    chance = "" if one.probability is None else f" {100 * one.probability:.0f} %"
    return f"{one.label[:CAPTION_LENGTH]}{chance}"

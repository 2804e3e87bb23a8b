"""Watch a source: recognize each photo, count votes, and report to files, programs and MQTT."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TextIO

from fiveshot.data import BadImage, FileSource, ImageError, Photo
from fiveshot.errors import FiveshotError, InputError, is_number
from fiveshot.features import Seen
from fiveshot.recognizer import (
    LostModelError,
    Recognizer,
    SeenPhoto,
    check_sure,
    check_top,
    levels_of,
    recognize_photos,
)
from fiveshot.storage import attempting
from fiveshot.values import Prediction, SightingLimits, to_json
from fiveshot.watch.keeping import Keeper
from fiveshot.watch.mqtt import MqttSettings, Publisher
from fiveshot.watch.regions import NamedBox, Stillness
from fiveshot.watch.sources import COMMAND, MODEL, OUT, SOURCE, Notice, Notices, Source, utc_now

BAD_BOX = "bad_box"  # why a part of a photo cannot be seen
PLACEHOLDERS = ("photo", "label", "answer", "probability", "vote", "time", "source", "region")
_PLACEHOLDER = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class Watching:
    """How photos are recognized, kept and reported.

    Attributes
    ----------
    top : int
        Number of candidates per photo.
    sure : float, optional
        Lowest probability of an answer.
    frames : int
        Number of last photos that vote.
    limit : int, optional
        Number of photos after which to stop.
    on_change : bool
        Whether to run the command only if the vote changes.
    command : Command, optional
        Program to run for a photo.
    out : Path, optional
        File to append JSON lines to.
    mqtt : MqttSettings, optional
        Broker to publish to.
    keep : {"none", "unsure", "all"}
        Photos to keep in the folder of the model, for a person to name.
    limits : SightingLimits
        How many are kept.
    regions : tuple of NamedBox
        Parts of every photo to recognize instead of the whole one.
    when_changed : bool
        Whether to compute nothing for a picture, or a region of it, that is still.
    """

    top: int = 3
    sure: float | None = None
    frames: int = 1
    limit: int | None = None
    on_change: bool = False
    command: Command | None = None
    out: Path | None = None
    mqtt: MqttSettings | None = None
    keep: Literal["none", "unsure", "all"] = "none"
    limits: SightingLimits = field(default_factory=SightingLimits)
    regions: tuple[NamedBox, ...] = ()
    when_changed: bool = False


def watch(
    recognizer: Recognizer,
    source: Source,
    how: Watching,
    *,
    stop: threading.Event,
    on_report: Callable[[Report], None],
    on_notice: Callable[[Notice], None],
) -> int:
    """Recognize photos as they arrive until ``stop`` is set, and return their number.

    Problems with the source, the model, the broker, the file or the command do not end it: ``on_notice`` is
    called when a problem begins and when it is over.
    """
    check_top(how.top)
    check_sure(how.sure)
    recognizer.refresh().require_classes()
    places = [WatchedRegion(box, how.frames) for box in how.regions or (None,)]
    lines = LinesFile(how.out) if how.out is not None else None
    keeper = Keeper(recognizer, how.keep, how.limits) if how.keep != "none" else None

    def tell(notice: Notice) -> None:
        on_notice(notice)
        if lines is not None and notice.about != OUT:
            lines.write(notice.as_dict(), notices)

    notices, looked_at = Notices(tell), 0
    publisher = Publisher(how.mqtt, notices, [one.name for one in how.regions]) if how.mqtt is not None else None
    with contextlib.nullcontext() if publisher is None else contextlib.closing(publisher):
        for photo in source.frames(stop, notices):
            if publisher is not None:
                publisher.available(not notices.has(SOURCE))
            if keeper is not None:
                keeper.tidy(notices)
            answers = None if photo is None else _answers(recognizer, source, photo, places, how, notices)
            if photo is None or answers is None:
                continue
            for place, answered in zip(places, answers, strict=True):
                if publisher is not None:
                    publisher.available(answered is not None, place.name)
                if answered is None:  # this region cannot be seen now
                    continue
                report = place.vote(photo, answered, source.name)
                if report is None:
                    continue
                on_report(report)
                if lines is not None:
                    lines.write(report.as_dict(), notices)
                if keeper is not None and isinstance(answered, SeenPhoto):
                    keeper.add(answered, notices, seen=report.time, source=report.source, region=report.region)
                if publisher is not None:
                    publisher.tell(report)
                if how.command is not None and (report.changed or not how.on_change):
                    how.command.run(report, notices)
            looked_at += 1
            if looked_at == how.limit:
                break
        if keeper is not None:
            keeper.write(notices)
    return looked_at


def _answers(
    recognizer: Recognizer,
    source: Source,
    photo: Photo,
    places: Sequence[WatchedRegion],
    how: Watching,
    notices: Notices,
) -> list[SeenPhoto | Prediction | None] | None:
    """Return the answer for each region of a photo: new, or the last one of a still region.

    None for a region outside of the photo; None alone if the photo or the model cannot be read now.
    """

    def changed(at: int, seen: Seen, state: int) -> bool:
        if not how.when_changed:
            return True
        assert seen.size is not None
        return places[at].still.differs(seen.pixels, short_side=min(seen.size), state=state)

    parts = [replace(photo, box=None if place.region is None else place.region.box) for place in places]
    try:
        if notices.has(MODEL):
            recognizer.reopen()
        found = recognize_photos(
            recognizer, parts, top=how.top, sure=how.sure, keep=how.keep != "none", wanted=changed
        )
    except FiveshotError as error:
        for place in places:
            place.still.forget()
        lost = isinstance(error, LostModelError)
        notices.trouble(MODEL, f"{error.message}; waiting for a model" if lost else f"{error}; retrying")
        source.postpone(photo)
        return None
    notices.over(MODEL, f"the model {recognizer.path} answers again")
    unreadable = next((one for one in found if isinstance(one, BadImage) and one.code != BAD_BOX), None)
    if unreadable is not None:
        for place, one in zip(places, found, strict=True):
            if isinstance(one, SeenPhoto):  # its answer is lost
                place.still.forget()
        source.unreadable(photo, str(ImageError(unreadable.name, unreadable.reason)), notices)
        return None
    return [place.answer(one, notices) for place, one in zip(places, found, strict=True)]


class WatchedRegion:
    """The whole photo, or a region of it: its votes, and its last answer."""

    def __init__(self, region: NamedBox | None, frames: int) -> None:
        self.region, self.still = region, Stillness()
        self.name = "" if region is None else region.name
        self._ballot = RecentVotes(frames)
        self._before: Vote | None = None  # the last decided one
        self._last: Prediction | None = None

    def answer(self, found: SeenPhoto | BadImage | None, notices: Notices) -> SeenPhoto | Prediction | None:
        """Return the answer for a photo: the last one if the region is still, and None if it cannot be seen."""
        if isinstance(found, BadImage):
            notices.trouble(f"region {self.name}", f"the region {self.name} cannot be seen: {found.reason}")
            return None
        notices.over(f"region {self.name}", f"the region {self.name} can be seen again")
        if found is not None:
            self._last = found.prediction
            return found
        return self._last

    def vote(self, photo: Photo, answered: SeenPhoto | Prediction, source: str) -> Report | None:
        """Count the vote of an answer; return None for a still region, unless it changes the vote."""
        is_new = isinstance(answered, SeenPhoto)
        prediction = answered.prediction if isinstance(answered, SeenPhoto) else answered
        vote = self._ballot.add(prediction.label)
        changed = vote.decided and (self._before is None or self._before.label != vote.label)
        self._before = vote if vote.decided else self._before
        if not (is_new or changed):
            return None
        return Report(photo, prediction, vote, changed, utc_now(), source, self.name)


@dataclass(frozen=True)
class Vote:
    """The vote of the last photos: ``label`` has ``votes`` of the last ``frames``; None is unknown.

    A label wins with more than half of the votes, and stays until another wins. ``decided`` is False before the
    first one wins.
    """

    label: str | None
    votes: int
    frames: int
    decided: bool


class RecentVotes:
    """The last answers. A vote for a class is also a vote for its groups.

    >>> ballot = RecentVotes(3)
    >>> [ballot.add(label).label for label in ("owl/barn owl", "owl/tawny owl", "wren", "wren")]
    [None, 'owl', 'owl', 'wren']
    """

    def __init__(self, frames: int) -> None:
        if not is_number(frames, whole=True) or not 1 <= frames <= 1000:
            raise InputError(f"{frames!r} photos cannot vote", hint="give a number from 1 to 1000")
        self._frames = int(frames)
        self._last: deque[str | None] = deque(maxlen=self._frames)
        self._winner: str | None = None
        self._decided = False

    def add(self, label: str | None) -> Vote:
        """Add an answer, and return the vote of the last ones."""
        self._last.append(label)
        counts: Counter[str | None] = Counter()
        for one in self._last:
            counts.update([None] if one is None else levels_of(one))
        enough = [one for one, votes in counts.items() if 2 * votes > self._frames]
        if enough:
            self._decided = True
            self._winner = max(enough, key=lambda one: len(levels_of(one)) if one is not None else 0)
        return Vote(self._winner, counts[self._winner] if self._decided else 0, self._frames, self._decided)


@dataclass(frozen=True, eq=False)
class Report:
    """What is reported of a photo: its answer and the vote; ``changed`` says whether it changed the vote."""

    photo: Photo
    prediction: Prediction
    vote: Vote
    changed: bool
    time: str  # UTC, ISO 8601
    source: str
    region: str = ""  # its name; empty for the whole photo

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values, as in the documented schema."""
        about = {"event": "photo", "time": self.time, "source": self.source, "region": self.region}
        return {**about, **to_json(self.prediction), "vote": to_json(self.vote), "changed": self.changed}

    @property
    def shown(self) -> str:
        """The label, or the kind of answer if there is no label."""
        return self.prediction.label or self.prediction.answer


def json_line(values: dict[str, Any]) -> str:
    """Return one line of JSON in ASCII.

    >>> json_line({"photo": "a\\nb\\udcff\\x7f"})
    '{"photo": "a\\\\nb\\\\udcff\\\\u007f"}'
    """
    return json.dumps(values, allow_nan=False).replace("\x7f", "\\u007f")


class LinesFile:
    """Appends JSON lines to a file. A failure is reported, and the next line is tried again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with attempting(f"write {path}"):
            self._open().close()

    def _open(self) -> TextIO:
        return self._path.open("a", encoding="utf-8")

    def write(self, values: dict[str, Any], notices: Notices) -> None:
        """Append a whole line, or leave the file unchanged."""
        try:
            with self._open() as opened:
                length = os.fstat(opened.fileno()).st_size
                try:
                    opened.write(json_line(values) + "\n")
                    opened.flush()
                except OSError:
                    os.ftruncate(opened.fileno(), length)
                    raise
        except OSError as error:
            notices.trouble(
                OUT, f"cannot write {self._path}: {error.strerror or error}; answers are lost until then"
            )
        else:
            notices.over(OUT, f"{self._path} can be written again")


class Command:
    """Calls a program for each report, without a shell: each word is one argument, even with odd names.

    The program gets the report as a JSON line on standard input. Its output goes to standard error.

    >>> Command("echo saw {lable}")
    Traceback (most recent call last):
    fiveshot.errors.InputError: there is no placeholder {lable}; ...
    """

    def __init__(self, text: str, *, timeout: float = 30.0) -> None:
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise InputError(f"the command {text!r} cannot be read ({error})", hint="check its quotes") from error
        if not self._words:
            raise InputError("the command is empty", hint="give a program and its arguments")
        for name in _PLACEHOLDER.findall(" ".join(self._words)):
            if name not in PLACEHOLDERS:
                known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
                raise InputError(f"there is no placeholder {{{name}}}", hint=f"choose from {known}")
        if shutil.which(self._words[0]) is None:
            raise InputError(f"there is no program {self._words[0]}", hint="give its path", code="no_program")
        self._timeout = timeout

    def run(self, report: Report, notices: Notices) -> None:
        """Call the program and wait for it; report problems."""
        with self._arguments(report) as arguments:
            problem = self._call(arguments, json_line(report.as_dict()) + "\n")
        if problem:
            notices.trouble(COMMAND, f"{self._words[0]} {problem}")
        else:
            notices.over(COMMAND, f"{self._words[0]} works again")

    def _call(self, arguments: list[str], line: str) -> str:
        """Return the problem, or an empty text."""
        try:
            process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), start_new_session=True, text=True
            )
        except (OSError, ValueError) as error:
            return f"cannot be started: {error}"
        try:
            process.communicate(line, timeout=self._timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with its child processes
            process.communicate()
            return f"took longer than {self._timeout:g} s and was stopped"
        return f"ended with status {process.returncode}" if process.returncode else ""

    @contextlib.contextmanager
    def _arguments(self, report: Report) -> Iterator[list[str]]:
        """Fill the placeholders; a photo without a file gets one while the program runs."""
        with contextlib.ExitStack() as stack:
            photo, in_a_file = report.photo.name, isinstance(report.photo.source, FileSource)
            if not in_a_file and any("{photo}" in word for word in self._words):
                kept = stack.enter_context(tempfile.NamedTemporaryFile(prefix="fiveshot-", suffix=".jpg"))
                kept.write(report.photo.read())
                kept.flush()
                photo = kept.name
            probability = report.prediction.probability
            values = {
                "photo": photo,
                "label": report.shown,
                "answer": report.prediction.answer,
                "probability": "" if probability is None else f"{probability:.4f}",
                "vote": report.vote.label or "unknown",
                "time": report.time,
                "source": report.source,
                "region": report.region,
            }
            yield [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in self._words]

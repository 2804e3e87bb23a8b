"""Watch: every photo that comes is recognized, counted, and told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fiveshot.data import ImageError
from fiveshot.errors import FiveshotError
from fiveshot.recognizer import LostModelError, Prediction, Recognizer
from fiveshot.recognizer.recognition.levels import check_sure
from fiveshot.recognizer.recognition.snapshot import check_top
from fiveshot.watch.mqtt import MqttSettings, Publisher
from fiveshot.watch.notices import MODEL, OUT, SOURCE, Notice, Notices, utc_now
from fiveshot.watch.sightings import Ballot, Command, LinesFile, Sighting
from fiveshot.watch.sources import Frame, Source


@dataclass(frozen=True)
class Watching:
    """How photos are answered, and who is told besides the caller.

    Attributes
    ----------
    top : int
        Candidates for each photo.
    sure : float, optional
        Probability that an answer needs.
    frames : int
        How many of the last photos vote.
    limit : int, optional
        Photos after which to end.
    on_change : bool
        Whether the command runs only when the vote changes.
    command : Command, optional
        What to run.
    out : Path, optional
        File that JSON lines are appended to.
    mqtt : MqttSettings, optional
        The broker that is told.
    """

    top: int = 3
    sure: float | None = None
    frames: int = 1
    limit: int | None = None
    on_change: bool = False
    command: Command | None = None
    out: Path | None = None
    mqtt: MqttSettings | None = None


def watch(
    recognizer: Recognizer,
    source: Source,
    how: Watching,
    *,
    stop: threading.Event,
    on_sighting: Callable[[Sighting], None],
    on_notice: Callable[[Notice], None],
) -> int:
    """Recognize photos as they come until ``stop`` is set, and return how many came.

    What goes wrong meanwhile, with the source, the model, the broker, the file or the command, is told to
    ``on_notice`` when it begins and when it is over; watching goes on.
    """
    check_top(how.top)
    check_sure(how.sure)
    recognizer.refresh().require_classes()
    ballot, seen, before = Ballot(how.frames), 0, None
    with ExitStack() as stack:
        lines = LinesFile(how.out) if how.out is not None else None

        def tell(notice: Notice) -> None:
            on_notice(notice)
            if lines is not None and notice.about != OUT:
                lines.write(vars(notice), notices)

        notices = Notices(tell)
        publisher = Publisher(how.mqtt, notices) if how.mqtt is not None else None
        if publisher is not None:
            stack.callback(publisher.close)
        for frame in source.frames(stop, notices):
            if publisher is not None:
                publisher.available(not notices.has(SOURCE))
            prediction = None if frame is None else _answer(recognizer, source, frame, how, notices)
            if frame is None or prediction is None:
                continue
            vote = ballot.add(prediction.label)
            changed = vote.decided and (before is None or before.label != vote.label)
            before = vote if vote.decided else before
            sighting = Sighting(frame, prediction, vote, changed, utc_now(), source.name)
            on_sighting(sighting)
            if lines is not None:
                lines.write(sighting.as_dict(), notices)
            if publisher is not None:
                publisher.tell(sighting)
            if how.command is not None and (changed or not how.on_change):
                how.command.run(sighting, notices)
            seen += 1
            if seen == how.limit:
                break
    return seen


def _answer(
    recognizer: Recognizer, source: Source, frame: Frame, how: Watching, notices: Notices
) -> Prediction | None:
    """Return what a photo shows; None where it cannot be read, or the model cannot answer now."""
    try:
        if notices.has(MODEL):
            recognizer.reopen()
        (prediction,) = recognizer.predict(frame.photo, top=how.top, sure=how.sure)
    except ImageError as error:
        source.unreadable(frame, str(error), notices)
        return None
    except LostModelError as error:
        notices.trouble(MODEL, f"{error.message}; waiting for a model there")
        source.postpone(frame)
        return None
    except FiveshotError as error:
        notices.trouble(MODEL, f"{error}; waiting for better")
        source.postpone(frame)
        return None
    notices.over(MODEL, f"the model {recognizer.path} answers again")
    return prediction

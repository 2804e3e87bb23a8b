"""Photos that a watch keeps: which ones, in what order, through full disks and other writers."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from file_limits import no_file_may_grow_beyond
from watching import Watched, draw, until, watching

from fiveshot.data import ArraySource, Photo
from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer, keep_sighting, limit_sightings, recognize_photos, sightings
from fiveshot.values import SightingLimits
from fiveshot.watch import Watching, keeping, open_source, watch


@pytest.fixture
def model(colors: Path, tmp_path: Path) -> Path:
    return shutil.copytree(colors, tmp_path / "model")


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def names(recognizer: Recognizer) -> list[str]:
    return [Path(one.prediction.photo).name for one in sightings(recognizer).sightings]


def test_only_unsure_photos_are_kept_if_that_is_wanted(model: Path, inbox: Path) -> None:
    draw("red", 7).save(inbox / "red.png")
    with Recognizer.open(model) as opened, Recognizer.open(model, readonly=True) as reader:
        how = Watching(keep="unsure", limit=1)
        with watching(opened, open_source(str(inbox), existing=True, settle=0.1), how) as watched:
            until(lambda: watched.seen)
        assert watched.labels == ["red"]
        assert names(reader) == []
        both = draw("red", 7)
        both.paste(draw("blue", 7).crop((0, 0, 32, 48)))
        both.save(inbox / "red.png")
        how = Watching(keep="unsure", sure=1.0, limit=1)  # no answer is that sure
        with watching(opened, open_source(str(inbox), existing=True, settle=0.1), how) as watched:
            until(lambda: watched.seen)
        (kept,) = sightings(reader).sightings
    (told,) = watched.seen
    assert (kept.seen, kept.source, kept.region) == (told.time, str(inbox), "")
    assert kept.prediction == told.prediction
    with Recognizer.open(model) as opened:
        data = (inbox / "red.png").read_bytes()
        assert opened.reader.sighting_picture(1, kept=True) == data  # the file itself


def test_all_are_kept_within_the_limits(model: Path, inbox: Path) -> None:
    with Recognizer.open(model) as opened:
        how = Watching(keep="all", limits=SightingLimits(number=2))
        with watching(opened, open_source(str(inbox), settle=0.1), how) as watched:
            for number in range(3):
                draw("blue", number + 20).save(inbox / f"{number}.png")
                until(lambda number=number: len(watched.seen) > number)
        assert names(opened) == ["2.png", "1.png"]


def test_a_watch_that_starts_again_keeps_no_photo_twice(model: Path, inbox: Path) -> None:
    for number in range(2):
        draw("blue", number + 20).save(inbox / f"{number}.png")
    with Recognizer.open(model) as opened:
        for _ in range(2):
            how = Watching(keep="all", limit=2)
            with watching(opened, open_source(str(inbox), existing=True, settle=0.1), how) as watched:
                until(lambda watched=watched: len(watched.seen) == 2)
        assert sorted(names(opened)) == ["0.png", "1.png"]


def test_a_disk_that_fills_is_said_once_and_nothing_is_lost(model: Path, inbox: Path) -> None:
    with Recognizer.open(model) as opened:
        with watching(opened, open_source(str(inbox), settle=0.1), Watching(keep="all")) as watched:
            with no_file_may_grow_beyond(4_000):
                for number in range(3):
                    draw("blue", number + 20).save(inbox / f"{number}.jpg", quality=60)
                    until(lambda number=number: len(watched.seen) > number)
            assert watched.labels == 3 * ["blue"]  # answers go on
            assert watched.events("sightings") == ["trouble"]
            draw("red", 9).save(inbox / "last.png")
            until(lambda: watched.events("sightings") == ["trouble", "recovered"])
            until(lambda: len(names(opened)) == 4)
        assert names(opened) == ["last.png", "2.jpg", "1.jpg", "0.jpg"]
        assert [one for one in opened.check() if one.severity == "error"] == []


def test_old_ones_are_erased_though_no_photo_comes(
    model: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "CHECKED", 0.0)
    red = Photo(ArraySource(np.asarray(draw("red")), "red"))
    how, a_month_ago = Watching(keep="unsure"), time.time() - 31 * 86_400
    about = {"seen": "2020-01-01T00:00:00.000Z", "source": "camera"}
    with (
        Recognizer.open(model) as opened,
        Recognizer.open(model) as other,
        watching(opened, open_source(str(inbox)), how),
    ):
        (seen,) = recognize_photos(other, [red], top=3, sure=None, keep=True)
        keep_sighting(other, seen, SightingLimits(days=36_500), now=a_month_ago, **about)
        until(lambda: sightings(other).sightings == ())


class WrongClock:
    """A clock that is behind by some seconds."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, wrong_by: float) -> None:
        self.wrong_by = wrong_by

    def time(self) -> float:
        return time.time() - self.wrong_by


def test_a_clock_that_jumps_ahead_erases_nothing(
    model: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that starts in 1970 gets the right time later; a sighting of that day is a minute old then."""
    monkeypatch.setattr(keeping, "CHECKED", 0.0)
    clock = WrongClock(time.time() - 1000.0)
    monkeypatch.setattr(keeping, "time", clock)
    monkeypatch.setattr("fiveshot.recognizer.unlabeled.sightings.time", clock)
    with Recognizer.open(model) as opened:
        how = Watching(keep="all", limits=SightingLimits(days=0.5))
        with watching(opened, open_source(str(inbox), settle=0.1), how) as watched:
            draw("blue", 20).save(inbox / "0.png")
            until(lambda: watched.seen)
            clock.wrong_by = 0.0
            draw("blue", 21).save(inbox / "1.png")
            until(lambda: len(watched.seen) == 2)
        assert names(opened) == ["1.png", "0.png"]
        assert limit_sightings(opened, SightingLimits(days=0.5)) == 0  # a watch that starts again
        clock.wrong_by = -86_400.0
        assert limit_sightings(opened, SightingLimits(days=0.5)) == 2


def test_a_model_that_cannot_be_written_is_refused_at_once(model: Path, inbox: Path) -> None:
    source, nobody = open_source(str(inbox), existing=True), Watched()
    with Recognizer.open(model, readonly=True) as opened, pytest.raises(InputError, match="read-only"):
        watch(
            opened,
            source,
            Watching(keep="all"),
            stop=threading.Event(),
            on_report=nobody.seen.append,
            on_notice=lambda _: None,
        )
    assert nobody.seen == []

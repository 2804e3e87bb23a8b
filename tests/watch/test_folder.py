"""Photos in a folder: taken when they are complete, once, however the folder comes and goes."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from watching import draw, jpeg, until, watching

from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer
from fiveshot.watch import sources
from fiveshot.watch.sources import FolderSource, open_source
from fiveshot.watch.watching import Watching

QUICK = {"settle": 0.1, "give_up": 0.5}


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


def test_what_arrives_is_recognized_once(recognizer: Recognizer, inbox: Path) -> None:
    (inbox / "before.jpg").write_bytes(jpeg("red"))
    with watching(recognizer, FolderSource(inbox, **QUICK), Watching(frames=3)) as watched:
        (inbox / "day 1").mkdir()
        (inbox / "day 1" / "a.jpg").write_bytes(jpeg("blue"))
        until(lambda: len(watched.seen) == 1)
        for name in (".hidden.jpg", "notes.txt", "b.jpg.part"):
            (inbox / name).write_bytes(jpeg("red", 7))
        draw("red").save(inbox / "b.png")
        until(lambda: len(watched.seen) == 2)
        (inbox / "b.jpg.part").rename(inbox / "c.jpg")
        until(lambda: len(watched.seen) == 3)
        (inbox / "c.jpg").write_bytes(jpeg("blue", 3))  # another picture under a name that was seen
        until(lambda: len(watched.seen) == 4)
        time.sleep(0.5)
    assert watched.labels == ["blue", "red", "red", "blue"]
    assert [Path(one.photo.name).name for one in watched.seen] == ["a.jpg", "b.png", "c.jpg", "c.jpg"]
    assert [one.vote.label for one in watched.seen] == [None, None, "red", "red"]
    assert [one.changed for one in watched.seen] == [False, False, True, False]
    assert watched.notices == []


def test_photos_that_are_there_already_on_request(recognizer: Recognizer, inbox: Path) -> None:
    for name in ("red", "blue"):
        (inbox / f"{name}.jpg").write_bytes(jpeg(name))
    with watching(recognizer, FolderSource(inbox, existing=True, **QUICK), Watching(limit=2)) as watched:
        until(lambda: len(watched.seen) == 2)
    assert sorted(map(str, watched.labels)) == ["blue", "red"]


def test_a_file_is_waited_for_while_it_is_written(recognizer: Recognizer, inbox: Path) -> None:
    data = jpeg("red")
    with watching(recognizer, FolderSource(inbox, settle=0.3, give_up=10)) as watched:
        with (inbox / "slow.jpg").open("wb") as opened:
            for start in range(0, len(data), len(data) // 6):
                opened.write(data[start : start + len(data) // 6])
                opened.flush()
                assert watched.seen == []
                time.sleep(0.15)
        until(lambda: len(watched.seen) == 1)
    assert (watched.labels, watched.notices) == (["red"], [])


def test_half_a_file_is_said_once_and_taken_when_it_is_whole(recognizer: Recognizer, inbox: Path) -> None:
    data = jpeg("blue")
    with watching(recognizer, FolderSource(inbox, **QUICK)) as watched:
        (inbox / "half.jpg").write_bytes(data[: len(data) // 2])
        until(lambda: watched.notices)
        time.sleep(0.8)
        assert watched.events("source") == ["unreadable"]
        assert "half.jpg" in watched.notices[0][2]
        (inbox / "half.jpg").write_bytes(data)
        until(lambda: watched.seen)
    assert watched.labels == ["blue"]
    assert watched.events("source") == ["unreadable"]


@pytest.mark.parametrize("same", [True, False])
def test_a_folder_that_goes_and_comes_back(recognizer: Recognizer, inbox: Path, same: bool) -> None:
    (inbox / "old.jpg").write_bytes(jpeg("red"))
    with watching(recognizer, FolderSource(inbox, **QUICK)) as watched:
        away = inbox.rename(inbox.with_name("away"))
        until(lambda: watched.notices)
        time.sleep(0.6)
        assert watched.events("source") == ["trouble"]
        if same:
            (away / "new.jpg").write_bytes(jpeg("blue"))
            away.rename(inbox)
        else:
            inbox.mkdir()
            (inbox / "new.jpg").write_bytes(jpeg("blue"))
        until(lambda: watched.seen)
        (inbox / "newer.jpg").write_bytes(jpeg("red", 5))  # and goes on
        until(lambda: len(watched.seen) == 2)
    assert watched.labels == ["blue", "red"]
    assert watched.events("source") == ["trouble", "recovered"]


def test_folders_that_report_nothing_are_listed(
    recognizer: Recognizer, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SCAN", 0.3)
    source = FolderSource(inbox, **QUICK)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "no space left on device")  # what too many watches look like

    monkeypatch.setattr(source._watchfiles, "watch", refuse)
    with watching(recognizer, source) as watched:
        until(lambda: watched.notices)
        (inbox / "a.jpg").write_bytes(jpeg("red"))
        until(lambda: watched.seen)
    assert watched.labels == ["red"]
    assert watched.events("changes") == ["trouble"]


def test_a_model_that_is_taught_or_replaced_meanwhile(colors: Path, inbox: Path, tmp_path: Path) -> None:
    path = shutil.copytree(colors, tmp_path / "model")
    source = FolderSource(inbox, **QUICK)
    with Recognizer.open(path, readonly=True) as model, watching(model, source) as watched:
        (inbox / "a.jpg").write_bytes(jpeg("red"))
        until(lambda: len(watched.seen) == 1)
        with Recognizer.open(path) as writer:
            writer.rename("red", "warm/red")
        (inbox / "b.jpg").write_bytes(jpeg("red", 2))
        until(lambda: len(watched.seen) == 2)
        shutil.rmtree(path)
        (inbox / "c.jpg").write_bytes(jpeg("red", 3))
        until(lambda: watched.events("model"))
        shutil.copytree(colors, path)
        until(lambda: len(watched.seen) == 3)
    assert watched.labels == ["red", "warm/red", "red"]
    assert watched.events("model") == ["trouble", "recovered"]


@pytest.mark.parametrize("place", ["nowhere", "ftp://camera/a.jpg", "http://ann:secret@camera/a.jpg", "http:///a"])
def test_places_that_are_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        open_source(place)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("wrong", [{"every": 0}, {"settle": -1}, {"settle": float("nan")}])
def test_times_that_are_refused(wrong: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        open_source(str(tmp_path), **wrong)

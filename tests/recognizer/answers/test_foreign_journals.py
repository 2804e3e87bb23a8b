"""A journal travels with its folder: a stranger's must not reach what is outside, nor the files of the user."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fiveshot.data import FileSource, Photo
from fiveshot.errors import StorageError
from fiveshot.recognizer.answers._journal import Entry, Journal
from fiveshot.recognizer.answers.folders import JOURNAL, ClassFolders, put_back

PHOTO = b"the bytes of a photo" * 100


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(PHOTO)
    return tmp_path / "photos" / "a.jpg"


@pytest.fixture
def into(tmp_path: Path) -> Path:
    (tmp_path / "sorted" / "owl").mkdir(parents=True)
    return tmp_path / "sorted"


def place(photo: Path, into: Path, way: str) -> Path:
    """Place a photo in the folder of owls."""
    folders = ClassFolders(into, way)  # type: ignore[arg-type]
    found = folders.put(Photo(FileSource(photo, str(photo))), "owl")
    folders.close()
    assert found is not None
    return found


def own_note(into: Path, source: Path, place: str, way: str, *, done: bool, sha256: str | None = None) -> None:
    """Write a line as this user does: by a journal that went wrong, or a run that was killed."""
    journal = Journal(into)
    journal.note(Entry(str(source), place, way, "owl", done, sha256), at_once=False)
    journal.close()


def foreign_note(into: Path, **values: Any) -> None:
    """Write a line as somebody else may."""
    entry = {"way": "copy", "class": "owl", "done": True, "look": [1, 1], "sha256": None, **values}
    with (into / JOURNAL).open("a") as file:
        file.write(json.dumps(entry) + "\n")


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("way", ["copy", "link", "move"])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("to", ["../photos/a.jpg", "owl/../../photos/a.jpg", "away/a.jpg", "owl/deep/a.jpg", ""])
def test_nothing_outside_is_touched(
    photo: Path, into: Path, tmp_path: Path, to: str, done: bool, way: str, trusted: bool
) -> None:
    (into / "away").symlink_to(photo.parent)
    (into / "owl" / "deep").symlink_to("../../photos")
    source = tmp_path / "elsewhere" / "new.jpg"
    foreign_note(into, **{"from": str(source), "to": to or str(photo), "way": way, "done": done})
    own_note(into, source, to or str(photo), way, done=done)
    result = put_back(into, trusted=trusted)
    assert len(result.left) == 1
    assert photo.read_bytes() == PHOTO
    assert not source.parent.exists()


@pytest.mark.parametrize("done", [False, True])
def test_a_journal_of_somebody_else_creates_nothing_outside(
    photo: Path, into: Path, tmp_path: Path, done: bool
) -> None:
    shutil.copy(photo, into / "owl" / "a.jpg")
    target = tmp_path / "home" / ".profile"
    foreign_note(into, **{"from": str(target), "to": "owl/a.jpg", "way": "move", "done": done})
    ((place, reason),) = put_back(into).left
    assert place == "owl/a.jpg"
    assert f"not moved to {target} (--trust" in reason
    assert not target.parent.exists()
    assert put_back(into, trusted=True).left == ()
    assert target.read_bytes() == PHOTO


@pytest.mark.parametrize("way", ["copy", "link"])
def test_a_journal_of_somebody_else_deletes_nothing(photo: Path, into: Path, way: str) -> None:
    own = into / "owl" / "a.jpg"
    shutil.copy(photo, own)
    foreign_note(into, **{"from": str(photo), "to": "owl/a.jpg", "way": way, "sha256": "0" * 64})
    assert len(put_back(into).left) == 1
    assert len(put_back(into, trusted=True).left) == 1
    assert own.read_bytes() == PHOTO


@pytest.mark.parametrize("changed", ["from", "to", "way", "sha256", "done"])
def test_a_line_that_was_altered_is_not_the_users_own(
    photo: Path, into: Path, tmp_path: Path, changed: str
) -> None:
    place(photo, into, "move")
    journal = into / JOURNAL
    entry = json.loads(journal.read_text().splitlines()[-1])
    others = {"from": str(tmp_path / "new.jpg"), "to": "owl/./a.jpg", "way": "copy", "sha256": None, "done": False}
    journal.write_text(json.dumps({**entry, changed: others[changed]}) + "\n")
    assert len(put_back(into).left) == 1
    assert (into / "owl" / "a.jpg").read_bytes() == PHOTO


@pytest.mark.parametrize("way", ["copy", "move"])
@pytest.mark.parametrize("original", [True, False])
def test_an_own_file_in_the_place_of_an_unfinished_photo_stays(
    photo: Path, into: Path, way: str, original: bool
) -> None:
    own_note(into, photo, "owl/a.jpg", way, done=False, sha256="0" * 64)
    (into / "owl" / "a.jpg").write_bytes(b"mine")
    if not original:
        photo.unlink()
    assert len(put_back(into).left) == 1
    assert (into / "owl" / "a.jpg").read_bytes() == b"mine"


def test_half_of_a_copy_is_taken_away(photo: Path, into: Path) -> None:
    own_note(into, photo, "owl/a.jpg", "copy", done=False)
    (into / "owl" / "a.jpg").write_bytes(PHOTO[:500])
    assert put_back(into).left == ()
    assert not into.exists()


def test_a_change_that_keeps_size_and_time_is_a_change(photo: Path, into: Path) -> None:
    placed = place(photo, into, "copy")
    before = placed.stat()
    placed.write_bytes(PHOTO[::-1])
    os.utime(placed, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [reason for _, reason in put_back(into).left] == ["it has changed since"]
    assert placed.read_bytes() == PHOTO[::-1]


def test_a_copy_that_was_only_touched_is_taken_away(photo: Path, into: Path) -> None:
    os.utime(place(photo, into, "copy"), (1, 1))
    assert put_back(into).left == ()


@pytest.mark.parametrize("happened", ["deleted", "edited", "linked", "linked twice"])
def test_the_only_copy_is_never_deleted(photo: Path, into: Path, tmp_path: Path, happened: str) -> None:
    placed = place(photo, into, "copy")
    photo.unlink()
    if happened == "edited":
        photo.write_bytes(b"smaller")
    elif happened != "deleted":
        photo.symlink_to(placed)
    if happened == "linked twice":
        os.link(placed, tmp_path / "backup.jpg")
    ((_, reason),) = put_back(into).left
    assert str(photo) in reason
    assert placed.read_bytes() == PHOTO


def test_a_link_that_leads_elsewhere_by_now_stays(photo: Path, into: Path, tmp_path: Path) -> None:
    placed = place(photo, into, "link")
    placed.unlink()
    placed.symlink_to(tmp_path)
    assert len(put_back(into).left) == 1
    assert placed.is_symlink()


def test_a_folder_that_became_a_link_is_not_followed(photo: Path, into: Path, tmp_path: Path) -> None:
    place(photo, into, "copy")
    (into / "owl").rename(tmp_path / "owl")
    (into / "owl").symlink_to(tmp_path / "owl")
    assert len(put_back(into).left) == 1
    assert (tmp_path / "owl" / "a.jpg").exists()


def test_no_photo_is_placed_behind_a_link(photo: Path, into: Path, tmp_path: Path) -> None:
    (into / "owl").rmdir()
    (into / "owl").symlink_to(tmp_path)
    folders = ClassFolders(into, "move")
    assert folders.put(Photo(FileSource(photo, "a.jpg")), "owl") is None
    folders.close()
    assert [name for name, _ in folders.placed.refused] == ["a.jpg"]
    assert photo.exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_journal_that_is_no_file_is_refused(photo: Path, into: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "precious").write_text("mine")
    make = {"link": lambda path: path.symlink_to(tmp_path / "precious"), "pipe": os.mkfifo, "folder": Path.mkdir}
    make[kind](into / JOURNAL)
    for use in (put_back, ClassFolders):
        with pytest.raises(StorageError) as caught:
            use(into)
        assert caught.value.code == "bad_journal"
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_journal_with_a_second_name_is_read_and_not_written_to(photo: Path, into: Path, tmp_path: Path) -> None:
    placed = place(photo, into, "copy")
    os.link(into / JOURNAL, tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    with pytest.raises(StorageError, match="second name") as caught:
        ClassFolders(into)
    assert caught.value.code == "bad_journal"
    placed.write_bytes(b"edited")
    place_left = [place for place, _ in put_back(into).left]
    assert place_left == ["owl/a.jpg"]
    assert (tmp_path / "elsewhere").read_bytes() == before


def test_a_link_in_the_place_of_what_is_written_meanwhile_is_not_followed(
    photo: Path, into: Path, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("mine")
    (into / JOURNAL).with_suffix(".part").symlink_to(tmp_path / "precious")
    place(photo, into, "copy").write_bytes(b"edited")
    assert len(put_back(into).left) == 1
    assert (tmp_path / "precious").read_text() == "mine"


ODD = [("a\0b", True, ""), ("\ud800", True, ""), ("a", 1, ""), ("a", True, 5), ("", True, "")]
ODD_LINES = [
    json.dumps({"from": "/a", "to": to, "way": "copy", "class": "owl", "done": done, "seal": seal})
    for to, done, seal in ODD
]


@pytest.mark.parametrize("line", ["[]", "5", '"owl"', "{", "[" * 100_000, '{"to": []}', '{"to": 5}', *ODD_LINES])
def test_what_is_no_line_of_a_journal_is_passed_over(photo: Path, into: Path, line: str) -> None:
    (into / JOURNAL).write_text(f"{line}\n")
    place(photo, into, "copy")
    assert put_back(into).undone == 1


def test_a_moved_photo_needs_no_trust_after_its_folder_was_renamed(
    photo: Path, into: Path, tmp_path: Path
) -> None:
    place(photo, into, "move")
    into.rename(tmp_path / "renamed")
    assert put_back(tmp_path / "renamed").left == ()
    assert photo.read_bytes() == PHOTO


def test_a_moved_link_goes_back(photo: Path, into: Path, tmp_path: Path) -> None:
    link = photo.with_name("link.jpg")
    link.symlink_to(photo)
    place(link, into, "move")
    assert not link.is_symlink()
    assert put_back(into).left == ()
    assert link.readlink() == photo


def test_without_a_home_the_journal_has_to_be_trusted(
    photo: Path, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    place(photo, into, "move")
    assert len(put_back(into).left) == 1
    assert put_back(into, trusted=True).left == ()
    assert photo.read_bytes() == PHOTO

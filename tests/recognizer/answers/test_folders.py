"""Photos in class folders, and back: the whole tree is compared, byte by byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from file_limits import no_file_may_grow_beyond

import fiveshot.recognizer.answers.folders as module
from fiveshot.data import BytesSource, FileSource, Photo
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.answers.folders import JOURNAL, ClassFolders, folder_name, put_back

ANSWERS = {"a.jpg": "owl", "b.jpg": "wren", "deep/a.jpg": "owl", "c.jpg": None, "d.jpg": "tit/blue tit"}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ANSWERS:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 1000)
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return tmp_path / "photos"


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, the journal aside."""
    files = (path for path in folder.rglob("*") if not path.is_dir() and path.name != JOURNAL)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def photo(path: Path) -> Photo:
    return Photo(FileSource(path, str(path)))


def place_all(photos: Path, folders: ClassFolders) -> ClassFolders:
    for name, label in ANSWERS.items():
        if (photos / name).exists():
            folders.put(photo(photos / name), label)
    folders.close()
    return folders


PLACED = {
    "owl/a.jpg": "a.jpg",
    "wren/b.jpg": "b.jpg",
    "owl/a (2).jpg": "deep/a.jpg",
    "_unknown/c.jpg": "c.jpg",
    "tit/blue tit/d.jpg": "d.jpg",
}


@pytest.mark.parametrize("way", ["copy", "link", "move"])
def test_photos_are_placed_and_put_back(photos: Path, tmp_path: Path, way: str) -> None:
    before, into = tree(photos), tmp_path / "sorted"
    place_all(photos, ClassFolders(into, way))  # type: ignore[arg-type]
    assert tree(into) == {place: before[name] for place, name in PLACED.items()}
    assert tree(photos) == ({} if way == "move" else before)
    assert all(path.is_symlink() == (way == "link") for path in into.rglob("*.jpg"))
    if way != "link":
        assert (into / "owl/a.jpg").stat().st_mtime == 1_600_000_000
    assert put_back(into, dry_run=True).undone == 5
    assert len(tree(into)) == 5
    done = put_back(into)
    assert (done.undone, done.left) == (5, ())
    assert tree(photos) == before
    assert not into.exists()
    with pytest.raises(InputError) as caught:
        put_back(into)
    assert caught.value.code == "no_journal"


def test_a_dry_run_changes_nothing(photos: Path, tmp_path: Path) -> None:
    folders = place_all(photos, ClassFolders(tmp_path / "sorted", "move", dry_run=True))
    assert folders.placed.folders == {"owl": 2, "wren": 1, "_unknown": 1, "tit/blue tit": 1}
    assert len(tree(photos)) == 5
    assert not (tmp_path / "sorted").exists()


def test_nothing_is_overwritten_and_nothing_is_placed_twice(photos: Path, tmp_path: Path) -> None:
    into = tmp_path / "sorted"
    (into / "owl").mkdir(parents=True)
    (into / "owl" / "a.jpg").write_text("mine")
    place_all(photos, ClassFolders(into))
    again = place_all(photos, ClassFolders(into))
    assert (again.placed.folders.total(), again.placed.there) == (0, 5)
    assert (into / "owl" / "a.jpg").read_text() == "mine"
    assert set(tree(into)) == {*PLACED, "owl/a (3).jpg"}
    put_back(into)
    assert tree(into) == {"owl/a.jpg": b"mine"}


@pytest.mark.parametrize("way", ["copy", "link", "move"])
def test_a_photo_in_the_folder_of_its_class_stays(photos: Path, way: str) -> None:
    (photos / "owl").mkdir()
    (photos / "a.jpg").rename(photos / "owl/a.jpg")
    (photos.parent / "link").symlink_to(photos)
    before = tree(photos)
    folders = ClassFolders(photos, way)  # type: ignore[arg-type]
    for given in (photos, photos.parent / "link"):
        assert folders.put(photo(given / "owl/a.jpg"), "owl") is None
    folders.close()
    assert (folders.placed.there, folders.placed.folders) == (2, {})
    assert tree(photos) == before


@pytest.mark.parametrize("way", ["copy", "move"])
def test_what_has_changed_since_is_left_alone(photos: Path, tmp_path: Path, way: str) -> None:
    into = tmp_path / "sorted"
    place_all(photos, ClassFolders(into, way))  # type: ignore[arg-type]
    (into / "wren" / "b.jpg").write_text("edited")
    if way == "move":
        (photos / "c.jpg").write_text("another photo by now")
    done = put_back(into)
    left = {place for place, _ in done.left}
    assert left == ({"wren/b.jpg"} if way == "copy" else {"wren/b.jpg", "_unknown/c.jpg"})
    assert set(tree(into)) == left
    assert {place for place, _ in put_back(into).left} == left  # the journal still knows them


def test_a_photo_moved_to_another_disk_is_copied_first(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(photos)
    monkeypatch.setattr(module, "_renamed", lambda source, target: False)
    place_all(photos, ClassFolders(tmp_path / "sorted", "move"))
    assert tree(photos) == {}
    put_back(tmp_path / "sorted")
    assert tree(photos) == before


@pytest.mark.parametrize("way", ["copy", "move"])
def test_a_disk_that_fills_loses_nothing(
    photos: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file larger than the system allows stands for one that does not fit; a move is one to another disk."""
    before, into = tree(photos), tmp_path / "sorted"
    (photos / "d.jpg").write_bytes(b"large" * 4000)
    before["d.jpg"] = b"large" * 4000
    monkeypatch.setattr(module, "_renamed", lambda source, target: False)
    folders = ClassFolders(into, way)  # type: ignore[arg-type]
    with no_file_may_grow_beyond(15_000), pytest.raises(StorageError) as caught:
        place_all(photos, folders)
    folders.close()
    assert caught.value.code == "not_placed"
    assert "put-back" in caught.value.hint
    placed = tree(into)
    assert len(placed) == 4  # no half of the fifth
    assert {**tree(photos), **{PLACED[place]: data for place, data in placed.items()}} == before
    entries = [json.loads(line) for line in (into / JOURNAL).read_text().splitlines()]
    assert sum(entry["done"] for entry in entries) == 4
    assert {
        entry["to"] for entry in entries if not any(e["done"] and e["to"] == entry["to"] for e in entries)
    } == {"tit/blue tit/d.jpg"}
    assert "make room and repeat the command" in caught.value.hint
    place_all(photos, ClassFolders(into, way))  # with room again, it is finished  # type: ignore[arg-type]
    assert tree(into) == {place: before[name] for place, name in PLACED.items()}
    put_back(into)
    assert tree(photos) == before


def test_a_journal_that_cannot_grow_is_said_once(photos: Path, tmp_path: Path) -> None:
    """Closing it tries the line again that could not be written, and says nothing else."""
    folders = ClassFolders(tmp_path / "sorted")
    with no_file_may_grow_beyond(10):
        with pytest.raises(StorageError, match=r"sorted: .*; 0 were placed before; nothing is lost: make room"):
            place_all(photos, folders)
        folders.close()
    assert tree(tmp_path / "sorted") == {}


def test_a_folder_that_cannot_be_made_needs_no_room(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="put that right and repeat the command"):
        ClassFolders(tmp_path / "file")


def test_a_folder_that_is_not_there_is_not_put_back(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such folder: .*nowhere; check the spelling"):
        put_back(tmp_path / "nowhere")


@pytest.mark.parametrize("way", ["copy", "move"])
def test_a_run_that_was_killed_is_put_back(photos: Path, tmp_path: Path, way: str) -> None:
    """The journal ends in the middle of a line, after a photo was placed and before that was noted."""
    before, into = tree(photos), tmp_path / "sorted"
    place_all(photos, ClassFolders(into, way))  # type: ignore[arg-type]
    journal = into / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    assert put_back(into).left == ()
    assert tree(photos) == before
    assert not into.exists()


def test_what_is_known_of_a_photo_moves_with_it(photos: Path, tmp_path: Path) -> None:
    (photos / "a.jpg.xmp").write_text("about a")
    (photos / "b.xmp").write_text("about b")
    before, into = tree(photos), tmp_path / "sorted"
    place_all(photos, ClassFolders(into, "move"))
    assert (into / "owl" / "a.jpg.xmp").read_text() == "about a"
    assert (into / "wren" / "b.xmp").read_text() == "about b"
    put_back(into)
    assert tree(photos) == before


def test_a_photo_without_a_file_is_refused_by_name(tmp_path: Path) -> None:
    folders = ClassFolders(tmp_path / "sorted")
    assert folders.put(Photo(BytesSource(b"", "standard input")), "owl") is None
    folders.close()
    assert [name for name, _ in folders.placed.refused] == ["standard input"]
    with pytest.raises(InputError):
        ClassFolders(tmp_path, "burn")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("..", "%2E%2E"),
        ("../../etc", "%2E%2E/%2E%2E/etc"),
        ("/etc/passwd", "etc/passwd"),
        (".hidden", "%2Ehidden"),
        ("a\\b:c", "a%5Cb%3Ac"),
        ("_unknown", "_unknown (class)"),
        ("ends.", "ends"),
        ("/", "%2F"),
    ],
)
def test_names_of_classes_become_names_of_folders(label: str, name: str) -> None:
    assert folder_name(label) == name
    assert len(folder_name("ü" * 200).encode()) < 255
    assert folder_name("ü" * 200) != folder_name("ü" * 199 + "o")


def test_a_journal_that_points_elsewhere_is_not_followed(photos: Path, tmp_path: Path) -> None:
    into = tmp_path / "sorted"
    into.mkdir()
    entry = {"from": str(photos / "x.jpg"), "to": "../photos/a.jpg", "way": "copy", "class": "x", "done": False}
    (into / JOURNAL).write_text(json.dumps(entry) + "\n")
    assert [place for place, _ in put_back(into).left] == ["../photos/a.jpg"]
    assert (photos / "a.jpg").exists()

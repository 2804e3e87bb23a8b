from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from file_limits import no_file_may_grow_beyond
from models import new_model, photos, picture

from fiveshot.errors import FiveshotError, StorageError
from fiveshot.recognizer import Recognizer, check_model, checking
from fiveshot.recognizer.checking import Finding
from fiveshot.recognizer.store.schema import DATABASE, PAGE_SIZE, SCHEMA_VERSION, open_database

NAMES = ("ani", "owl", "rook")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed model with base classes and learned ones."""
    with new_model(tmp_path / "model", base=NAMES[:2]) as model:
        for number in range(6):
            model.learn_features(f"c{number}", photos(f"c{number}"), thumbnails=[picture(64)] * 5)
        model.forget("c5")
    return tmp_path / "model"


def refused(path: Path, said: str) -> None:
    with pytest.raises(StorageError, match=said):
        Recognizer.open(path)


def test_what_is_no_model(tmp_path: Path, path: Path) -> None:
    refused(tmp_path / "nothing", "no such model.*fiveshot new")
    refused(tmp_path, "not a fiveshot model: it has no model.toml.*fiveshot new")
    refused(path / "model.toml", "is a file, and a model is a directory.*fiveshot import")


def test_a_place_that_is_taken(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="exists already"):
        new_model(path)
    with pytest.raises(StorageError, match="does not exist; create it first"):
        new_model(tmp_path / "no" / "model")
    with Recognizer.create(path, exist_ok=True) as there, Recognizer.open(path) as opened:
        assert there.show() == opened.show()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").touch()
    with pytest.raises(StorageError) as taken:
        Recognizer.create(tmp_path / "full", exist_ok=True)
    assert taken.value.code == "exists"
    shutil.rmtree(tmp_path / "full")
    (tmp_path / "empty").mkdir()
    new_model(tmp_path / "empty").close()
    assert {file.name for file in tmp_path.iterdir()} == {"model", "empty"}


@pytest.mark.parametrize("file", ["classes.sqlite", "model.toml", "base-*"])
def test_a_missing_file(path: Path, file: str) -> None:
    next(path.glob(file)).unlink()
    refused(path, "no such file|no model.toml")


@pytest.mark.parametrize("file", ["classes.sqlite", "model.toml", "base-*"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_file(path: Path, file: str, share: float) -> None:
    found = next(path.glob(file))
    data = found.read_bytes()
    found.write_bytes(data[: int(share * len(data))])
    refused(path, "damaged|cannot be read|not the database|not the one this model|restore")
    assert any(one.severity == "error" for one in check_model(path))


def test_a_newer_format(path: Path) -> None:
    text = (path / "model.toml").read_text()
    (path / "model.toml").write_text(text.replace("format = 1", "format = 2"))
    refused(path, "format 2, this release reads 1; .*pip install --upgrade fiveshot")
    (path / "model.toml").write_text(text)
    newer = SCHEMA_VERSION + 1
    with closing(sqlite3.connect(path / "classes.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
    refused(path, f"format {newer}, this release reads {SCHEMA_VERSION}; .*pip install --upgrade fiveshot")


def test_the_database_of_another_program(path: Path) -> None:
    (path / "classes.sqlite").unlink()
    with closing(sqlite3.connect(path / "classes.sqlite")) as connection:
        connection.execute("CREATE TABLE classes (id, name)")
    refused(path, "not the database of a fiveshot model")


@pytest.mark.parametrize("position", [50, 90, 130])
def test_a_schema_that_is_not_even_text(path: Path, position: int) -> None:
    data = bytearray((path / DATABASE).read_bytes())
    data[data.index(b"CREATE TABLE photos") + position] |= 0x80
    (path / DATABASE).write_bytes(data)
    refused(path, "cannot be read")
    assert [one.severity for one in check_model(path)] == ["error"]


def test_a_manifest_edited_by_hand(path: Path) -> None:
    text = (path / "model.toml").read_text()
    (path / "model.toml").write_text(text.replace('fingerprint = "aaaa', 'fingerprint = "bbbb'))
    refused(path, "not the one this model was made with.*check MODEL --repair")
    assert [one.repaired for one in check_model(path, repair=True)] == [True]
    assert (path / "model.toml").read_text() == text
    Recognizer.open(path).close()


def test_an_exchanged_base_file(path: Path, tmp_path: Path) -> None:
    with new_model(tmp_path / "other", base=("ani", "kea")) as other:
        shutil.copyfile(next(other.path.glob("base-*")), next(path.glob("base-*")))
    refused(path, "damaged or was replaced")


def test_flipped_bytes_never_go_unnoticed(path: Path) -> None:
    """A byte changed anywhere is refused on opening, is found by check, or does not affect the model."""
    sound = {file.name: file.read_bytes() for file in path.iterdir()}
    with Recognizer.open(path, readonly=True) as model:
        expected = model.predict_features(photos("c1", 3, seed=5))
    rng = np.random.default_rng(1)
    noticed = 0
    for _ in range(60):
        name = sorted(sound)[rng.integers(len(sound))]
        data = bytearray(sound[name])
        position = int(rng.integers(len(data)))
        data[position] ^= 1 << int(rng.integers(8))
        (path / name).write_bytes(data)
        try:
            findings = check_model(path)
            with Recognizer.open(path, readonly=True) as model:
                found = model.predict_features(photos("c1", 3, seed=5))
            assert findings or found == expected, f"byte {position} of {name}"
            noticed += bool(findings)
        except FiveshotError:
            noticed += 1
        for file in path.iterdir():
            file.unlink()
        for name_, content in sound.items():
            (path / name_).write_bytes(content)
    assert noticed > 30


def test_a_change_that_fails_leaves_no_file(
    make: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(base=NAMES)
    before = {file.name for file in model.path.iterdir()}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fiveshot.recognizer.change.read_contents", full)
    with pytest.raises(OSError, match="No space left"):
        model.forget("ani", for_good=True)
    monkeypatch.undo()
    model.rename("ani", "smooth-billed ani")  # writes a new base file
    model.undo()
    assert {file.name for file in model.path.iterdir()} == before
    assert model.snapshot.classes == NAMES


def test_a_new_model_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with no_file_may_grow_beyond(20_000), pytest.raises(StorageError) as caught:
        new_model(tmp_path / "model")
    assert str(caught.value).startswith(f"cannot write {tmp_path / 'model' / 'classes.sqlite'}")
    assert str(caught.value).endswith(
        "quota or another limit on the size of files is reached, or the disk fails; nothing was left behind"
    )
    assert list(tmp_path.iterdir()) == []


def test_reading_needs_no_room_on_the_disk(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(base=NAMES)
    path = model.path
    model.close()
    with no_file_may_grow_beyond(1000):  # not even the index of the log can be made
        with reopen(path, readonly=True) as again:
            assert again.snapshot.classes == NAMES
        with pytest.raises(StorageError, match="a quota or another limit on the size of files is reached"):
            reopen(path)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
        with pytest.raises(StorageError, match=r"classes.sqlite: the disk is full; the model is unchanged"):
            reopen(path)


def test_a_reader_without_room_sees_what_comes_later(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]
) -> None:
    """It reads without locks, and so must notice by itself that the database is another one."""
    model = make(base=NAMES)
    model.learn_features("x", photos("x"))
    model.close()
    with no_file_may_grow_beyond(1000):
        reader = reopen(model.path, readonly=True)
    with reopen(model.path) as writer:
        for number in range(20):
            writer.learn_features(f"c{number}", photos(f"c{number}"), thumbnails=[picture()] * 5)
        assert reader.refresh().classes == writer.snapshot.classes, "from the log"
        writer.forget("x", for_good=True)
        assert reader.refresh().classes == writer.snapshot.classes
        assert len(reader.history()) == 22
        assert reader.check() == []
    assert reader.refresh().classes == writer.snapshot.classes


def test_what_changes_under_a_reader_without_room_is_not_taken_for_damage(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(base=NAMES)
    model.close()

    def change(*_: object) -> Iterator[Finding]:
        with reopen(model.path) as writer:
            writer.learn_features("x", photos("x"), add=True)
        yield Finding("error", "database", "torn")

    with no_file_may_grow_beyond(1000):
        reader = reopen(model.path, readonly=True)
    with pytest.raises(StorageError, match="was changed while it was read"), reader.live.folder.reading():
        list(change())
    assert reader.refresh().classes == (*NAMES, "x")
    reader.close()
    with no_file_may_grow_beyond(1000):
        frozen = open_database(model.path / DATABASE, readonly=True, timeout=1)
    monkeypatch.setattr(checking, "open_database", lambda *_, **__: frozen)
    monkeypatch.setattr(checking, "_database", change)
    with pytest.raises(StorageError, match="was changed while it was read"):
        check_model(model.path)


def test_a_closed_reader_without_room_stays_closed(
    make: Callable[..., Recognizer], reopen: Callable[..., Recognizer]
) -> None:
    model = make(base=NAMES)
    model.close()
    with no_file_may_grow_beyond(1000):
        reader = reopen(model.path, readonly=True)
    reader.close()
    reopen(model.path).learn_features("x", photos("x"))
    with pytest.raises(FiveshotError, match="is closed; open it again"):
        reader.refresh()


def test_a_new_model_that_the_disk_does_not_confirm_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def fails_on_the_folder(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            raise OSError(5, "Input/output error")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fails_on_the_folder)
    with pytest.raises(StorageError, match="is in place, but the disk did not confirm it"):
        new_model(tmp_path / "model")
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    assert check_model(tmp_path / "model") == []


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.rename("ani", "smooth-billed ani"),  # both write a new base file
        lambda model: model.forget("ani", for_good=True),
        lambda model: model.learn_features("wren", photos("wren")),
    ],
)
def test_a_commit_that_fails_says_why_and_leaves_no_file(
    make: Callable[..., Recognizer], change: Callable[[Recognizer], object]
) -> None:
    model = make(base=NAMES)
    model.learn_features("c0", photos("c0"))
    before = {file.name for file in model.path.iterdir()}
    classes = model.snapshot.classes
    room = 2 * sum(file.stat().st_size for file in model.path.glob("base-*"))
    assert room < PAGE_SIZE  # a new base file fits, and no page in the log
    with no_file_may_grow_beyond(room), pytest.raises(StorageError) as caught:
        change(model)
    assert str(caught.value).startswith(f"cannot write {model.path / 'classes.sqlite'}")
    assert "quota" in str(caught.value)
    assert "the model is unchanged" in str(caught.value)
    assert {file.name for file in model.path.iterdir()} == before
    assert model.refresh().classes == classes
    assert model.check() == []
    change(model)
    assert model.snapshot.classes != classes
    assert model.check() == []


def test_a_file_that_the_database_names_is_never_discarded(make: Callable[..., Recognizer]) -> None:
    """An interrupt may come after the commit: the change and its file are stored."""
    model = make(base=NAMES)
    (named,) = model.path.glob("base-*")
    unnamed = model.path / "base-0123456789abcdef.safetensors"
    unnamed.write_bytes(b"of a change that failed")
    model.live.folder.discard([named, unnamed])
    assert named.exists()
    assert not unnamed.exists()

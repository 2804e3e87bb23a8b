"""Kept photos: limits on their bytes, a history that copies none, and nobody who reads one unasked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from models import a_reader, held, photos, picture
from PIL import Image

from fiveshot.data.reduction import clean_copy
from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer, thumbnails
from fiveshot.recognizer.store.manifest import Options
from fiveshot.recognizer.store.schema import DATABASE

KEEPS = Options(keep_photos=True)
SIZE = 200_000  # bytes of a kept photo


def learn(model: Recognizer, name: str, count: int = 10, size: int = SIZE, **given: bool) -> None:
    originals = [np.random.default_rng([number, size]).bytes(size) for number in range(count)]
    small = [picture()] * count
    model.learn_features(name, photos(name, count), originals=originals, thumbnails=small, **given)


def pictures(model: Recognizer) -> list[tuple[object, ...]]:
    with model.live.folder.reading() as connection:
        query = "SELECT p.*, i.* FROM photos p JOIN images i ON photo_id = id ORDER BY id"
        return connection.execute(query).fetchall()


def test_undoing_needs_no_blob_of_a_whole_class(make: Callable[..., Recognizer]) -> None:
    model = make(options=KEEPS)
    learn(model, "owl")
    learn(model, "wren", 2)
    before, kept = held(model), pictures(model)
    model.live.folder.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * SIZE)
    log = model.path / f"{DATABASE}-wal"
    with a_reader(model.path):  # so that the log holds all that is written
        model.forget("owl")
        assert 0 < log.stat().st_size < SIZE  # no picture was copied
        assert model.snapshot.classes == ("wren",)
        assert len(thumbnails(model, "wren")) == model.show().classes[0].photos == 2
        assert model.check() == []
        model.undo()
        assert 0 < log.stat().st_size < SIZE
    assert held(model)["photos"] == before["photos"]
    assert held(model)["classes"] == before["classes"]
    assert pictures(model) == kept
    assert model.check() == []


def test_a_class_that_the_history_holds_can_be_erased(make: Callable[..., Recognizer]) -> None:
    model = make(options=KEEPS)
    learn(model, "owl")
    model.forget("owl")
    assert len(pictures(model)) == 10
    model.forget("owl", for_good=True)
    assert pictures(model) == []
    assert (model.path / DATABASE).stat().st_size < 10 * SIZE


def test_damage_of_what_the_history_holds_is_found(make: Callable[..., Recognizer]) -> None:
    model = make(options=KEEPS)
    learn(model, "owl")
    model.forget("owl")
    with model.live.folder.writing() as connection:
        connection.execute("UPDATE images SET original = x'00' WHERE photo_id = 3")
    (found,) = model.check()
    assert (found.severity, found.kind) == ("error", "history")
    with model.live.folder.writing() as connection:
        connection.execute("DELETE FROM photos WHERE id = 3")
    (found,) = model.check()
    assert (found.severity, found.kind) == ("error", "history")


def test_nobody_reads_a_kept_photo_unasked(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    model = make(options=KEEPS)
    learn(model, "owl")
    read = set[tuple[str | None, str | None]]()

    def note(action: int, table: str | None, column: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_READ:
            read.add((table, column))
        return sqlite3.SQLITE_OK

    model.live.folder.connection.set_authorizer(note)
    assert len(thumbnails(model, "owl")) == 10
    model.rename("owl", "barn owl")
    model.forget("barn owl")
    model.undo()
    model.export(tmp_path / "without")
    assert ("images", "thumbnail") in read
    assert ("images", "original") not in read
    model.export(tmp_path / "with", photos=True)
    assert ("images", "original") in read


@pytest.mark.parametrize(
    ("limit", "most"), [("MAX_KEPT_PHOTO", SIZE - 1), ("MAX_KEPT_CLASS", 15 * SIZE), ("MAX_KEPT_MODEL", 16 * SIZE)]
)
def test_kept_photos_have_limits(
    make: Callable[..., Recognizer], monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    model = make(options=KEEPS)
    learn(model, "owl")
    before = held(model)
    monkeypatch.setattr(f"fiveshot.recognizer.store.rows.{limit}", most)
    with pytest.raises(InputError) as refused:
        learn(model, "owl", add=True)
    assert refused.value.code == "too_much_kept"
    assert f"{most / 1e6:,.0f} MB" in str(refused.value)
    assert held(model) == before
    model.learn_features("owl", photos("owl", seed=1), add=True)  # features alone have room
    learn(model, "wren", 1, 1000)
    assert model.check() == []


def test_a_copy_never_grows_beyond_its_limit() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1500, 1500, 3), dtype=np.uint8)
    assert len(clean_copy(Image.fromarray(noise), 157)) <= 256 * 1024

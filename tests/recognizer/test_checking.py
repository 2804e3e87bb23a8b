from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from models import photos

from fiveshot.recognizer import Recognizer, check_model

NAMES = ("ani", "owl")


@pytest.fixture
def model(make: Callable[..., Recognizer]) -> Recognizer:
    model = make(base=NAMES)
    model.learn_features("wren", photos("wren"), thumbnails=[b"small"] * 5)
    model.learn_features("rook", photos("rook"))
    model.learn_features("owl", photos("owl", 2, seed=1), add=True)
    model.forget("rook", keep_history=True)
    return model


@contextmanager
def behind_its_back(model: Recognizer) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(model.path / "classes.sqlite", isolation_level=None)
    yield connection
    connection.close()


def errors(model: Recognizer) -> list[str]:
    return [one.text for one in model.check() if one.severity == "error"]


def test_a_sound_model_has_no_findings(model: Recognizer) -> None:
    assert model.check() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE classes SET mean = zeroblob(48) WHERE name = 'wren'", "'wren'.*damaged"),
        ("UPDATE classes SET count = 6 WHERE name = 'wren'", "'wren'.*damaged"),
        ("UPDATE classes SET name = ' wren' WHERE name = 'wren'", "normal form"),
        ("UPDATE classes SET base = 1 WHERE name = 'wren'", "marked as part of the base"),
        ("DELETE FROM photos WHERE id = 11", "2 photos are counted, 1 are stored"),
        ("UPDATE images SET thumbnail = x'00' WHERE photo_id = 3", "photo 3 is damaged"),
        ("UPDATE photos SET class_id = 999 WHERE id = 1", "belongs to no row of classes"),
        ("UPDATE changes SET before = x'00' WHERE before IS NOT NULL", "of the history cannot be undone"),
        ("UPDATE meta SET value = 'x' WHERE key = 'manifest'", "cannot be read"),
        ("DELETE FROM meta WHERE key = 'manifest'", "cannot be read"),
    ],
)
def test_what_does_not_fit_is_found(model: Recognizer, change: str, said: str) -> None:
    with behind_its_back(model) as connection:
        connection.execute(change)
    (text,) = errors(model)
    assert re.search(said, text)


def test_statistics_that_are_not_of_the_photos(model: Recognizer) -> None:
    """Check sums that fit, so that only the comparison with the photos can tell."""
    from fiveshot.recognizer.rows import update_class
    from fiveshot.statistics import ClassSummary

    summary = model.snapshot.memory.new["wren"]
    number = model.snapshot.contents.by_name["wren"].id
    with behind_its_back(model) as connection:
        update_class(connection, number, ClassSummary(5, summary.mean * 1.01, summary.factor), state=2)
    assert errors(model) == ["class 'wren': its statistics are not those of its photos"]
    with behind_its_back(model) as connection:
        update_class(connection, number, ClassSummary(5, summary.mean, summary.factor * 1.01), state=2)
    assert errors(model) == ["class 'wren': its statistics are not those of its photos"]


def test_leftovers_are_noted_and_cleaned(model: Recognizer) -> None:
    (model.path / "base-0123456789abcdef.safetensors").write_bytes(b"old")
    (model.path / ".model.toml.abc.part").write_bytes(b"half")
    (model.path / "notes.txt").write_bytes(b"mine")
    assert [(one.severity, "left behind" in one.text) for one in model.check()] == [("note", True)] * 2
    model.close()
    assert all(one.repaired for one in check_model(model.path, repair=True))
    assert check_model(model.path) == []
    assert (model.path / "notes.txt").exists()


def test_a_lost_manifest_is_written_anew(model: Recognizer) -> None:
    text = (model.path / "model.toml").read_text()
    (model.path / "model.toml").unlink()
    model.close()
    (found,) = check_model(model.path, repair=True)
    assert (found.severity, found.repaired) == ("error", True)
    assert (model.path / "model.toml").read_text() == text


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no fiveshot model"):
        check_model(tmp_path)

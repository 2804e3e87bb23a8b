"""Changes that were confirmed and are no longer in the database: noticed, said, and never made up."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from models import a_reader, new_model, photos

from fiveshot.errors import StorageError
from fiveshot.recognizer import Recognizer, check_model
from fiveshot.recognizer.store._confirmed import CONFIRMED

NAMES = tuple(f"c{number}" for number in range(6))
LOG = "classes.sqlite-wal"


def copied(path: Path, target: Path) -> Path:
    """Copy a model as it lies on the disk while it is open, as a kill or a power failure would leave it."""
    return shutil.copytree(path, target, ignore=shutil.ignore_patterns("*-shm"))


@pytest.fixture
def in_the_log(make: Callable[..., Recognizer], tmp_path: Path) -> Path:
    """A model that was not closed, with two classes in the database and four only in the log."""
    model = make("open")
    for name in NAMES[:2]:
        model.learn_features(name, photos(name))
    with a_reader(model.path):
        for name in NAMES[2:]:
            model.learn_features(name, photos(name))
        return copied(model.path, tmp_path / "model")


def classes(path: Path) -> set[str]:
    with Recognizer.open(path, readonly=True) as model:
        return set(model.snapshot.classes)


def test_a_confirmed_change_does_not_live_in_the_log_alone(
    make: Callable[..., Recognizer], tmp_path: Path
) -> None:
    model = make("open")
    for number, name in enumerate(NAMES, 1):
        model.learn_features(name, photos(name))
        copy = copied(model.path, tmp_path / f"copy-{number}")
        (copy / LOG).unlink(missing_ok=True)
        assert classes(copy) == set(NAMES[:number])
        assert check_model(copy) == []


def test_no_flipped_bit_of_the_log_takes_changes_away_in_silence(in_the_log: Path, tmp_path: Path) -> None:
    data = (in_the_log / LOG).read_bytes()
    assert len(data) > 10_000
    rng = np.random.default_rng(0)
    lost = 0
    for position in [*range(32), *rng.integers(32, len(data), 40).tolist()]:
        copy = copied(in_the_log, tmp_path / "copy")
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(rng.integers(8))
        (copy / LOG).write_bytes(damaged)
        errors = [one for one in check_model(copy) if one.severity == "error"]
        if errors:
            lost += 1
            with pytest.raises(StorageError):
                classes(copy)
        else:
            assert classes(copy) == set(NAMES), f"byte {position} of the log"
        shutil.rmtree(copy)
    assert lost > 30


def test_lost_changes_are_said_with_the_way_out(in_the_log: Path) -> None:
    (in_the_log / LOG).write_bytes(b"")
    said = r"has lost its last 4 changes: state 7 was confirmed, and the database is in state 3"
    for readonly in (True, False):
        with pytest.raises(StorageError, match=said) as refused:
            Recognizer.open(in_the_log, readonly=readonly)
        assert refused.value.code == "lost_changes"
        assert "restore the model from a copy, or continue without these changes" in refused.value.hint
    (found,) = check_model(in_the_log)
    assert (found.severity, found.kind, found.text) == ("error", "lost", refused.value.message)


def test_repair_goes_on_with_what_is_left_and_does_not_call_that_repaired(in_the_log: Path) -> None:
    (in_the_log / LOG).write_bytes(b"")
    (found,) = check_model(in_the_log, repair=True)
    assert (found.severity, found.kind, found.repaired) == ("error", "lost", False)
    assert found.hint == "from now on the model continues without them"
    assert check_model(in_the_log) == []
    with Recognizer.open(in_the_log) as model:
        assert set(model.snapshot.classes) == set(NAMES[:2])
        model.learn_features("next", photos("next"))
    assert check_model(in_the_log) == []


def test_a_kill_between_a_change_and_its_number_is_no_damage(make: Callable[..., Recognizer]) -> None:
    model = make()
    before = (model.path / CONFIRMED).read_bytes()
    model.learn_features("owl", photos("owl"))
    model.close()
    (model.path / CONFIRMED).write_bytes(before)
    assert check_model(model.path) == []
    assert classes(model.path) == {"owl"}


def test_an_older_database_in_the_place_of_the_newer_one_is_noticed(
    make: Callable[..., Recognizer], tmp_path: Path
) -> None:
    model = make()
    shutil.copyfile(model.path / "classes.sqlite", tmp_path / "older")
    model.learn_features("owl", photos("owl"))
    model.close()
    shutil.copyfile(tmp_path / "older", model.path / "classes.sqlite")
    with pytest.raises(StorageError, match="has lost its last 1 change: "):
        Recognizer.open(model.path)


@pytest.mark.parametrize("damage", ["missing", "flipped", "another model's"])
def test_a_damaged_number_is_found_and_stops_nobody(
    make: Callable[..., Recognizer], tmp_path: Path, damage: str
) -> None:
    model = make()
    model.learn_features("owl", photos("owl"))
    model.close()
    file = model.path / CONFIRMED
    if damage == "missing":
        file.unlink()
    elif damage == "flipped":
        file.write_bytes(file.read_bytes().replace(b"state 2", b"state 6"))
    else:
        with new_model(tmp_path / "other") as other:
            shutil.copyfile(other.path / CONFIRMED, file)
    assert classes(model.path) == {"owl"}
    (found,) = check_model(model.path)
    assert (found.severity, found.kind) == ("error", "confirmed")
    assert [one.repaired for one in check_model(model.path, repair=True)] == [True]
    assert check_model(model.path) == []


def test_a_change_stands_where_its_number_cannot_be_written(
    make: Callable[..., Recognizer], caplog: pytest.LogCaptureFixture
) -> None:
    model = make()
    (model.path / CONFIRMED).unlink()
    (model.path / CONFIRMED).mkdir()
    model.learn_features("owl", photos("owl"))
    assert "is stored, but confirmed.txt could not be written" in caplog.text
    assert classes(model.path) == {"owl"}
    assert [one.kind for one in model.check()] == ["confirmed"]


def test_two_writers_never_put_the_number_back(make: Callable[..., Recognizer]) -> None:
    one = make()
    with Recognizer.open(one.path) as other:
        for number in range(6):
            (one, other)[number % 2].learn_features(f"c{number}", photos(f"c{number}"))
            assert f"state {number + 2}\n" in (one.path / CONFIRMED).read_text()
    assert one.check() == []

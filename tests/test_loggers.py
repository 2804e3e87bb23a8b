"""Each logger writes with its real library, and what it wrote is read back with that library or by hand."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fiveshot.errors import InputError, StorageError
from fiveshot.loggers import CSVLogger, Loggers, RunLogger

PARAMETERS = {"method": "ncm", "protocol": {"shots": 5, "order_seed": None, "paper_sessions": (2, 4)}}
STEPS = {0: {"accuracy": 0.75, "a_hm": None}, 1: {"accuracy": 0.5, "a_hm": 0.25}}


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Leave no variable behind that a library sets for itself."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


def log_two_sessions(*places: str | RunLogger) -> None:
    with Loggers(places).run("birds/ncm", PARAMETERS) as log:
        for step, values in STEPS.items():
            log(step, values)


def test_csv_has_a_row_for_each_parameter_and_value(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "log.csv"
    log_two_sessions(f"csv={place}")
    log_two_sessions(f"csv={place}")
    header, *rows = csv.reader(place.read_text(encoding="utf-8").splitlines())
    assert header == ["run", "kind", "step", "name", "value"]
    assert len(rows) == 2 * (4 + 3)  # the second run is added to the first
    assert rows[1] == ["birds/ncm", "parameter", "", "protocol.shots", "5"]
    values = [row[2:] for row in rows[:7] if row[1] == "value"]
    assert values == [["0", "accuracy", "0.75"], ["1", "accuracy", "0.5"], ["1", "a_hm", "0.25"]]


def test_tensorboard_reads_its_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra 'tensorboard' is not installed")
    log_two_sessions(f"tensorboard={tmp_path}")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "birds/ncm"))
    events.Reload()
    tags = {tag for kind in ("scalars", "tensors") for tag in events.Tags()[kind]}
    assert tags == {"accuracy", "a_hm"}
    found = [(event.step, float(event.tensor_proto.float_val[0])) for event in events.Tensors("accuracy")]
    assert found == [(0, 0.75), (1, 0.5)]
    assert json.loads((tmp_path / "birds/ncm/parameters.json").read_text())["protocol.shots"] == 5


def test_several_loggers_are_told_the_same_and_one_may_be_your_own(tmp_path: Path) -> None:
    log_two_sessions(f"csv={tmp_path / 'one.csv'}", CSVLogger(tmp_path / "two.csv"))
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


@pytest.mark.parametrize("place", ["csv", "csv=", "logs", "tensorbord=logs"])
def test_a_place_that_makes_no_sense_is_refused(place: str) -> None:
    with pytest.raises(InputError):
        Loggers([place])


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError), Loggers([f"csv={tmp_path}/file/log.csv"]).run("run", {}):
        pass
    with pytest.raises(InputError):
        Loggers([f"csv={tmp_path}"])

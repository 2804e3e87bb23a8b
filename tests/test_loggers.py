"""Each logger writes with its real library, and what it wrote is read back with that library or by hand."""

from __future__ import annotations

import csv
import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fiveshot.errors import InputError, StorageError
from fiveshot.loggers import CSVLogger, Loggers, RunLogger

PARAMETERS = {"method": "ncm", "protocol": {"shots": 5, "order_seed": None, "paper_sessions": (2, 4)}}
BLOCK = 32768
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


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """Read the format of LevelDB's log files, as the W&B documentation says, after a header of seven bytes."""
    assert data[:4] == b":W&B"
    place, parts = 7, b""
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:  # what is left of a block is padding
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


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


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's own, with SQLAlchemy 2.1
def test_mlflow_finds_the_run_with_its_parameters(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    place = tmp_path / "deep" / "mlflow.db"
    log_two_sessions(f"mlflow={place}")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place}")
    experiment = client.get_experiment_by_name("fiveshot")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("birds/ncm", "FINISHED")
    assert run.data.params["protocol.paper_sessions"] == "(2, 4)"
    history = client.get_metric_history(run.info.run_id, "accuracy")
    assert [(entry.step, entry.value) for entry in history] == [(0, 0.75), (1, 0.5)]
    with pytest.raises(ZeroDivisionError), Loggers([f"mlflow={place}"]).run("broken", {}):
        _ = 1 / 0
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.run_name: run.info.status for run in runs}["broken"] == "FAILED"


def offline_run(file: Path) -> tuple[str, dict[str, str], list[tuple[int, float]]]:
    """Return the name, the configuration and the history that a file of Weights & Biases holds."""
    from wandb.proto.wandb_internal_pb2 import Record

    history, name, config = [], "", {}
    for record in map(Record.FromString, leveldb_records(file.read_bytes())):
        if record.HasField("run"):
            name = name or record.run.display_name
            config |= {item.key: item.value_json for item in record.run.config.update}
        if record.HasField("history"):
            items = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
            history.append((int(items["_step"]), float(items["accuracy"])))
    return name, config, history


def test_wandb_writes_an_offline_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra 'wandb' is not installed")
    log_two_sessions(f"wandb={tmp_path}")
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    until = time.monotonic() + 60  # a process of its own writes the file
    while time.monotonic() < until and not (offline_run(file)[0] and len(offline_run(file)[2]) == 2):
        time.sleep(0.2)
    name, config, history = offline_run(file)
    assert name == "birds/ncm"
    assert json.loads(config["protocol.shots"]) == 5
    assert history == [(0, 0.75), (1, 0.5)]


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

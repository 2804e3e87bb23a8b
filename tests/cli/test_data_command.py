"""``fiveshot data`` and ``fiveshot report``: all of it or nothing, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from file_limits import no_file_may_grow_beyond

from fiveshot.data import dataset_specs
from fiveshot.data.synthetic import gaussian_classes

Run = Callable[..., tuple[int, str, str]]


def test_samples_are_drawn(run: Run, tmp_path: Path) -> None:
    status, printed, _ = run("data", "samples", tmp_path / "samples")
    assert status == 0
    assert [line.split(": ")[1] for line in printed.splitlines()] == ["25 pictures", "15 pictures", "3 pictures"]
    assert [path.name for path in tmp_path.iterdir()] == ["samples"]
    assert run("data", "samples", tmp_path / "samples")[:2] == (0, printed)  # the same pictures are there
    status, answer, _ = run("data", "samples", tmp_path / "samples", "--seed", "1", "--json")
    assert (status, json.loads(answer)["error"]["code"]) == (1, "exists")
    assert [path.name for path in tmp_path.iterdir()] == ["samples"]


def test_samples_that_do_not_fit_leave_nothing_behind(run: Run, tmp_path: Path) -> None:
    with no_file_may_grow_beyond(3000):
        status, printed, said = run("data", "samples", tmp_path / "samples")
    assert (status, printed) == (1, "")
    assert said == f"error: cannot make {tmp_path / 'samples'}: File too large; nothing was left behind\n"
    assert list(tmp_path.iterdir()) == []


def test_samples_in_a_place_that_takes_none_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, printed, _ = run("data", "samples", tmp_path / "file" / "samples", "--json")
    found = json.loads(printed)
    assert (status, found["command"], found["ok"]) == (1, "data samples", False)
    assert found["error"]["code"] == "storage"
    assert f"cannot make {tmp_path / 'file' / 'samples'}: " in found["error"]["message"]


def test_answers_for_programs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train_x, train_y, test_x, test_y = gaussian_classes(
        n_classes=4, n_features=8, train_per_class=6, test_per_class=2, seed=0
    )
    np.savez("birds.npz", train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)
    assert run("bench", "--features", "birds.npz", "--methods", "ncm", "--seeds", 1)[0] == 0
    for split in ("train", "test"):
        Path("data/cub200", split, "wren").mkdir(parents=True)
        Path("data/cub200", split, "wren", "1.jpg").touch()
    results = {}
    for words in ("data samples drawn", "data list", "data fetch cub200", "report runs"):
        status, printed, said = run(*words.split(), "--json")
        found = json.loads(printed)
        assert (status, list(found)) == (0, ["command", "model", "ok", "result"]), said
        assert words.startswith(found["command"])
        assert (found["model"], found["ok"]) == (None, True)
        results[found["command"]] = found["result"]
    assert results["data samples"] == {"folder": "drawn", "pictures": {"learn": 25, "test": 15, "strange": 3}}
    assert [one["name"] for one in results["data list"]["datasets"]] == list(dataset_specs())
    assert (results["data fetch"]["folder"], results["data fetch"]["train"]) == ("data/cub200", 1)
    assert "1 class, officially 200" in results["data fetch"]["differences"]
    assert [Path(file).is_file() for file in results["report"]["files"]] == [True]

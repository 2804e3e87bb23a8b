"""A head from a file of the user's own, wherever heads are used."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from fiveshot.benchmark import Job, Protocol, run
from fiveshot.benchmark.job import make_jobs
from fiveshot.core.scorers import recipes, unregister_head
from fiveshot.errors import InputError, StorageError
from fiveshot.features import load_features
from fiveshot.heads import ScorerHead, check_head, load_head, make_head, save_head
from fiveshot.plugins import _loaded, load_plugin, name_plugins
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.recognition.snapshot import head_record
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest

PROTOCOL = Protocol("small", "gaussian", n_classes=8, base_classes=4, increment=2, shots=3)


def test_a_name_is_found_in_the_environment(city: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no head 'city'.* --plugin or FIVESHOT_PLUGINS"):
        make_head("city")
    monkeypatch.setenv("FIVESHOT_PLUGINS", str(city))
    head = make_head("city", power=2.0)
    assert (type(head.scorer).__name__, head.scorer.power) == ("CityBlock", 2.0)
    X = np.random.default_rng(0).normal(size=(9, 3))
    means = np.stack([X[:3].mean(axis=0), X[3:].mean(axis=0)])
    scores = make_head("city").fit(X, [0] * 3 + [1] * 6).class_scores(X)
    np.testing.assert_allclose(scores, -np.abs(X[:, None] - means).mean(axis=2), rtol=1e-12)


def test_it_keeps_the_contract_and_scikit_learns(city: Path) -> None:
    kind = load_plugin(city).CityBlock
    assert "files" in check_head(kind)
    check_estimator(ScorerHead(kind()), on_skip=None)


def test_another_process_reads_a_saved_head(city: Path, tmp_path: Path) -> None:
    load_plugin(city)
    X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    head = make_head("city").fit(X, list("aabbcc"))
    save_head(head, tmp_path / "head.safetensors")
    np.save(tmp_path / "X.npy", X)
    code = (
        "import sys, numpy as np\nfrom fiveshot.heads import load_head\n"
        "print(load_head(sys.argv[1]).predict(np.load(sys.argv[2])).tolist())"
    )
    found = elsewhere(code, tmp_path / "head.safetensors", tmp_path / "X.npy", plugin=city)
    assert found == f"{head.predict(X).tolist()}\n"


def test_a_file_of_an_unknown_class_is_a_storage_error(city: Path, tmp_path: Path) -> None:
    load_plugin(city)
    save_head(make_head("city").fit([[0.0], [1.0]], [0, 1]), tmp_path / "head")
    del recipes._registered_classes["CityBlock"]
    with pytest.raises(StorageError, match=r"head does not hold .*'CityBlock'.*--plugin"):
        load_head(tmp_path / "head")


def test_the_benchmark_runs_it_in_several_processes(
    city: Path, features: Path, command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("bench", "--features", features, "--methods", "ncm,city", "--seeds", 2, "--shots", 3)
    found = command("--plugin", city.name, *arguments, "--workers", 2, "--format", "json")
    assert found.exit_code == 0, found.exception
    runs = json.loads(found.stdout)
    assert [entry["config"]["method"] for entry in runs] == ["ncm", "ncm", "city", "city"]
    assert ["source" in entry["config"]["head"] for entry in runs] == [False, False, True, True]


def test_lists_show_it(city: Path, command: Callable) -> None:
    assert "city" not in command("bench", "--list").stdout
    listed = command("--plugin", city, "bench", "--list").stdout.splitlines()
    assert ["city", "Nearest class mean by absolute differences"] in [line.split(maxsplit=1) for line in listed]


def test_a_job_finds_a_plugin_that_was_loaded_in_python(city: Path, features: Path) -> None:
    """As in a process that knows neither the module nor the variable."""
    module = load_plugin(city)
    sent = pickle.dumps(Job(PROTOCOL, "city", str(features), parameters={"power": 2.0}))
    unregister_head("city")
    del _loaded[city], sys.modules[module.__name__]
    head = pickle.loads(sent).head()
    assert (type(head.scorer).__name__, head.scorer.power) == ("CityBlock", 2.0)
    assert type(head.scorer) is not module.CityBlock


def test_a_run_is_of_the_file_as_it_was(city: Path, features: Path) -> None:
    """Runs of an edited head must not be taken for those of the one before; other methods keep theirs."""

    def identities() -> tuple[str, str]:
        _loaded.pop(city, None)  # as in the next process
        load_plugin(city)
        return tuple(Job(PROTOCOL, method, str(features)).identity for method in ("city", "ncm"))

    before, ncm = identities()
    assert identities() == (before, ncm), "the same file, the same run"
    city.write_text(city.read_text() + "\n# a remark\n")
    after, still = identities()
    assert after != before
    assert still == ncm
    record = run(PROTOCOL, load_features(features), make_head("city"))
    assert record.config["head"]["source"] == Job(PROTOCOL, "city", str(features)).config()["head"]["source"]


def test_all_methods_are_those_of_plugins_too(city: Path, features: Path) -> None:
    name_plugins([city])
    assert "city" in {job.method for job in make_jobs(PROTOCOL, str(features), methods=(), seeds=1)}


def test_a_model_is_reopened_with_it(city: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name_plugins([city])
    rng = np.random.default_rng(0)
    photos = {name: rng.normal(centre, size=(5, 12)).astype(np.float32) for name, centre in (("a", 0), ("b", 5))}
    create_model(tmp_path / "model", Manifest(BackboneRecord("none", 12, "a" * 64), head_record("city")))
    with Recognizer.open(tmp_path / "model") as model:
        for name, rows in photos.items():
            model.learn_features(name, rows)
        expected = [found.label for found in model.predict_features(np.concatenate(list(photos.values())))]
    code = (
        "import sys, numpy as np\nfrom fiveshot import Recognizer\n"
        "with Recognizer.open(sys.argv[1]) as model:\n"
        "    found = model.predict_features(np.load(sys.argv[2]))\n"
        "    print(type(model.refresh().head).__name__, [one.label for one in found], 'sklearn' in sys.modules)\n"
    )
    np.save(tmp_path / "X.npy", np.concatenate(list(photos.values())))
    found = elsewhere(code, tmp_path / "model", tmp_path / "X.npy", plugin=city)
    assert found == f"CityBlock {expected} False\n"
    unregister_head("city")
    monkeypatch.setenv("FIVESHOT_PLUGINS", "")
    with Recognizer.open(tmp_path / "model") as model:
        assert model.show().head == "city"
        with pytest.raises(InputError, match=r"no head 'city'.* --plugin or FIVESHOT_PLUGINS"):
            model.predict_features(photos["a"])


def elsewhere(code: str, *arguments: object, plugin: Path) -> str:
    """Run a program that finds the plugin in its environment, and nothing else there."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, env={"FIVESHOT_PLUGINS": str(plugin)})
    assert found.returncode == 0, found.stderr
    return found.stdout

"""The plug-in for LAMDA-PILOT, in a checkout: its answers are those of ``fiveshot bench`` on the same features."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fiveshot.benchmark import Protocol, run, sessions
from fiveshot.benchmark.job import protocol_head
from fiveshot.features import FeatureSet, embedded_features

ROOT = Path(__file__).parents[2]
BESIDE = ROOT.parent / "shared" / "published"  # a fork, where the checkout has one beside it
CHECKOUT = Path(os.environ.get("FIVESHOT_PILOT") or BESIDE)
PLUGIN = ROOT / "integrations" / "pilot"
WORKER = Path(__file__).with_name("pilot_worker.py")
NEEDED = "import models.base, utils.data_manager"
HEADS = {
    "unbiased-lda": {},
    "c-fecam": {"alpha": 0.75},
    "ranpac": {"n_projections": 64},
    "c-ranpac": {"n_projections": 64},
}


def python(*words: object, path: tuple[Path, ...] = (CHECKOUT, PLUGIN)) -> subprocess.CompletedProcess[str]:
    inside = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT / "src")))}
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, env=inside)


@pytest.fixture(scope="module", autouse=True)
def _checkout() -> None:
    if not (CHECKOUT / "models" / "base.py").is_file():
        pytest.skip("no checkout of LAMDA-PILOT; name one with FIVESHOT_PILOT")
    if (failed := python("-c", NEEDED)).returncode:
        pytest.skip(f"this checkout cannot be imported: {failed.stderr.strip().splitlines()[-1]}")


@pytest.fixture(scope="module")
def birds() -> FeatureSet:
    features = embedded_features("cub200-vit")
    return features.restrict(list(features.class_names[:20]))


@pytest.fixture(scope="module")
def protocol() -> Protocol:
    return Protocol("birds", "cub200", n_classes=20, base_classes=10, increment=5, shot_draw="first")


@pytest.fixture(scope="module")
def data(birds: FeatureSet, protocol: Protocol, tmp_path_factory: pytest.TempPathFactory) -> Path:
    arrays = {name: getattr(birds, name) for name in ("train_y", "test_y")}
    arrays |= {name: np.asarray(getattr(birds, name), dtype=np.float32) for name in ("train_x", "test_x")}
    file = tmp_path_factory.mktemp("birds") / "birds.npz"
    np.savez(file, order=protocol.class_order, **arrays)
    return file


def settings(file: Path, **values: object) -> Path:
    # "fecam" is in the settings of the paper's code, for its own learner.
    file.write_text(json.dumps({"init_cls": 10, "increment": 5, "shot": 5, "fecam": True, **values}))
    return file


@pytest.fixture(scope="module")
def answered(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    given = [
        settings(folder / f"{head}.json", head=head, head_parameters=values) for head, values in HEADS.items()
    ]
    done = python(WORKER, data, *given)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("head", HEADS)
def test_its_answers_are_those_of_the_benchmark(
    head: str, answered: Path, birds: FeatureSet, protocol: Protocol
) -> None:
    theirs = np.load(answered / f"{head}.npz")
    ours = run(protocol, birds, protocol_head(head, protocol, parameters=HEADS[head]))
    steps = sessions(protocol, birds.train_y, birds.test_y, birds.class_names)
    for step, measured in zip(steps, ours.metrics.sessions, strict=True):
        seen = [label for earlier in steps[: step.number + 1] for label in earlier.classes]
        rows = np.concatenate([np.flatnonzero(birds.test_y == label) for label in seen])  # PILOT's order
        np.testing.assert_array_equal(theirs[f"task{step.number}"], ours.predictions[step.number][rows])
        assert theirs["accuracies"][step.number] == pytest.approx(100 * measured.accuracy, abs=0.005)


WRONG = {
    "the settings have no 'head'": {},
    "no head 'c-fecan'; did you mean 'c-fecam'?": {"head": "c-fecan"},
    "beta": {"head": "ncm", "head_parameters": {"beta": 1}},
    "'shot' must be a whole number of at least 1, not -1": {"head": "ncm", "shot": -1},
    "'shot' must be a whole number of at least 1, not '5'": {"head": "ncm", "shot": "5"},
}
TRY_EACH = """
import json, sys
from fiveshot.errors import InputError
from fiveshot_learner import Learner
for given in json.loads(sys.argv[1]):
    try:
        Learner({"device": ["cpu"], "batch_size": 64, "init_cls": 10, "increment": 5, **given})
    except InputError as error:
        print(error)
"""


def test_wrong_settings_are_refused_in_a_sentence() -> None:
    done = python("-c", TRY_EACH, json.dumps(list(WRONG.values())))
    assert done.returncode == 0, done.stderr
    refused = done.stdout.splitlines()
    assert len(refused) == len(WRONG)
    assert all(said in line for said, line in zip(WRONG, refused, strict=True)), refused


def test_a_version_that_lacks_something_is_refused_in_a_sentence(data: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").touch()
    (tmp_path / "models" / "base.py").write_text("class BaseLearner:\n    def eval_task(self): pass\n")
    program = "from fiveshot_learner import Learner; Learner({'head': 'ncm'})"
    done = python("-c", program, path=(tmp_path, PLUGIN))
    said = done.stderr.strip().splitlines()[-1]
    assert "of this PILOT has no _eval_cnn, _evaluate, _extract_vectors; the plug-in needs a version" in said


def test_a_version_without_the_network_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for folder in ("models", "utils"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "utils" / "inc_net.py").touch()
    methods = "".join(
        f"    def {name}(self): pass\n" for name in ("_eval_cnn", "_evaluate", "_extract_vectors", "eval_task")
    )
    base = f"class BaseLearner:\n    def __init__(self, args): pass\n{methods}"
    (tmp_path / "models" / "base.py").write_text(base)
    done = python("-c", "from fiveshot_learner import Learner; Learner({'head': 'ncm'})", path=(tmp_path, PLUGIN))
    assert "utils.inc_net of this PILOT has no SimpleVitNet" in done.stderr.strip().splitlines()[-1]

"""A commit that reaches the log and is not confirmed by the disk: said so, and harmless whichever way it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from models import new_model, photos

from fiveshot.recognizer import Recognizer, check_model

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None,
    reason="a library that makes fsync fail is compiled and preloaded: Linux and a C compiler are needed",
)

WORKER = """
import os, signal, sys
from pathlib import Path
from models import photos
from fiveshot.errors import StorageError
from fiveshot.recognizer import Recognizer

path, flag, then = sys.argv[1:]
model = Recognizer.open(path)
model.learn_features("lark", photos("lark"))
Path(flag).touch()
try:
    model.forget("ash")
except StorageError as error:
    print(error.code, "|", error, flush=True)
if then == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
Path(flag).unlink()
model.refresh().contents
print(sorted(model.snapshot.classes))
model.learn_features("wren", photos("wren"))
print(sorted(model.refresh().classes))
model.close()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("library") / "failing_sync.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, HERE / "failing_sync.c", "-ldl"], check=True)
    return built


def run(path: Path, library: Path, then: str) -> list[str]:
    flag = path.parent / "syncs-fail"
    python_path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"LD_PRELOAD": str(library), "FAIL_SYNC": str(flag), "PYTHONPATH": python_path}
    command = [sys.executable, "-c", WORKER, str(path), str(flag), then]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (-signal.SIGKILL if then == "dies" else 0), done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    new_model(tmp_path / "model", base=("ash", "yew", "box")).close()
    return tmp_path / "model"


def test_a_process_that_dies_leaves_either_state_whole(path: Path, library: Path) -> None:
    (said,) = run(path, library, "dies")
    assert said.startswith("unconfirmed | ")
    assert "may or may not be stored; run fiveshot check" in said
    with Recognizer.open(path) as model:
        assert set(model.snapshot.classes) in ({"ash", "box", "lark", "yew"}, {"box", "lark", "yew"})
        model.learn_features("wren", photos("wren"))
        model.rename("yew", "taxus")
    assert [one for one in check_model(path) if one.severity == "error"] == []


def test_a_process_that_goes_on_is_in_the_state_before(path: Path, library: Path) -> None:
    said, before, after = run(path, library, "goes on")
    assert said.startswith("unconfirmed | ")
    assert before == str(["ash", "box", "lark", "yew"])
    assert after == str(["ash", "box", "lark", "wren", "yew"])
    with Recognizer.open(path) as model:
        assert str(sorted(model.snapshot.classes)) == after
    assert [one for one in check_model(path) if one.severity == "error"] == []

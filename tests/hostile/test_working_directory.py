"""A folder full of modules with well-known names: no process of any command imports one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpus import photo
from serving import serving

from fiveshot import Recognizer
from fiveshot.data import gaussian_classes
from fiveshot.features import FeatureSet, Provenance

DRIVER = Path(__file__).with_name("drive.py")
OTHERS = ("fiveshot", "numpy", "scipy", "PIL", "sklearn", "torch", "timm", "onnxruntime", "threadpoolctl", "typer")
LATER = ("sitecustomize", "usercustomize", "_multiprocessing", "cv2", "cupy", "joblib", "uvloop")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a module for every name of the standard library and of what fiveshot stands on."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in {*sys.stdlib_module_names, *OTHERS, *LATER} - {"__main__"}:
        (folder / f"{name}.py").write_text(
            "import sys\n"
            f"with open({str(folder / 'seen.txt')!r}, 'a') as file:\n"
            f"    file.write(f'{name} by {{sys.orig_argv[1:4]}}\\n')\n"
        )
    train_x, train_y, test_x, test_y = gaussian_classes(
        n_classes=6, n_features=8, train_per_class=8, test_per_class=6, seed=3
    )
    names = tuple(f"class {label}" for label in range(6))
    features = FeatureSet(train_x, train_y, test_x, test_y, names, Provenance.unknown("gaussian"))
    features.save(folder / "features.safetensors")
    for name in ("owl", "wren"):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(2):
            (folder / "photos" / name / f"{number}.jpg").write_bytes(photo("JPEG"))
    Recognizer.create(folder / "empty").close()
    return folder


def environment() -> dict[str, str]:
    """Return this environment without what would keep a Python from the current folder anyway."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | {"NO_COLOR": "1"}


def imported(folder: Path) -> str:
    seen = folder / "seen.txt"
    return seen.read_text() if seen.exists() else ""


def test_no_command_imports_from_the_working_directory(hostile: Path) -> None:
    """``bench --workers 2`` did three times: its two processes, and the one that tracks what these share."""
    commands = [
        "bench --features features.safetensors --methods ncm,teen --seeds 1 --workers 2 --out runs",
        "new model",
        "learn model photos",
        "predict model photos/owl/0.jpg",
        "extract --images photos --out extracted.safetensors --no-cache",
    ]
    done = subprocess.run(
        [sys.executable, str(DRIVER)],
        input=json.dumps([command.split() for command in commands]),
        capture_output=True,
        text=True,
        cwd=hostile,
        env=environment(),
        timeout=120,
        check=True,
    )
    assert imported(hostile) == ""
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["status"] for one in ended] == [0] * len(commands), ended


def test_python_m_imports_from_there_only_what_python_itself_needs(hostile: Path, tmp_path: Path) -> None:
    """Python looks there for what ``-m`` needs before it runs anything of ours; after that nobody does."""
    for name in ("multiprocessing", "numpy", "json", "PIL", "typer", "socket", "pickle", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text((hostile / f"{name}.py").read_text())
    command = (
        f"bench --features {hostile}/features.safetensors --methods ncm,teen --seeds 1 --workers 2 --out runs"
    )
    program = [sys.executable, "-m", "fiveshot", *command.split()]
    done = subprocess.run(program, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert imported(hostile) == ""
    assert done.returncode == 0, done.stderr


def test_the_service_imports_nothing_from_the_working_directory(hostile: Path) -> None:
    command = [sys.executable, str(DRIVER), "serve", "empty", "--port", "0"]
    with serving(command, hostile, env=environment()) as (client, _):
        photos = {"photos": ("1.jpg", photo("JPEG"), "image/jpeg")}
        assert client.post("/v1/classes/owl/photos", files=photos).status_code == 200
    assert imported(hostile) == ""

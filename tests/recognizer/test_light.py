"""The everyday path in a process in which PyTorch and scikit-learn cannot be imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "timm", "torchvision", "sklearn"):
            raise ImportError(f"{name} is blocked in this process")

sys.meta_path.insert(0, Blocked())
"""
EVERY_DAY = """
from pathlib import Path
from fiveshot import Recognizer
from fiveshot.recognizer import evaluate, import_file

photos, work = Path(sys.argv[1]), Path(sys.argv[2])
with Recognizer.create(work / "model", base=photos / "base", device="cpu", views=1) as model:
    (report,) = model.learn_many({"red": photos / "red"})
    assert (report.photos, report.verdict) == (3, "clear"), report
    assert model.predict(photos / "red")[0].candidates[0].label == "red"
    assert evaluate(model, photos / "test").accuracy == 1.0
    assert [one.name for one in model.show().classes] == ["blue", "green", "red"]
    model.rename("red", "crimson")
    assert model.undo().action == "rename"
    model.forget("red")
    assert model.undo().action == "forget"
    model.export(work / "model.fiveshot")
    assert model.check() == []
with import_file(work / "model.fiveshot", work / "copy", device="cpu") as copy:
    assert copy.snapshot.classes == ("blue", "green", "red")
    copy.forget("red", for_good=True)
    assert copy.merge(work / "model").added == ("red",)
    assert copy.history()[0].action == "merge"
with Recognizer.create(work / "adapted", adapter="cub200-small", device="cpu", views=1) as adapted:
    assert adapted.learn("red", photos / "red").photos == 3
"""
RETUNE = """
from fiveshot import FiveshotError, Recognizer
from fiveshot.tuning import retune

with Recognizer.create(sys.argv[2] + "/kept", keep_photos=True, device="cpu", views=1) as model:
    model.learn_many({"red": sys.argv[1] + "/red", "blue": sys.argv[1] + "/base/blue"})
    try:
        retune(model)
    except FiveshotError as error:
        print(error.hint)
"""
LOOKING = """
from fiveshot import Recognizer

with Recognizer.open(sys.argv[1]) as model:
    model.show(), model.history(), model.rename("red", "crimson")
print(*sorted({"PIL", "onnxruntime", "scipy.linalg"} & set(sys.modules)))
"""
WRONG = """
from fiveshot import FiveshotError, Recognizer

model, broken = sys.argv[1:]
for path, photo in ((model + "/nothing", "a.jpg"), (model, "nothing.jpg"), (model, broken)):
    try:
        with Recognizer.open(path) as opened:
            opened.predict(photo)
    except FiveshotError as error:
        print(error.code, "onnxruntime" in sys.modules)
"""


def run(script: str, *arguments: object) -> str:
    """Run a script in a separate process and return its output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", BLOCKED + script, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("light") / "photos"
    colors = {"red": (200, 30, 30), "blue": (30, 30, 200), "green": (30, 160, 30)}
    places = {"red": "red", "base/blue": "blue", "base/green": "green", "test/red": "red", "test/blue": "blue"}
    for place, name in places.items():
        (folder / place).mkdir(parents=True)
        for number in range(3):
            shade = tuple(min(255, value + 9 * number + 3 * len(place)) for value in colors[name])
            Image.new("RGB", (60 + number, 50), shade).save(folder / place / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def model(photos: Path) -> Path:
    """Go through every day, and return the model that is left."""
    run(EVERY_DAY, photos, photos.parent)
    return photos.parent / "model"


def test_every_day(model: Path) -> None:
    assert model.is_dir()


def test_retuning_says_what_to_install(photos: Path, tmp_path: Path) -> None:
    assert "pip install 'fiveshot[torch]'" in run(RETUNE, photos, tmp_path)


def test_looking_at_a_model_loads_nothing_heavy(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "model")
    assert run(LOOKING, copy) == "\n"


def test_what_is_wrong_is_said_before_the_backbone_is_loaded(model: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"not a photo")
    said = run(WRONG, model, tmp_path / "broken.jpg")
    assert said.splitlines() == ["no_model False", "no_file False", "bad_image False"]


FEATURES = """
import numpy as np
from fiveshot import Recognizer

rng = np.random.default_rng(0)
with Recognizer.create(sys.argv[1] + "/model", device="cpu", head=sys.argv[2]) as model:
    for name in ("owl", "wren"):
        model.learn_features(name, rng.normal(size=320) + 0.1 * rng.normal(size=(5, 320)))
    model.predict_features(rng.normal(size=(2, 320)))
print(*sorted(name for name in sys.modules if name == "sklearn" or name.startswith("fiveshot.heads")))
"""


@pytest.mark.parametrize("head", ["unbiased-lda", "ncm", "c-fecam"])
def test_learning_and_predicting_features_import_neither_heads_nor_scikit_learn(head: str, tmp_path: Path) -> None:
    assert run(FEATURES, tmp_path, head) == "\n"

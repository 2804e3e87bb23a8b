"""A path that begins with ~ is one in the home folder, also where a shell did not see it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from fiveshot import Recognizer
from fiveshot.cli.options import at_home

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a model, and photos of two classes; the working folder is another one."""
    home = tmp_path / "home"
    for name in ("red", "blue"):
        (home / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (64, 64), name).save(home / "photos" / name / "1.png")
    with Recognizer.create(home / "model", views=1) as model:
        model.learn_many(home / "photos")
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path / "work")
    return home


def test_models_photos_and_outputs(home: Path, run: Run) -> None:
    status, _, said = run("predict", "~/model", "~/photos/red/1.png", "~/photos/b*", "--out=~/answers.csv")
    assert status == 0
    assert said.startswith("note: nothing can be called unknown yet")
    assert len((home / "answers.csv").read_text().splitlines()) == 3
    assert run("predict", "~/model", "~/photos", "--into", "~/sorted")[0] == 0
    assert (home / "sorted" / "red" / "1.png").is_file()
    assert run("put-back", "~/sorted")[0] == 0
    assert run("export", "~/model", "~/model.fiveshot")[0] == 0
    assert run("import", "~/model.fiveshot", "~/other")[0] == 0
    assert run("evaluate", "~/other", "~/photos")[0] == 0
    assert not list(Path().iterdir())


def test_what_is_learned(home: Path, run: Run) -> None:
    assert run("learn", "~/model", "~/photos", "--add")[0] == 0
    assert run("learn", "~/model", "crimson", "~/photos/red/1.png")[0] == 0
    assert run("learn", "~/model", "--none", "~/photos/blue")[0] == 0
    assert run("correct", "~/model", "~/photos/red/1.png", "scarlet")[0] == 0
    assert "scarlet" in run("show", "~/model")[1]


def test_samples(home: Path, run: Run) -> None:
    assert run("data", "samples", "~/samples")[0] == 0
    assert (home / "samples").is_dir()


def test_a_class_may_be_called_so(home: Path, run: Run) -> None:
    assert run("learn", "~/model", "~/x", "~/photos/red")[0] == 0
    assert "~/x" in run("show", "~/model")[1]


def test_a_file_of_that_very_name_is_meant_itself(home: Path) -> None:
    Path("~").mkdir()
    Path("~", "x.jpg").touch()
    assert (at_home("~"), at_home("~/x.jpg")) == ("~", "~/x.jpg")
    assert at_home("~/y.jpg") == str(home / "y.jpg")
    assert at_home("~nobody-of-that-name/x.jpg") == "~nobody-of-that-name/x.jpg"

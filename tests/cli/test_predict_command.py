"""``predict`` and ``evaluate`` on photos as people have them: some bad, parts of them, very many."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fiveshot import Recognizer

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of two colors, photos of them, and one photo of both side by side."""
    folder = tmp_path_factory.mktemp("colors")
    shades = {"red": ("red", "crimson", "firebrick"), "blue": ("blue", "navy", "mediumblue")}
    for name, tones in shades.items():
        (folder / "photos" / name).mkdir(parents=True)
        for number, tone in enumerate(tones):
            Image.new("RGB", (64, 48), tone).save(folder / "photos" / name / f"{number}.png")
    both = Image.new("RGB", (64, 32), "red")
    both.paste("blue", (32, 0, 64, 32))
    both.save(folder / "both.png")
    with Recognizer.create(folder / "model", false_rejection=0.01) as made:
        made.learn_many(folder / "photos")
    return folder


@pytest.fixture
def here(colors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the photos, and the model, in the working folder."""
    shutil.copytree(colors / "photos", tmp_path / "photos")
    shutil.copy(colors / "both.png", tmp_path)
    (tmp_path / "model").symlink_to(colors / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(run: Run) -> Callable[..., tuple[int, Any]]:
    """Run a command with --json; return its status, and its result or error."""

    def asked(*arguments: object) -> tuple[int, Any]:
        status, printed, _ = run(*arguments, "--json")
        reply = json.loads(printed)
        assert reply["ok"] == (status == 0)
        return status, reply.get("result") or reply["error"]

    return asked


def spoil(*names: str) -> None:
    for name in names:
        Path(name).write_bytes(Path(name).read_bytes()[:60])


def test_one_bad_photo_does_not_cost_the_others(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    spoil("photos/red/1.png")
    Path("photos/blue/notes.txt").write_text("blue")
    status, result = ask("predict", "model", "photos")
    assert status == 3
    assert [(one["photo"], one["label"]) for one in result["predictions"]] == [
        *((f"photos/blue/{n}.png", "blue") for n in range(3)),
        *((f"photos/red/{n}.png", "red") for n in (0, 2)),
    ]
    assert [(one["name"], one["code"]) for one in result["left_out"]] == [("photos/red/1.png", "bad_image")]
    status, printed, said = run("predict", "model", "photos")
    assert (status, len(printed.splitlines())) == (3, 5)
    assert said.splitlines()[-2].startswith("left out: photos/red/1.png: ")
    assert run("predict", "model", "photos", "--skip-bad")[0] == 0
    status, error = ask("predict", "model", "photos", "--strict")
    assert (status, error["code"]) == (1, "bad_photos")


def test_evaluate_measures_what_can_be_read(here: Path, ask: Callable[..., Any]) -> None:
    spoil("photos/red/1.png", "photos/blue/0.png")
    status, result = ask("evaluate", "model", "photos")
    assert (status, result["photos"], result["accuracy"]) == (3, 4, 1.0)
    assert [one["name"] for one in result["left_out"]] == ["photos/blue/0.png", "photos/red/1.png"]
    assert ask("evaluate", "model", "photos", "--skip-bad")[0] == 0
    assert ask("evaluate", "model", "photos", "--strict")[1]["code"] == "bad_photos"


def test_where_nothing_can_be_read_there_is_no_answer(here: Path, ask: Callable[..., Any]) -> None:
    spoil(*(f"photos/{name}/{n}.png" for name in ("red", "blue") for n in range(3)))
    for command in ("predict", "evaluate"):
        status, error = ask(command, "model", "photos")
        assert (status, error["code"]) == (1, "bad_photos")


def test_one_answer_for_each_box(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    status, result = ask("predict", "model", "both.png", "--box", "0,0,32,32", "--box", "0.5,0,0.5,1")
    assert status == 0
    found = [(one["label"], one["box"]) for one in result["predictions"]]
    assert found == [("red", [0, 0, 32, 32]), ("blue", [0.5, 0, 0.5, 1])]
    _, printed, _ = run("predict", "model", "both.png", "--box", "0,0,32,32")
    assert printed.startswith("both.png [0,0,32,32]: red ")


def test_a_box_that_does_not_fit_is_refused_by_name(here: Path, ask: Callable[..., Any]) -> None:
    status, result = ask("predict", "model", "both.png", "photos", "--box", "0,0,60,40")
    assert (status, len(result["predictions"])) == (3, 6)
    assert [(one["name"], one["code"]) for one in result["left_out"]] == [("both.png", "bad_box")]
    for box in ("nan,0,5,5", "0,0,0,5", "red", "1,2,3"):
        status, error = ask("predict", "model", "both.png", "--box", box)
        assert (status, error["code"]) == (1, "bad_box")


def test_boxes_of_a_detector(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    detections = [
        {"conf": 0.9, "bbox": [0, 0, 0.5, 1], "category": "1"},
        {"conf": 0.8, "bbox": [0.5, 0, 0.5, 1], "category": "1"},
        {"conf": 0.8, "bbox": [0.9, 0.9, 0.5, 0.5], "category": "1"},
    ]
    images = [{"file": "cam/both.png", "detections": detections}, {"file": "gone.jpg", "detections": detections}]
    Path("boxes.json").write_text(json.dumps({"images": images}))
    status, result = ask("predict", "model", "both.png", "photos", "--boxes", "boxes.json")
    assert status == 3
    assert [(one["photo"], one["label"]) for one in result["predictions"]] == [
        ("both.png", "red"),
        ("both.png", "blue"),
    ]
    assert {(one["name"], one["code"]) for one in result["left_out"]} == {
        ("gone.jpg", "no_photo"),
        ("both.png", "bad_box"),
    }
    _, _, said = run("predict", "model", "both.png", "photos", "--boxes", "boxes.json")
    assert "note: passed over 6 photos without a box: photos/blue/0.png" in said
    assert ask("predict", "model", "both.png", "--boxes", "boxes.json", "--strict")[0] == 1
    assert ask("predict", "model", "photos", "--boxes", "boxes.json")[1]["code"] == "bad_photos"
    for extra in (("--boxes", "nothing.json"), ("--boxes", "boxes.json", "--box", "0,0,1,1")):
        assert ask("predict", "model", "both.png", *extra)[0] == 1


def test_parts_are_learned_and_measured(here: Path, run: Run, ask: Callable[..., Any]) -> None:
    assert run("new", "halves")[0] == 0
    assert run("learn", "halves", "red", "both.png", "--box", "0,0,32,32")[0] == 0
    Path("boxes.csv").write_text("photo,x,y,width,height\nboth.png,32,0,32,32\n")
    assert run("learn", "halves", "blue", "both.png", "photos/red", "--boxes", "boxes.csv")[0] == 0
    Path("test/red").mkdir(parents=True)
    Path("test/blue").mkdir()
    for name in ("red", "blue"):
        shutil.copy("both.png", f"test/{name}/{name}.png")
    Path("boxes.csv").write_text("photo,x,y,width,height\nred/red.png,0,0,30,30\nblue/blue.png,33,0,30,30\n")
    status, result = ask("evaluate", "halves", "test", "--boxes", "boxes.csv")
    assert (status, result["accuracy"], result["photos"]) == (0, 1.0, 2)
    status, error = ask("learn", "halves", "green", "photos/red", "--boxes", "boxes.csv")
    assert (status, error["code"]) == (1, "no_box")
    Path("boxes.csv").write_text("photo,x,y,width,height\nboth.png,32,0,nan,32\nboth.png,0,0,9,9\n")
    assert ask("learn", "halves", "green", "both.png", "--boxes", "boxes.csv")[0] == 1
    assert [one["name"] for one in ask("show", "halves")[1]["classes"]] == ["blue", "red"]

"""The notes of commands: what was skipped, and what the figures are based on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_vit import TINY

from fiveshot.recognizer import Recognizer

COLOURS = {"fish": (200, 40, 40), "moss": (40, 200, 40)}
Run = Callable[..., tuple[int, str, str]]


def draw(folder: Path, name: str, count: int, seed: int) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        noise = np.random.default_rng([seed, number]).integers(-40, 40, (6, 8, 3))
        pixels = (noise + COLOURS[name]).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).resize((80, 60)).save(folder / name / f"{number}.png")


@pytest.fixture
def model(tmp_path: Path, tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of two classes and its photos, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(COLOURS):
        draw(Path("photos"), name, 3, seed)
        draw(Path("test"), name, 2, 10 + seed)
    with Recognizer.create("things", backbone=TINY, weights=tiny_file, device="cpu", runtime="torch") as made:
        made.learn_many("photos")
    return Path("things")


def test_photos_beside_class_folders_are_noted(run: Run, model: Path, tiny_file: Path) -> None:
    for folder in ("photos", "test"):
        shutil.copy("photos/fish/0.png", f"{folder}/loose.png")
    made = ("--backbone", TINY, "--weights", tiny_file)
    for arguments in (
        ("learn", model, "photos", "--add"),
        ("evaluate", model, "test"),
        ("new", "based", "--base", "photos", *made),
    ):
        status, _, said = run(*arguments)
        assert status == 0, said
        assert "note: skipped 1 photo that lies beside the class folders: loose.png\n" in said
    assert "loose.png" not in run("learn", model, "all", "photos/fish", "--json")[2]


def test_evaluation_notes_other_folders_and_learned_photos(run: Run, model: Path) -> None:
    assert run("evaluate", model, "test")[2] == ""
    Path("test/fish").rename("test/FISH")
    shutil.copy("photos/moss/1.png", "test/moss/again.png")
    status, printed, said = run("evaluate", model, "test", "--json")
    assert status == 0
    others, learned = said.splitlines()
    assert others == "note: folders that are not classes: FISH (like 'fish'?)"
    assert learned.startswith("note: 1 of 5 photos was learned, so these figures are too good; ")
    result = json.loads(printed)["result"]
    assert result["other_folders"] == [{"name": "FISH", "photos": 2, "like": "fish"}]
    assert (result["learned_photos"], result["photos"], result["unknown_photos"]) == (1, 3, 2)


def test_an_export_replaces_what_it_may(run: Run, model: Path) -> None:
    photo = Path("photos/fish/0.png")
    before = photo.read_bytes()
    status, _, said = run("export", model, photo)
    assert (status, "--force" in said, photo.read_bytes()) == (1, True, before)
    status, _, said = run("export", model, model / "classes.sqlite", "--force")
    assert (status, "lies inside the model" in said) == (1, True)
    assert run("check", model)[0] == 0
    for _ in range(2):
        assert run("export", model, "things.fiveshot")[0] == 0
    assert "--force replaces a file" in run("export", model, "-", "--force")[2]
    assert run("export", model, photo, "--force")[0] == 0
    assert photo.read_bytes() == Path("things.fiveshot").read_bytes()


def test_a_repair_is_told_as_done(run: Run, model: Path) -> None:
    (model / "model.toml").write_text("edited by hand")
    status, printed, _ = run("check", model, "--repair")
    assert (status, printed.endswith("; repaired\n"), "--repair" in printed) == (0, True, False)
    assert run("check", model)[1] == "things is sound\n"

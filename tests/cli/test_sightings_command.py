"""``fiveshot sightings``: what a watch has kept is listed, named, dismissed and erased."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fiveshot.data import Box, FileSource, Photo
from fiveshot.recognizer import Recognizer, keep_sighting, recognize_photos
from fiveshot.values import SightingLimits, Sightings, from_json

Run = Callable[..., tuple[int, str, str]]
COLORS = {"red": (220, 30, 30), "blue": (30, 30, 220), "gold": (200, 160, 20)}


def draw(path: Path, name: str, number: int) -> Path:
    noise = np.random.default_rng(number).integers(-25, 25, (48, 64, 3)) + np.array(COLORS[name])
    Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two colors with five sightings: three of something new, and one of each color."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "photos").mkdir()
    with Recognizer.create(folder / "model", views=1) as model:
        for name in ("red", "blue"):
            model.learn(name, [draw(folder / "photos" / f"{name}{n}.png", name, n) for n in range(4)])
        for number, name in enumerate(("gold", "gold", "red", "gold", "blue")):
            path = draw(folder / "photos" / f"new{number}.png", name, 20 + number)
            (seen,) = recognize_photos(model, [Photo(FileSource(path, path.name))], top=3, sure=None, keep=True)
            keep_sighting(model, seen, SightingLimits(), seen=f"2026-05-01T10:0{number}:00.000Z", source="inbox")
    return folder


@pytest.fixture
def model(watched: Path, tmp_path: Path) -> Path:
    return shutil.copytree(watched / "model", tmp_path / "model")


@pytest.fixture
def asked(run: Run, model: Path) -> Callable[..., Any]:
    def ask(*options: object) -> Any:
        status, printed, said = run("sightings", model, *options, "--json")
        assert status == 0, f"{printed}{said}"
        return json.loads(printed)["result"]

    return ask


def test_they_are_listed_for_people_and_programs(run: Run, model: Path, asked: Callable[..., Any]) -> None:
    found = from_json(Sightings, asked()["sightings"])
    assert [one.id for one in found.sightings] == ["s5", "s4", "s3", "s2", "s1"]
    groups = {group.id: (group.label, group.ids) for group in found.groups}
    assert groups["g1"] == (None, ("s4", "s2", "s1"))
    assert groups["g3"] == ("red", ("s3",))
    status, printed, _ = run("sightings", model)
    assert status == 0
    assert printed.startswith("5 sightings, ")
    assert "g1: 3 photos, unknown (s4, s2, s1), last 2026-05-01T10:03:00.000Z from inbox\n" in printed
    assert f"if that is right: fiveshot sightings {model} --right g" in printed


def test_all_names_of_a_command_are_one_change(run: Run, model: Path, asked: Callable[..., Any]) -> None:
    done = asked("--name", "g1=gold", "--right", "s3", "--none", "s5")["changed"]
    assert done["counts"] == {"gold": 3, "red": 5, "none of these": 1}
    assert asked()["sightings"]["sightings"] == []
    assert run("undo", model)[0] == 0
    assert len(asked()["sightings"]["sightings"]) == 5
    with Recognizer.open(model, readonly=True) as opened:
        assert opened.snapshot.classes == ("blue", "red")


def test_dismissed_ones_come_back_and_erased_ones_do_not(
    run: Run, model: Path, asked: Callable[..., Any], tmp_path: Path
) -> None:
    assert asked("--dismiss", "g1")["changed"]["ids"] == ["s4", "s2", "s1"]
    assert run("undo", model)[:2] == (0, "undone: dismiss 3 sightings\n")
    assert asked("--forget", "s3", "--forget", "s5")["erased"] == 2
    assert len(asked("--save", tmp_path / "look")["sightings"]["sightings"]) == 3
    assert sorted(path.name for path in (tmp_path / "look").iterdir()) == ["s1.png", "s2.png", "s4.png"]
    assert asked("--forget", "all")["erased"] == 3
    status, printed, _ = run("sightings", model)
    assert (status, printed) == (0, "0 sightings; keep some with: watch --keep\n")


def test_they_are_saved_before_they_are_erased(asked: Callable[..., Any], tmp_path: Path) -> None:
    assert asked("--save", tmp_path / "look", "--forget", "all")["erased"] == 5
    assert len(list((tmp_path / "look").iterdir())) == 5


def test_a_damaged_one_can_be_erased(run: Run, model: Path, asked: Callable[..., Any]) -> None:
    with contextlib.closing(sqlite3.connect(model / "classes.sqlite")) as database:
        database.execute("UPDATE sightings SET prediction = '{' WHERE id = 2")
        database.commit()
    assert run("sightings", model)[0] == 1
    status, printed, _ = run("check", model)
    assert status == 1
    assert "sighting s2" in printed
    assert asked("--forget", "s2")["erased"] == 1
    assert len(asked()["sightings"]["sightings"]) == 4


def test_a_region_of_a_photo_is_saved_as_the_picture_that_it_is(model: Path, tmp_path: Path, run: Run) -> None:
    path = draw(tmp_path / "yard.png", "gold", 30)
    with Recognizer.open(model) as opened:
        part = Photo(FileSource(path, path.name), Box(0, 0, 0.5, 1))
        (seen,) = recognize_photos(opened, [part], top=3, sure=None, keep=True)
        keep_sighting(opened, seen, SightingLimits(), seen="2026-05-01T10:09:00.000Z", source="in", region="gate")
    status, printed, _ = run("sightings", model, "--save", tmp_path / "look")
    assert (status, printed.splitlines()[0]) == (0, f"wrote 6 photos to {tmp_path / 'look'}")
    with Image.open(tmp_path / "look" / "s6.jpg") as saved:
        assert (saved.format, saved.size) == ("JPEG", (32, 48))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--right", "g1"), "no class is suggested for s4; give it a name: --name s4=NAME; nothing was learned"),
        (("--right", "s9"), "there is no sighting s9"),
        (("--name", "g9=gold"), "there is no group g9"),
        (("--name", "s9=gold"), "there is no sighting s9"),
        (("--name", "s1"), "'s1' is not ID=NAME"),
        (("--name", "s1=gold", "--dismiss", "s2"), "naming, --dismiss and --forget exclude each other"),
        (("--none", "p3"), "'p3' is not the id of a sighting"),
    ],
)
def test_what_cannot_be_meant_is_refused(run: Run, model: Path, options: tuple[str, ...], said: str) -> None:
    status, _, error = run("sightings", model, *options)
    assert status == 1
    assert said in error
    with Recognizer.open(model, readonly=True) as opened:
        assert opened.reader.count_sightings()[0] == 5

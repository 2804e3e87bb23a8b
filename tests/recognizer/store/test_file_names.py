"""Names of files: kept with a photo, shown beside its id, and erased with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from models import a_reader, files_with, held, new_model, photos
from PIL import Image
from sighting_worker import UNKNOWN, sighted

from fiveshot.errors import InputError
from fiveshot.recognizer import (
    NONE,
    NotUndoableError,
    Recognizer,
    SeenPhoto,
    keep_sighting,
    name_sightings,
    review,
    sightings,
)
from fiveshot.recognizer.store.manifest import Options
from fiveshot.recognizer.store.rows import MAX_FILE_NAME, file_name
from fiveshot.values import SightingLimits

Make = Callable[..., Recognizer]


def learn(model: Recognizer, name: str, count: int = 3) -> None:
    model.learn_features(name, photos(name, count), names=[f"album/{name}/{name}-{n}.jpg" for n in range(count)])


def keep(model: Recognizer, number: int) -> None:
    name = f"album/heron-{number}.jpg"
    photo = replace(sighted("heron", number), name=name)
    seen = SeenPhoto(photo, replace(UNKNOWN, photo=name), "a" * 64)
    keep_sighting(model, seen, SightingLimits(), seen="2026-05-01T10:00:00.000+00:00", source="inbox")


def names(model: Recognizer, label: str) -> list[str | None]:
    return [photo.name for photo in model.photos(label)]


def test_photos_keep_the_names_of_their_files_and_no_folders(make: Make) -> None:
    model = make()
    learn(model, "owl")
    model.learn_features("wren", photos("wren"))  # features have no file
    assert names(model, "owl") == ["owl-0.jpg", "owl-1.jpg", "owl-2.jpg"]
    assert names(model, "wren") == [None] * 5
    assert files_with(model.path, b"owl-1.jpg")
    assert not files_with(model.path, b"album")
    assert model.check() == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a\x1b[31m\n\u202eb.jpg", "a[31m b.jpg"),
        ("caf\udce9.JPG", "caf.JPG"),
        ("..\\up\\1.png", "1.png"),
        ("Bild um 3.15\u202fUhr.png", "Bild um 3.15 Uhr.png"),
        (f"{'x' * 400}.jpeg", f"{'x' * (MAX_FILE_NAME - 5)}.jpeg"),
        ("photo 3", None),
        ("standard input", None),
        ("http://camera/1.jpg", None),
        ("a/.jpg", None),
        ("", None),
    ],
)
def test_only_what_is_plainly_the_name_of_a_photo_is_kept(make: Make, given: str, kept: str | None) -> None:
    assert file_name(given) == kept
    model = make()
    model.learn_features("owl", photos("owl", 1), names=[given])
    assert names(model, "owl") == [kept]
    assert model.check() == []


def test_a_model_without_names_writes_none(make: Make) -> None:
    model = make(options=Options(names=False))
    with a_reader(model.path):  # so that the log holds all that is written
        learn(model, "owl")
        assert not files_with(model.path, b"owl-")
    assert names(model, "owl") == [None] * 3
    assert not model.show().names


def test_names_move_with_photos_and_come_back_with_undo(make: Make) -> None:
    model = make()
    learn(model, "owl")
    learn(model, "wren")
    before = held(model)
    for change in (
        lambda: model.remove("p2"),
        lambda: model.move(["p1", "p4"], to="crow"),
        lambda: model.move("p1", to=NONE),
        lambda: model.forget("owl"),
        lambda: model.move(all_of="wren", to="owl"),
    ):
        change()
        model.undo()
        assert held(model)["photos"] == before["photos"]
    model.move("p1", to="wren")
    assert names(model, "wren") == ["owl-0.jpg", "wren-0.jpg", "wren-1.jpg", "wren-2.jpg"]


def test_no_byte_of_the_name_of_an_erased_photo_remains(make: Make) -> None:
    model = make()
    with a_reader(model.path):
        learn(model, "owl")
        learn(model, "wren")
        model.move("p1", to="wren")
        model.remove("p2")
        model.undo()
        assert all(files_with(model.path, b"owl-%d.jpg" % n) for n in range(3))
    model.remove(["p1", "p2"], for_good=True)
    assert not files_with(model.path, b"owl-0.jpg")
    assert not files_with(model.path, b"owl-1.jpg")
    assert files_with(model.path, b"owl-2.jpg")
    model.forget("wren")
    assert files_with(model.path, b"wren-1.jpg")
    model.forget("wren", for_good=True)
    assert not files_with(model.path, b"wren-")


def test_turning_names_off_erases_all_of_them(make: Make, reopen: Make) -> None:
    model = make()
    other = reopen(model.path)
    learn(model, "owl")
    learn(model, "wren")
    model.remove("p1")  # held by the history
    keep(model, 1)
    keep(model, 2)
    name_sightings(model, "s1", "heron")
    assert names(model, "heron") == ["heron-1.jpg"]
    before = held(model)["classes"]
    assert other.predict_features(photos("owl"), why=1)[0].why[0].name == "owl-1.jpg"
    model.set(names=False)
    for needle in (b"owl-", b"wren-", b"heron-", b"album"):
        assert not files_with(model.path, needle), needle
    assert names(model, "owl") == names(other, "wren")[:2] == [None, None]
    assert other.predict_features(photos("owl"), why=1)[0].why[0].name is None
    assert held(model)["classes"] == before
    keep(model, 3)
    assert [one.prediction.photo for one in sightings(model).sightings] == ["", ""]
    learn(model, "crow")
    assert names(model, "crow") == [None] * 3
    assert not files_with(model.path, b"heron-")
    assert model.check() == []
    model.undo()
    with pytest.raises(NotUndoableError, match="names of photos were erased for good"):
        model.undo()
    model.undo(past_forget=True)  # the naming of the sighting
    assert [one.id for one in sightings(model).sightings] == ["s3", "s2", "s1"]
    model.undo(past_forget=True)
    assert names(model, "owl") == [None] * 3


def test_turning_names_on_can_be_undone(make: Make) -> None:
    model = make(options=Options(names=False))
    model.set(names=True)
    learn(model, "owl")
    assert names(model, "owl")[0] == "owl-0.jpg"
    model.undo()
    assert model.undo().detail == {"options": {"names": True}, "before": {"names": False}}
    assert not model.show().names
    with pytest.raises(InputError, match="no setting was given"):
        model.set()


def test_exports_leave_names_out_and_merging_models_keeps_them(make: Make, tmp_path: Path) -> None:
    model = make()
    learn(model, "owl")
    file = model.export(tmp_path / "owl.fiveshot", photos=True)
    assert b"owl-1.jpg" not in file.read_bytes()
    here, there = make("here"), make("there")
    here.merge(model.path)
    there.merge(file)
    assert names(here, "owl") == ["owl-0.jpg", "owl-1.jpg", "owl-2.jpg"]
    assert names(there, "owl") == [None] * 3
    with new_model(tmp_path / "without", options=Options(names=False)) as without:
        without.merge(model.path)
        assert names(without, "owl") == [None] * 3


def test_a_file_name_stands_for_the_one_photo_that_has_it(make: Make) -> None:
    model = make()
    learn(model, "owl")
    model.learn_features("wren", photos("wren", 2), names=["a.jpg", "owl-1.jpg"])
    assert model.move("owl-0.jpg", to="wren").ids == ("p1",)
    with pytest.raises(InputError, match=r"2 photos are called 'owl-1.jpg': p2, p5; give ids instead"):
        model.remove("owl-1.jpg")
    with pytest.raises(InputError, match="neither the id of a photo, such as p17, nor the name of its file"):
        model.remove("owl-9.jpg")


def test_a_review_names_the_files_beside_the_ids(make: Make) -> None:
    model = make()
    learn(model, "owl", 6)
    learn(model, "wren", 6)
    wrong = photos("owl", 1, seed=5)
    model.learn_features("wren", wrong, names=["stray.jpg"], add=True)
    found = review(model)
    (one,) = found.of(["mixed-up"])
    assert (one.photo, one.name) == ("p13", "stray.jpg")
    assert one.beside_name == next(photo.name for photo in model.photos("owl") if photo.id == one.beside)
    (telling,) = found.pairs[0].photos
    assert (telling.name, telling.beside_name) == (one.name, one.beside_name)


def test_photos_in_files_are_named_by_them(tmp_path: Path) -> None:
    for number, color in enumerate(("red", "crimson")):
        folder = tmp_path / "photos" / "red"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), color).save(folder / f"{number}.png")
    with Recognizer.create(tmp_path / "model", views=1) as colors:
        colors.learn_many(tmp_path / "photos")
        colors.learn("blue", Image.new("RGB", (64, 64), "blue"))
        colors.correct(Image.open(tmp_path / "photos" / "red" / "1.png"), "blue")
        assert names(colors, "red") == ["0.png", "1.png"]
        assert names(colors, "blue") == [None, "1.png"]
    assert not files_with(tmp_path / "model", b"photos/red")

"""Where an export may go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from models import photos

from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer, import_file


@pytest.fixture
def model(make: Callable[..., Recognizer]) -> Recognizer:
    model = make(base=("ani", "owl"))
    model.learn_features("wren", photos("wren"))
    return model


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}


@pytest.mark.parametrize("name", ["classes.sqlite", "model.toml", "birds.fiveshot"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_model_is_not_exported_into_itself(model: Recognizer, name: str, overwrite: bool) -> None:
    before = content(model.path)
    with pytest.raises(InputError, match=rf"{name} lies inside the model .*/model, .*name a file outside of it"):
        model.export(model.path / name, overwrite=overwrite)
    assert content(model.path) == before


def test_no_link_leads_into_a_model(model: Recognizer, make: Callable[..., Recognizer], tmp_path: Path) -> None:
    other = make("other")
    (tmp_path / "folder").symlink_to(model.path)
    (tmp_path / "file").symlink_to(model.path / "classes.sqlite")
    (model.path / "deep").mkdir()
    (model.path / "out").symlink_to(tmp_path / "outside")
    for target in (
        "folder/new",
        "folder/deep/new",
        "file",
        "model/../model/new",
        "other/classes.sqlite",
        "model/out",
    ):
        with pytest.raises(InputError, match="lies inside the model"):
            model.export(tmp_path / target, overwrite=True)
    (model.path / "out").unlink()
    (model.path / "deep").rmdir()
    assert model.check() == other.check() == []


def test_only_an_earlier_export_is_replaced(model: Recognizer, tmp_path: Path) -> None:
    photo, base = tmp_path / "keep.jpg", tmp_path / "base.safetensors"
    photo.write_bytes(b"\xff\xd8\xff a photo")
    shutil.copy(next(model.path.glob("base-*")), base)
    for taken in (photo, base):
        before = taken.read_bytes()
        with pytest.raises(StorageError, match=rf"{taken.name} exists already and is not an earlier.*\(--force\)"):
            model.export(taken)
        assert taken.read_bytes() == before
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="folder exists already and is not a file; choose another name"):
        model.export(tmp_path / "folder", overwrite=True)
    assert model.export(photo, overwrite=True).read_bytes() == model.export(tmp_path / "new").read_bytes()


def test_an_export_every_night_takes_the_place_of_the_last(model: Recognizer, tmp_path: Path) -> None:
    first = model.export(tmp_path / "nightly", photos=True).read_bytes()
    model.learn_features("rook", photos("rook"))
    assert model.export(tmp_path / "nightly").read_bytes() != first
    with import_file(tmp_path / "nightly", tmp_path / "there") as there:
        assert there.snapshot.classes == ("ani", "owl", "rook", "wren")

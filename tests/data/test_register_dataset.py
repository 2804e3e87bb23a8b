"""Registering a dataset: what it takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fiveshot.data import (
    DatasetSpec,
    ImageDataset,
    dataset_specs,
    fetch,
    open_dataset,
    open_images,
    register_dataset,
    registry,
    unregister_dataset,
)
from fiveshot.data._official import read_cub200
from fiveshot.errors import FiveshotError, InputError


def read(path: Path) -> ImageDataset | None:
    return open_images(path / "pictures", seed=0) if (path / "pictures").is_dir() else None


def spec(name: str = "garden", **changes: object) -> DatasetSpec:
    values = {"title": "My garden", "classes": 2, "train_count": 2, "test_count": 2, "reader": read}
    return DatasetSpec(name, **{**values, "layout_help": "Expected pictures/.", **changes})


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def test_a_registered_dataset_is_opened_by_name(make_files) -> None:
    register_dataset(spec())
    root = make_files([f"pictures/{split}/{name}/1.jpg" for split in ("train", "test") for name in "ab"])
    found = open_dataset("garden", root, seed=0)
    assert (found.name, found.class_names, found.differences) == ("garden", ("a", "b"), ())
    assert list(dataset_specs())[-1] == "garden"
    with pytest.raises(InputError, match=r"no My garden in .*Expected pictures/\."):
        open_dataset("garden", root / "pictures" / "train" / "a", seed=0)
    with pytest.raises(FiveshotError, match="My garden cannot be downloaded"):
        fetch("garden", root)
    unregister_dataset("garden")
    with pytest.raises(InputError, match="no dataset 'garden'"):
        open_dataset("garden", root, seed=0)


def test_the_same_again_replaces_it_and_another_is_refused() -> None:
    register_dataset(spec())
    register_dataset(spec(classes=3))
    assert dataset_specs()["garden"].classes == 3
    with pytest.raises(InputError, match=r"the name 'garden' is taken by a dataset of .*test_register_dataset"):
        register_dataset(spec(reader=read_cub200))
    for reader in (read, read_cub200):
        with pytest.raises(InputError, match=r"the name 'cub200' is taken by a dataset of .*\.data\._official"):
            register_dataset(spec("cub200", reader=reader))
    assert dataset_specs()["cub200"].classes == 200


@pytest.mark.parametrize("name", ["", "my garden", "a/b", "..", "-x"])
def test_a_name_must_be_able_to_name_a_folder(name: str) -> None:
    with pytest.raises(InputError, match="is not a valid name for a dataset; use letters, digits"):
        register_dataset(spec(name))


def test_only_specifications_and_registered_names_are_taken() -> None:
    with pytest.raises(InputError, match="register_dataset needs a DatasetSpec, not 'garden'"):
        register_dataset("garden")
    with pytest.raises(InputError, match="'cub200' is not a registered dataset; built-in datasets cannot"):
        unregister_dataset("cub200")

from __future__ import annotations

import subprocess
import sys

import pytest

from fiveshot.data import _official as official
from fiveshot.data.registry import DatasetSpec, dataset_specs, open_dataset, package_specs
from fiveshot.errors import InputError

FLOWERS = DatasetSpec(
    "flowers", "Flowers", classes=2, train_count=2, test_count=2, reader=lambda path: None, layout_help="Plant."
)


def test_the_official_counts_are_those_of_the_papers():
    counts = {s.name: (s.classes, s.train_count, s.test_count) for s in dataset_specs().values()}
    assert counts == {
        "cub200": (200, 5994, 5794),
        "cars": (196, 8144, 8041),
        "aircraft": (100, 6667, 3333),
        "cifar100": (100, 50_000, 10_000),
        "miniimagenet": (100, 50_000, 10_000),
        "imagenet-r": (200, 24_000, 6_000),
    }


def test_a_dataset_of_the_package_is_found_by_standing_there(make_files, monkeypatch):
    monkeypatch.setattr(official, "FLOWERS", FLOWERS, raising=False)
    package_specs.cache_clear()
    try:
        root = make_files(["train/a/1.jpg", "train/b/1.jpg", "test/a/1.jpg", "test/b/1.jpg"])
        dataset = open_dataset("flowers", root, seed=0)
        assert (dataset.name, dataset.differences) == ("flowers", ())
    finally:
        package_specs.cache_clear()


def test_an_unknown_name_suggests_a_known_one(tmp_path):
    with pytest.raises(InputError, match="no dataset 'cub-200'; did you mean 'cub200'"):
        open_dataset("cub-200", tmp_path, seed=0)


def test_an_absent_dataset_says_how_to_get_it_and_what_is_expected(tmp_path):
    with pytest.raises(InputError, match=r"no CUB-200-2011 in .*fiveshot data fetch cub200.*images\.txt"):
        open_dataset("cub200", tmp_path, seed=0)
    with pytest.raises(InputError, match=r"no such folder: .*none.*fiveshot data fetch cifar100"):
        open_dataset("cifar100", tmp_path / "none", seed=0)
    with pytest.raises(InputError, match=r"no Stanford Cars in .* is dead.*Kaggle.*devkit/") as caught:
        open_dataset("cars", tmp_path, seed=0)
    assert "fetch" not in str(caught.value)


def test_a_directory_of_several_datasets_is_not_taken_for_classes(make_files):
    root = make_files(["cub200/train/a/1.jpg", "cub200/test/a/1.jpg", "holidays/beach/1.jpg"])
    assert open_dataset("cub200", root, seed=0).class_names == ("a",)
    with pytest.raises(InputError, match="no FGVC-Aircraft in"):
        open_dataset("aircraft", root, seed=0)


def test_class_folders_without_splits_are_taken_when_their_number_is_right(make_files):
    root = make_files([f"{c:03d}/{i}.jpg" for c in range(100) for i in range(2)])
    dataset = open_dataset("aircraft", root, seed=0, holdout=0.5)
    assert (len(dataset.train), len(dataset.test)) == (100, 100)


def test_importing_the_package_stays_light():
    heavy = "{'torch', 'PIL', 'torchvision', 'scipy', 'timm'}"
    code = f"import sys, fiveshot.data.registry as r; r.dataset_specs(); print({heavy} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"

"""A dataset from a file of the user's own, wherever datasets are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from fiveshot.data import dataset_specs, open_dataset
from fiveshot.errors import InputError
from fiveshot.plugins import name_plugins

# One folder, the class in the name of the file: what the package does not read.
FLAT = """
from pathlib import Path

import numpy as np

from fiveshot.data import DatasetSpec, FileSource, ImageDataset, ImageSplit, register_dataset

def read(path):
    files = sorted(path.glob("*.png"))
    if not files:
        return None
    names = sorted({file.name.split("-")[0] for file in files})
    def split(use):
        chosen = [file for file in files if use in file.name]
        labels = np.array([names.index(file.name.split("-")[0]) for file in chosen])
        return ImageSplit(tuple(FileSource(file, file.name) for file in chosen), labels)
    return ImageDataset("flat", tuple(names), split("learn"), split("test"))

register_dataset(DatasetSpec("flat", "Flat photos", 3, 6, 3, read, "Expected <class>-learn-1.png."))
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    (tmp_path / "flat_photos.py").write_text(FLAT)
    return tmp_path / "flat_photos.py"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for shade, name in enumerate(("ant", "bee", "cat")):
        for use in ("learn-1", "learn-2", "test-1"):
            Image.new("RGB", (8, 8), (80 * shade, 10, 10)).save(folder / f"{name}-{use}.png")
    return folder


def test_a_name_is_found_in_the_environment(plugin: Path, photos: Path) -> None:
    with pytest.raises(InputError, match=r"no dataset 'flat'.* --plugin or FIVESHOT_PLUGINS"):
        open_dataset("flat", photos, seed=0)
    name_plugins([plugin])
    found = open_dataset("flat", photos, seed=0)
    assert (found.name, found.class_names, found.differences) == ("flat", ("ant", "bee", "cat"), ())
    assert found.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert "flat" in dataset_specs()


def test_the_command_line_lists_and_extracts_it(
    plugin: Path, photos: Path, command: Callable, tmp_path: Path
) -> None:
    out = tmp_path / "flat.safetensors"
    arguments = ("extract", "--dataset", "flat", "--root", photos, "--out", out, "--no-cache")
    assert "flat" not in command("data", "list").stdout
    assert "no dataset 'flat'" in str(command(*arguments).exception)
    listed = command("--plugin", plugin, "data", "list").stdout
    assert "flat       Flat photos: 3 classes, 6 training and 3 test images\n" in listed
    found = command("--plugin", plugin, *arguments, "--quick", "--device", "cpu")
    assert found.exit_code == 0, found.exception
    assert f"{out}: 6 training and 3 test vectors" in found.stdout

"""Stanford Cars."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fiveshot.data.dataset import ImageDataset, ImageSplit
from fiveshot.data.folders import Tree, open_tree, tree_with
from fiveshot.data.registry import DatasetSpec
from fiveshot.data.sources import StoredSource
from fiveshot.errors import InputError

ONE_FILE = "cars_annos.mat"
TRAIN_LABELS = "cars_train_annos.mat"
TEST_LABELS = "cars_test_annos_withlabels.mat"
LAYOUT_HELP = (
    "The address of Stanford Cars is dead; get the images from one of the mirrors "
    "named 'Stanford Cars Dataset' on Kaggle, and the development kit (cars_meta.mat, cars_train_annos.mat, "
    "cars_test_annos_withlabels.mat) from where the mirror points to. Expected cars_train/*.jpg, cars_test/*.jpg "
    "and devkit/ with those three files; or cars_annos.mat beside car_ims/*.jpg; or train/<class>/*.jpg and "
    "test/<class>/*.jpg."
)
Labeled = tuple[StoredSource, int]  # an image and its class, counted from 1


def read_cars(path: Path) -> ImageDataset | None:
    """Read the official annotations: cars_annos.mat, or the development kit beside two image folders."""
    one, kit = tree_with(path, ONE_FILE), tree_with(path, TRAIN_LABELS)
    # Mirrors add cars_annos.mat without the images that it lists.
    if one is not None and (kit is None or any(name.startswith("car_ims/") for name in one.files)):
        return _from_one_file(one)
    return None if kit is None else _from_devkit(kit, open_tree(path))


def _from_one_file(tree: Tree) -> ImageDataset:
    rows = _column(tree, ONE_FILE, "annotations", ("relative_im_path", "class", "test"))
    train, test = (
        [(tree.source(str(row["relative_im_path"])), int(row["class"])) for row in rows if row["test"] == flag]
        for flag in (0, 1)
    )
    return _dataset(tree, _column(tree, ONE_FILE, "class_names"), train, test)


def _from_devkit(kit: Tree, tree: Tree) -> ImageDataset:
    labels = next((name for name in tree.files if PurePosixPath(name).name == TEST_LABELS), None)
    if labels is None:
        raise InputError(
            f"{tree.where} has no {TEST_LABELS}, and cars_test_annos.mat comes without the classes",
            hint=LAYOUT_HELP,
        )
    train = _listed(_column(kit, TRAIN_LABELS, "annotations", ("fname", "class")), tree, "cars_train")
    test = _listed(_column(tree, labels, "annotations", ("fname", "class")), tree, "cars_test")
    return _dataset(tree, _column(kit, "cars_meta.mat", "class_names"), train, test)


def _listed(rows: Any, tree: Tree, folder: str) -> list[Labeled]:
    # Wherever the folder is: mirrors hold cars_train/cars_train/*.jpg.
    paths = {PurePosixPath(name).parts[-2:]: source for name, source in tree.files.items()}
    images = []
    for row in rows:
        name = f"{folder}/{row['fname']}"
        source = paths.get((folder, str(row["fname"]))) or tree.source(name)
        images.append((replace(source, name=name), int(row["class"])))
    return images


def _column(tree: Tree, file: str, variable: str, fields: Sequence[str] = ()) -> Any:
    """Return a variable of a MATLAB file as an array, of records where fields are named."""
    from scipy.io import loadmat

    if file not in tree.files:
        raise InputError(f"{tree.where} has no {file}", hint=LAYOUT_HELP)
    content: Any = io.BytesIO(tree.files[file].read())
    try:
        values = np.atleast_1d(loadmat(content, squeeze_me=True)[variable])
    except Exception as error:  # the parser raises all kinds of errors on damaged files
        raise InputError(f"{tree.where / file} is not a MATLAB file with {variable!r} ({error})") from error
    if not set(fields) <= set(values.dtype.names or ()):
        raise InputError(f"{tree.where / file} has no {', '.join(fields)} in its {variable}")
    return values


def _dataset(tree: Tree, names: Any, train: list[Labeled], test: list[Labeled]) -> ImageDataset:
    classes = tuple(str(name) for name in names)
    outside = sorted({label for _, label in train + test} - set(range(1, len(classes) + 1)))
    if outside:
        raise InputError(f"the annotations in {tree.where} have classes without a name: {outside}")
    return ImageDataset("cars", classes, _split(train), _split(test))


def _split(images: list[Labeled]) -> ImageSplit:
    labels = np.array([label - 1 for _, label in images], dtype=np.int64)
    return ImageSplit(tuple(source for source, _ in images), labels)


SPEC = DatasetSpec(
    name="cars",
    title="Stanford Cars",
    classes=196,
    train_count=8144,
    test_count=8041,
    reader=read_cars,
    layout_help=LAYOUT_HELP,
)

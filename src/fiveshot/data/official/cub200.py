"""Caltech-UCSD Birds-200-2011."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from fiveshot.data.dataset import ImageDataset, ImageSplit
from fiveshot.data.folders import SPLITS, Tree, is_image, open_tree, tree_with
from fiveshot.data.registry import DatasetSpec, Download
from fiveshot.data.sources import StoredSource
from fiveshot.errors import InputError

TABLES = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")


def read_cub200(path: Path) -> ImageDataset | None:
    """Read the official text files; the images lie in images/, or in train/ and test/ in any image format.

    The images are listed in the order of their ids *as strings* (1, 10, 100, ...), which is how the
    published few-shot code lists them, and so decides which five of a class come first.
    """
    tree = tree_with(path, "images.txt")
    if tree is None or any(name not in tree.files for name in TABLES):
        return None
    files, labels, in_train, classes = (_table(tree, name) for name in TABLES)
    if not set(files) == set(labels) == set(in_train):
        raise InputError(f"the files {', '.join(TABLES[:3])} in {tree.where} do not list the same images")
    label_of = {class_id: label for label, class_id in enumerate(sorted(classes, key=int))}
    if not set(labels.values()) <= set(label_of):
        raise InputError(f"image_class_labels.txt in {tree.where} has classes that classes.txt does not")
    found = _images(path, tree)

    def split(flag: str) -> ImageSplit:
        ids = [image_id for image_id in sorted(files) if in_train[image_id] == flag]
        images = tuple(found.get(_key(files[i])) or tree.source(f"images/{files[i]}") for i in ids)
        return ImageSplit(images, np.array([label_of[labels[i]] for i in ids], dtype=np.int64))

    names = tuple(classes[class_id] for class_id in label_of)
    return ImageDataset("cub200", names, split("1"), split("0"))


def _table(tree: Tree, name: str) -> dict[str, str]:
    rows = (line.split(maxsplit=1) for line in tree.text(name).splitlines() if line.strip())
    try:
        return {key: value.strip() for key, value in rows}
    except ValueError:
        raise InputError(f"{tree.where / name} must have two columns, an id and a value") from None


def _images(path: Path, tables: Tree) -> dict[str, StoredSource]:
    """Return the images by class and stem: a re-encoded copy has other extensions than the lists."""
    official = {n: s for n, s in tables.files.items() if n.startswith("images/") and is_image(n)}
    if official:
        return {_key(name): source for name, source in official.items()}
    elsewhere = open_tree(path).files.items()
    return {_key(name): source for name, source in elsewhere if name.split("/")[0] in SPLITS and is_image(name)}


def _key(name: str) -> str:
    file = PurePosixPath(name)
    return f"{file.parent.name}/{file.stem}"


SPEC = DatasetSpec(
    name="cub200",
    title="CUB-200-2011",
    classes=200,
    train_count=5994,
    test_count=5794,
    reader=read_cub200,
    layout_help=(
        "Expected the official CUB_200_2011 folder (images/, images.txt, image_class_labels.txt, "
        "train_test_split.txt, classes.txt) or train/<class>/*.jpg and test/<class>/*.jpg."
    ),
    downloads=(
        Download(
            url="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            file="CUB_200_2011.tgz",
            md5="97eceeb196236b17998738112f37df78",
            size=1_150_585_339,
        ),
    ),
)

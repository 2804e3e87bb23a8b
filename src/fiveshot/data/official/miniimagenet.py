"""miniImageNet as few-shot class-incremental learning has it: 500 training and 100 test images of every class."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from fiveshot.data.dataset import ImageDataset, ImageSplit
from fiveshot.data.folders import Tree, tree_with
from fiveshot.data.registry import DatasetSpec
from fiveshot.errors import InputError

TRAIN, TEST = "split/train.csv", "split/test.csv"
COLUMNS = ("filename", "label")
LAYOUT_HELP = (
    "miniImageNet has no official address, and the split of few-shot learning is another one. Expected the folder "
    "that CEC links to (images/*.jpg with split/train.csv and split/test.csv of filename,label), or "
    "train/<synset>/*.jpg and test/<synset>/*.jpg as in the lists of Tao et al."
)


def read_miniimagenet(path: Path) -> ImageDataset | None:
    """Read CEC's layout; the classes are the synsets in their order, which is that of the official lists."""
    tree = tree_with(path, TRAIN)
    if tree is None:
        return None
    train, test = (_rows(tree, file) for file in (TRAIN, TEST))
    classes = tuple(sorted({label for _, label in train}))
    unknown = sorted({label for _, label in test} - set(classes))
    if unknown:
        raise InputError(f"{tree.where / TEST} has classes that {TRAIN} does not have: {', '.join(unknown[:8])}")
    return ImageDataset("miniimagenet", classes, _split(tree, train, classes), _split(tree, test, classes))


def _rows(tree: Tree, file: str) -> list[tuple[str, str]]:
    """Return file and class of each image that a table lists."""
    rows = list(csv.DictReader(tree.text(file).splitlines()))
    if not rows or any(not row.get(column) for row in rows for column in COLUMNS):
        raise InputError(f"{tree.where / file} must have the columns {' and '.join(COLUMNS)}", hint=LAYOUT_HELP)
    return [(row["filename"], row["label"]) for row in rows]


def _split(tree: Tree, rows: list[tuple[str, str]], classes: tuple[str, ...]) -> ImageSplit:
    label_of = {name: label for label, name in enumerate(classes)}
    # Named by class and file, as the official lists name them.
    images = tuple(replace(tree.source(f"images/{file}"), name=f"{label}/{file}") for file, label in rows)
    return ImageSplit(images, np.array([label_of[label] for _, label in rows], dtype=np.int64))


SPEC = DatasetSpec(
    name="miniimagenet",
    title="miniImageNet",
    classes=100,
    train_count=50_000,
    test_count=10_000,
    reader=read_miniimagenet,
    layout_help=LAYOUT_HELP,
)

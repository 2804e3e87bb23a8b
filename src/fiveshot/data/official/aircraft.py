"""FGVC-Aircraft, by variant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fiveshot.data.dataset import ImageDataset, ImageSplit
from fiveshot.data.folders import Tree, tree_with
from fiveshot.data.registry import DatasetSpec, Download
from fiveshot.errors import InputError, some_of

FOLDER = "fgvc-aircraft-2013b"
VARIANTS = "data/variants.txt"
LAYOUT_HELP = (
    f"Expected the official folder {FOLDER}/ with data/images/*.jpg, data/variants.txt and "
    "data/images_variant_{trainval,test}.txt; or train/<class>/*.jpg and test/<class>/*.jpg."
)


def read_aircraft(path: Path) -> ImageDataset | None:
    """Read the official text files: 100 variants, trainval against test."""
    tree = tree_with(path, VARIANTS)
    if tree is None:
        return None
    classes = tuple(_lines(tree, VARIANTS))
    label_of = {name: label for label, name in enumerate(classes)}
    train, test = (_split(tree, part, label_of) for part in ("trainval", "test"))
    return ImageDataset("aircraft", classes, train, test)


def _lines(tree: Tree, file: str) -> list[str]:
    if file not in tree.files:
        raise InputError(f"{tree.where} has no {file}", hint=LAYOUT_HELP)
    return [line.strip() for line in tree.text(file).splitlines() if line.strip()]


def _split(tree: Tree, part: str, label_of: dict[str, int]) -> ImageSplit:
    """Read lines such as ``0034309 Boeing 707-320``."""
    file = f"data/images_variant_{part}.txt"
    rows = [line.partition(" ") for line in _lines(tree, file)]
    strange = sorted({variant for _, _, variant in rows} - set(label_of))
    if strange:
        message = f"{tree.where / file} has variants that {VARIANTS} does not have: {some_of(strange)}"
        raise InputError(message, hint=LAYOUT_HELP)
    sources = (tree.source(f"data/images/{image}.jpg") for image, _, _ in rows)
    images = tuple(replace(source, name=source.name.removeprefix("data/")) for source in sources)
    return ImageSplit(images, np.array([label_of[variant] for _, _, variant in rows], dtype=np.int64))


SPEC = DatasetSpec(
    name="aircraft",
    title="FGVC-Aircraft",
    classes=100,
    train_count=6667,
    test_count=3333,
    reader=read_aircraft,
    layout_help=LAYOUT_HELP,
    downloads=(
        Download(
            url=f"https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/{FOLDER}.tar.gz",
            file=f"{FOLDER}.tar.gz",
            size=2_753_340_328,
        ),
    ),
)

"""FGVC-Aircraft, by variant."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fiveshot.data.dataset import ImageDataset, ImageSplit
from fiveshot.data.source import FileSource
from fiveshot.data.spec import DatasetSpec, Download
from fiveshot.errors import InputError

FOLDER = "fgvc-aircraft-2013b"


def read_aircraft(path: Path) -> ImageDataset | None:
    """Read the official folder through torchvision: 100 variants, trainval against test."""
    parent = path.parent if path.name == FOLDER else path
    if not (parent / FOLDER / "data" / "variants.txt").is_file():
        return None
    try:
        from torchvision.datasets import FGVCAircraft
    except ImportError as error:
        raise InputError("FGVC-Aircraft needs torchvision: pip install 'fiveshot[torch]'") from error

    def split(name: str) -> tuple[ImageSplit, tuple[str, ...]]:
        try:
            listed = FGVCAircraft(parent, split=name, annotation_level="variant")
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            raise InputError(f"{parent / FOLDER} is damaged ({error!r}). {LAYOUT_HELP}") from error
        files = [Path(file) for file in listed._image_files]
        images = tuple(FileSource(file, f"images/{file.name}") for file in files)
        return ImageSplit(images, np.array(listed._labels, dtype=np.int64)), tuple(listed.classes)

    train, classes = split("trainval")
    test, _ = split("test")
    return ImageDataset("aircraft", classes, train, test)


LAYOUT_HELP = (
    f"Expected the official folder {FOLDER}/ with data/images/*.jpg, data/variants.txt and "
    "data/images_variant_{trainval,test}.txt; or train/<class>/*.jpg and test/<class>/*.jpg."
)

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

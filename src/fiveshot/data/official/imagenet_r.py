"""ImageNet-R: 200 classes of ImageNet in drawings, paintings, toys and other renditions."""

from __future__ import annotations

from pathlib import Path

from fiveshot.data.dataset import ImageDataset
from fiveshot.data.folders import open_images
from fiveshot.data.registry import DatasetSpec

FOLDER = "imagenet-r"


def read_imagenet_r(path: Path) -> ImageDataset | None:
    """Read the official folder, which has no split: a fifth of every class, drawn with seed 0, is held out.

    Copies that are split already (``train/``, ``test/``) are read as any class folders are.
    """
    folder = path / FOLDER
    return open_images(folder, seed=0) if folder.is_dir() else None


SPEC = DatasetSpec(
    name="imagenet-r",
    title="ImageNet-R",
    classes=200,
    train_count=24_000,
    test_count=6_000,
    reader=read_imagenet_r,
    layout_help=(
        "Its authors say at https://github.com/hendrycks/imagenet-r where to get imagenet-r.tar. "
        f"Expected its folder {FOLDER}/<synset>/*.jpg, of which a fifth is held out for testing; or "
        "train/<synset>/*.jpg and test/<synset>/*.jpg of a copy that others split, to compare with them."
    ),
)

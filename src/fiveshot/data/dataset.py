"""Labeled images in a training and a test split, and which of them cannot be used."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fiveshot.data.sources import ImageSource
from fiveshot.errors import InputError, counted
from fiveshot.values import BadImage

Labels = NDArray[np.int64]
Item = TypeVar("Item")
SHOWN = 5  # the bad images named in an error; the rest are counted


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """Images in dataset order with their labels.

    Parameters
    ----------
    images : tuple of ImageSource
        The images.
    labels : ndarray of shape (n_images,)
        Their classes, as indices into the dataset's ``class_names``.

    Raises
    ------
    InputError
        When the labels do not belong to the images.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageSplit
    >>> pixels = np.zeros((3, 32, 32, 3), np.uint8)
    >>> images = tuple(ArraySource(array, name) for array, name in zip(pixels, ("a", "b", "c")))
    >>> part = ImageSplit(images, np.array([0, 0, 1])).select([2, 0])
    >>> part.names, part.labels.tolist()
    (('c', 'a'), [1, 0])
    """

    images: tuple[ImageSource, ...]
    labels: Labels  # (n_images,)

    def __post_init__(self) -> None:
        """Refuse labels that do not belong to the images."""
        if self.labels.shape != (len(self.images),):
            raise InputError(f"{len(self.images)} images, but labels of shape {self.labels.shape}")
        object.__setattr__(self, "labels", self.labels.astype(np.int64))

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    @classmethod
    def of(cls, images: Iterable[tuple[ImageSource, int]]) -> ImageSplit:
        """Return the split of images that come with their labels."""
        pairs = list(images)
        return cls(tuple(image for image, _ in pairs), np.array([label for _, label in pairs], dtype=np.int64))

    @property
    def names(self) -> tuple[str, ...]:
        """The images' relative names, in order."""
        return tuple(image.name for image in self.images)

    def select(self, indices: NDArray[np.int64] | Sequence[int]) -> ImageSplit:
        """Return the images at these positions, in the order given."""
        positions = np.asarray(indices, dtype=np.int64)
        return ImageSplit(tuple(self.images[i] for i in positions), self.labels[positions])


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """A named dataset.

    Parameters
    ----------
    name : str
        Its name.
    class_names : tuple of str
        Names of the classes, by label.
    train, test : ImageSplit
        Its images.
    differences : tuple of str
        Differences from what was expected, in words.

    Raises
    ------
    InputError
        When a label has no class name.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> night, day = (ArraySource(np.full((32, 32, 3), gray, np.uint8), f"{gray}") for gray in (9, 250))
    >>> train = ImageSplit((night, day), np.array([0, 1]))
    >>> test = ImageSplit((day,), np.array([1]))
    >>> skies = ImageDataset("skies", ("night", "day"), train, test)
    >>> skies.noting("no night in the test split").differences
    ('no night in the test split',)
    """

    name: str
    class_names: tuple[str, ...]
    train: ImageSplit
    test: ImageSplit
    differences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse labels without a class name."""
        for split in (self.train, self.test):
            if len(split) and not 0 <= split.labels.min() <= split.labels.max() < len(self.class_names):
                raise InputError(
                    f"labels of {self.name} run from {split.labels.min()} to {split.labels.max()}, "
                    f"but it has {len(self.class_names)} class names"
                )

    def noting(self, *differences: str) -> ImageDataset:
        """Return the dataset with more differences noted."""
        return replace(self, differences=self.differences + differences)


def restrict(dataset: ImageDataset, classes: Sequence[int]) -> ImageDataset:
    """Return the dataset with these classes only, labeled 0, 1, ... in the order given.

    Parameters
    ----------
    dataset : ImageDataset
        The dataset.
    classes : sequence of int
        Labels of the classes to keep.

    Returns
    -------
    ImageDataset
        The part of it.

    Raises
    ------
    InputError
        When a class is named twice, or is not there.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fiveshot.data import FileSource
    >>> images = tuple(FileSource(Path(name), name) for name in "abc")
    >>> split = ImageSplit(images, np.array([0, 1, 2]))
    >>> part = restrict(ImageDataset("letters", ("A", "B", "C"), split, split), [2, 0])
    >>> part.class_names, part.train.names, part.train.labels.tolist()
    (('C', 'A'), ('a', 'c'), [1, 0])
    """
    if len(set(classes)) != len(classes):
        raise InputError(f"classes {list(classes)} contain a class twice")
    if not all(0 <= label < len(dataset.class_names) for label in classes):
        raise InputError(f"classes {list(classes)} must lie between 0 and {len(dataset.class_names) - 1}")
    renumbered = np.full(len(dataset.class_names), -1, dtype=np.int64)
    renumbered[list(classes)] = np.arange(len(classes))

    def part(split: ImageSplit) -> ImageSplit:
        labels = renumbered[split.labels]
        kept = np.flatnonzero(labels >= 0)
        return ImageSplit(split.select(kept).images, labels[kept])

    names = tuple(dataset.class_names[label] for label in classes)
    return replace(dataset, class_names=names, train=part(dataset.train), test=part(dataset.test))


def hold_out(
    by_class: Mapping[str, Sequence[Item]], *, holdout: float, seed: int
) -> tuple[dict[str, list[Item]], dict[str, list[Item]]]:
    """Split every class's items, in order, into training and test items.

    A class of two or more items gives at least one to each side; a single item stays in training. The draw
    of a class depends on the seed and its own name and items only, so adding a class changes no other.

    >>> hold_out({"cat": [1, 2, 3, 4], "dog": [5]}, holdout=0.25, seed=0)
    ({'cat': [2, 3, 4], 'dog': [5]}, {'cat': [1]})
    """
    if not 0 < holdout < 1:
        raise InputError(f"holdout={holdout} must lie between 0 and 1", hint="0.2, for example")
    if seed < 0:
        raise InputError(f"seed={seed} must not be negative")
    train: dict[str, list[Item]] = {}
    test: dict[str, list[Item]] = {}
    for name, items in by_class.items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode("utf-8", "surrogateescape"))])
        count = min(max(1, round(holdout * len(items))), len(items) - 1)
        held = set(rng.permutation(len(items))[:count].tolist())
        train[name] = [item for i, item in enumerate(items) if i not in held]
        if held:
            test[name] = [item for i, item in enumerate(items) if i in held]
    return train, test


def bad_images_error(bad: Sequence[BadImage], total: int) -> InputError:
    """Return one error that lists the first bad images, counts all of them and says what to do.

    Parameters
    ----------
    bad : sequence of BadImage
        The images that cannot be used.
    total : int
        How many images there are in all.

    Returns
    -------
    InputError
        The error to raise, with the code ``bad_images``.

    Examples
    --------
    >>> print(bad_images_error([BadImage("cat/1.jpg", "the file is empty")], total=8))
    1 of 8 images cannot be used:
      cat/1.jpg: the file is empty
    repair or remove them, or leave them out with --skip-bad
    """
    head = f"{len(bad)} of {counted(total, 'image')} cannot be used:"
    way_out = "repair or remove them, or leave them out with --skip-bad"
    return InputError("\n".join([head, *bad_image_lines(bad), way_out]), code="bad_images")


def bad_image_lines(bad: Sequence[BadImage], shown: int = SHOWN) -> list[str]:
    """Return a line for each of the first bad images, and a line with the number of the others.

    >>> bad_image_lines([BadImage(f"cat/{number}.jpg", "the file is empty") for number in range(3)], shown=1)
    ['  cat/0.jpg: the file is empty', '  and 2 more']
    """
    lines = [f"  {image.name}: {image.reason}".replace("\n", "\\n") for image in bad[:shown]]
    return [*lines, f"  and {len(bad) - shown:,} more"] if len(bad) > shown else lines

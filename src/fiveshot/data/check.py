"""Find the images that cannot be used before hours of work depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fiveshot.data.dataset import ImageDataset
from fiveshot.data.decode import MAX_PIXELS, decode
from fiveshot.data.source import ImageError, ImageSource
from fiveshot.errors import InputError

SHOWN = 5  # the bad images named in an error; the rest are counted


@dataclass(frozen=True)
class BadImage:
    """An image that cannot be used, and why."""

    name: str
    reason: str


def bad_images_error(bad: Sequence[BadImage], total: int) -> InputError:
    """Return the one error that lists the first bad images, counts them all and offers the way out.

    >>> print(bad_images_error([BadImage("cat/1.jpg", "the file is empty")], total=8))
    1 of 8 images cannot be used:
      cat/1.jpg: the file is empty
    repair or remove them, or leave them out with --skip-bad
    """
    lines = [f"  {image.name}: {image.reason}" for image in bad[:SHOWN]]
    if len(bad) > SHOWN:
        lines.append(f"  and {len(bad) - SHOWN} more")
    head = f"{len(bad)} of {total} images cannot be used:"
    return InputError("\n".join([head, *lines, "repair or remove them, or leave them out with --skip-bad"]))


def check_images(
    sources: Iterable[ImageSource], *, skip_bad: bool, max_pixels: int = MAX_PIXELS
) -> tuple[NDArray[np.int64], tuple[BadImage, ...]]:
    """Decode every image and return the positions of the good ones and the list of bad ones.

    Unless ``skip_bad``, any bad image raises :func:`bad_images_error`.
    """
    good: list[int] = []
    bad: list[BadImage] = []
    for position, source in enumerate(sources):
        try:
            decode(source, max_pixels=max_pixels)
        except ImageError as error:
            bad.append(BadImage(error.name, error.reason))
        else:
            good.append(position)
    if bad and not skip_bad:
        raise bad_images_error(bad, len(good) + len(bad))
    return np.array(good, dtype=np.int64), tuple(bad)


def check_dataset(
    dataset: ImageDataset, *, skip_bad: bool, max_pixels: int = MAX_PIXELS
) -> tuple[ImageDataset, tuple[BadImage, ...]]:
    """Check both splits; with ``skip_bad`` return the dataset without its bad images, noting how many."""
    n_train = len(dataset.train)
    images = dataset.train.images + dataset.test.images
    good, bad = check_images(images, skip_bad=skip_bad, max_pixels=max_pixels)
    if not bad:
        return dataset, ()
    train = dataset.train.select(good[good < n_train])
    test = dataset.test.select(good[good >= n_train] - n_train)
    gone = sorted(set(dataset.train.labels.tolist()) - set(train.labels.tolist()))
    if gone:
        names = ", ".join(dataset.class_names[label] for label in gone[:SHOWN])
        raise InputError(f"{len(gone)} classes have no usable training image: {names}; repair some of them")
    kept = replace(dataset, train=train, test=test)
    return kept.noting(f"left out {len(bad)} bad images of {len(images)}"), bad

"""Find the images that cannot be used before hours of work depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fiveshot.data.dataset import ImageDataset
from fiveshot.data.decode import MAX_PIXELS, decode
from fiveshot.data.listing import some_of
from fiveshot.data.source import ImageError, ImageSource
from fiveshot.errors import InputError, counted

SHOWN = 5  # the bad images named in an error; the rest are counted


@dataclass(frozen=True)
class BadImage:
    """An image that cannot be used, and why.

    >>> BadImage("cat/1.jpg", "the file is empty").reason
    'the file is empty'
    """

    name: str
    reason: str


def bad_images_error(bad: Sequence[BadImage], total: int) -> InputError:
    """Return the one error that lists the first bad images, counts them all and offers the way out.

    >>> print(bad_images_error([BadImage("cat/1.jpg", "the file is empty")], total=8))
    1 of 8 images cannot be used:
      cat/1.jpg: the file is empty
    repair or remove them, or leave them out with --skip-bad
    """
    head = f"{len(bad)} of {counted(total, 'image')} cannot be used:"
    return InputError(
        "\n".join([head, *bad_lines(bad), "repair or remove them, or leave them out with --skip-bad"])
    )


def bad_lines(bad: Sequence[BadImage], shown: int = SHOWN) -> list[str]:
    """Return a line for each of the first bad images, and one that counts the rest.

    >>> bad_lines([BadImage(f"cat/{number}.jpg", "the file is empty") for number in range(3)], shown=1)
    ['  cat/0.jpg: the file is empty', '  and 2 more']
    """
    lines = [f"  {image.name}: {image.reason}" for image in bad[:shown]]
    return [*lines, f"  and {len(bad) - shown:,} more"] if len(bad) > shown else lines


def check_images(
    sources: Iterable[ImageSource], *, skip_bad: bool, max_pixels: int = MAX_PIXELS
) -> tuple[NDArray[np.int64], tuple[BadImage, ...]]:
    """Decode every image and return the positions of the good ones, and the bad ones.

    Unless ``skip_bad``, any bad image raises ``bad_images_error``. One of more than ``max_pixels`` is bad.

    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, check_images
    >>> thumbnail, poster = (ArraySource(np.zeros((side, side, 3), np.uint8), f"{side}.png") for side in (8, 80))
    >>> good, bad = check_images([thumbnail, poster], skip_bad=True, max_pixels=1000)
    >>> good.tolist(), bad
    ([0], (BadImage(name='80.png', reason='too large: 80 x 80, the limit is 1,000 pixels'),))
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
    """Check both splits and return the dataset with the list of its bad images.

    With ``skip_bad`` they are left out, and the dataset notes how many; otherwise any raises an error.

    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit, check_dataset
    >>> images = tuple(ArraySource(np.zeros((side, side, 3), np.uint8), f"{side}.png") for side in (8, 80))
    >>> split = ImageSplit(images, np.array([0, 0]))
    >>> kept, bad = check_dataset(ImageDataset("dark", ("night",), split, split), skip_bad=True, max_pixels=1000)
    >>> len(kept.train), len(kept.test), kept.differences
    (1, 1, ('left out 2 bad images of 4',))
    """
    n_train = len(dataset.train)
    images = dataset.train.images + dataset.test.images
    good, bad = check_images(images, skip_bad=skip_bad, max_pixels=max_pixels)
    if not bad:
        return dataset, ()
    train = dataset.train.select(good[good < n_train])
    test = dataset.test.select(good[good >= n_train] - n_train)
    gone = sorted(set(dataset.train.labels.tolist()) - set(train.labels.tolist()))
    if gone:
        names = some_of([dataset.class_names[label] for label in gone])
        raise InputError(
            f"{counted(len(gone), 'class')} without a usable training image: {names}; repair some of them"
        )
    kept = replace(dataset, train=train, test=test)
    return kept.noting(f"left out {counted(len(bad), 'bad image')} of {len(images)}"), bad

"""Find the images of a dataset that cannot be used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fiveshot.data.dataset import ImageDataset
from fiveshot.data.decoder_pool import decoders
from fiveshot.data.decoding import MAX_PIXELS, nothing
from fiveshot.data.sources import ImageSource
from fiveshot.errors import InputError, counted, some_of

SHOWN = 5  # the bad images named in an error; the rest are counted


@dataclass(frozen=True)
class BadImage:
    """An image that cannot be used, and why.

    Parameters
    ----------
    name : str
        The image.
    reason : str
        Why it cannot be used.
    code : str
        The same in one word, for programs.

    Examples
    --------
    >>> BadImage("cat/1.jpg", "the file is empty").reason
    'the file is empty'
    """

    name: str
    reason: str
    code: str = field(default="bad_image", compare=False, repr=False)


def bad_images_error(bad: Sequence[BadImage], total: int) -> InputError:
    """Return the one error that lists the first bad images, counts them all and offers the way out.

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
    return InputError("\n".join([head, *bad_lines(bad), way_out]), code="bad_images")


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
    """Decode every image and tell the good ones from the bad ones.

    Parameters
    ----------
    sources : iterable of ImageSource
        The images.
    skip_bad : bool
        Whether bad images are only listed; otherwise any is an error.
    max_pixels : int
        The most pixels that a good image may have.

    Returns
    -------
    good : ndarray of int64
        Positions of the good images.
    bad : tuple of BadImage
        The others.

    Raises
    ------
    InputError
        When there are bad images, unless ``skip_bad``.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, check_images
    >>> thumbnail, poster = (ArraySource(np.zeros((side, side, 3), np.uint8), f"{side}.png") for side in (8, 80))
    >>> good, bad = check_images([thumbnail, poster], skip_bad=True, max_pixels=1000)
    >>> good.tolist(), bad
    ([0], (BadImage(name='80.png', reason='too large: 80 x 80, the limit is 1,000 pixels'),))
    """
    good: list[int] = []
    bad: list[BadImage] = []
    for position, found in enumerate(decoders().map(sources, nothing, max_pixels=max_pixels)):
        if found.error is not None:
            bad.append(BadImage(found.error.name, found.error.reason, found.error.code))
        else:
            good.append(position)
    if bad and not skip_bad:
        raise bad_images_error(bad, len(good) + len(bad))
    return np.array(good, dtype=np.int64), tuple(bad)


def check_dataset(
    dataset: ImageDataset, *, skip_bad: bool, max_pixels: int = MAX_PIXELS
) -> tuple[ImageDataset, tuple[BadImage, ...]]:
    """Check both splits of a dataset.

    Parameters
    ----------
    dataset : ImageDataset
        The dataset.
    skip_bad : bool
        Whether bad images are left out, and the dataset notes how many; otherwise any is an error.
    max_pixels : int
        The most pixels that a good image may have.

    Returns
    -------
    dataset : ImageDataset
        The dataset without its bad images.
    bad : tuple of BadImage
        These images.

    Raises
    ------
    InputError
        When there are bad images, unless ``skip_bad``; or when a class has no good training image.

    Examples
    --------
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
            f"{counted(len(gone), 'class')} without a usable training image: {names}",
            hint="repair some of them",
        )
    kept = replace(dataset, train=train, test=test)
    return kept.noting(f"left out {counted(len(bad), 'bad image')} of {len(images)}"), bad

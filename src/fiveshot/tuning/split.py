"""Which base images train and which are held out, and which base classes are played as new ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Fold:
    """Rows of one run: those trained on, held-out ones of the same classes, and those of classes played as new.

    >>> import numpy as np
    >>> from fiveshot.tuning import Fold
    >>> fold = Fold.of(train=np.array([0, 1, 3]), held_out=np.array([2]))
    >>> len(fold.train), len(fold.held_out), len(fold.new)
    (3, 1, 0)
    """

    train: Integers
    held_out: Integers
    new: Integers

    @classmethod
    def of(cls, train: Integers, held_out: Integers) -> Fold:
        """Return a fold that leaves no class out."""
        return cls(train, held_out, np.empty(0, dtype=np.int64))


def hold_out_rows(labels: Integers, *, share: float, seed: int) -> tuple[Integers, Integers]:
    """Split the rows of every class into those that train and a share that is held out, at least one of each.

    >>> train, held = hold_out_rows(np.array([0, 0, 0, 0, 1, 1]), share=0.25, seed=0)
    >>> len(train), len(held)
    (4, 2)
    """
    if not 0 <= share < 1:
        raise InputError(f"held_out={share} must be 0 (nothing) or a share below 1, such as 0.1")
    if share == 0:
        return np.arange(len(labels)), np.empty(0, dtype=np.int64)
    held = []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        count = min(max(1, round(share * len(own))), len(own) - 1)
        held.append(np.random.default_rng([seed, int(label)]).permutation(own)[:count])
    held_out = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(labels)), held_out), held_out


def class_folds(
    labels: Integers, *, share: float, folds: int, least_images: int, seed: int
) -> list[Integers]:  # of labels
    """Return, fold by fold, the classes left out of training: different ones as long as there are any.

    Only classes with at least ``least_images`` images are left out, and at least two others remain.

    >>> labels = np.arange(8).repeat(6)
    >>> [fold.tolist() for fold in class_folds(labels, share=0.25, folds=2, least_images=6, seed=0)]
    [[1, 3], [6, 7]]
    """
    classes, counts = np.unique(labels, return_counts=True)
    able = classes[counts >= least_images]
    count = min(max(1, round(share * len(classes))), len(classes) - 2)
    if count < 1 or len(able) < count:
        raise InputError(
            f"{len(classes)} base classes, {len(able)} of them with {least_images} images or more, are too few to "
            "play some as new ones; use selection='held-out-images' or 'none', or fewer shots"
        )
    order = np.random.default_rng([seed, 1]).permutation(able)
    return [np.sort(np.take(order, range(i * count, (i + 1) * count), mode="wrap")) for i in range(folds)]


def fold_without(labels: Integers, fold: Fold, new_classes: Integers) -> Fold:
    """Return the rows of a run whose training leaves ``new_classes`` out."""
    is_new = np.isin(labels, new_classes)
    return Fold(fold.train[~is_new[fold.train]], fold.held_out[~is_new[fold.held_out]], np.flatnonzero(is_new))

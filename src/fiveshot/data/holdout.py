"""A seeded test split for images that come without one."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from fiveshot.errors import InputError

Item = TypeVar("Item")


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
        raise InputError(f"holdout={holdout} must lie between 0 and 1, such as 0.2")
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

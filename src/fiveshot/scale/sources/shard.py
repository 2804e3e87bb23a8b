"""A shard: a part of the images, read in order, each one encoded, labeled and not yet decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from fiveshot.features.extraction.parts import TEST, TRAIN

_TEST_NAMES = frozenset({"test", "val", "valid", "validation", "eval"})


@dataclass(frozen=True, eq=False)
class RawImage:
    """Encoded bytes with what is known about them; ``reason`` says why there are none."""

    name: str
    label: str
    split: int
    data: bytes
    reason: str = ""


class ShardReader(Protocol):
    """Reads the images of one shard, always the same ones in the same order, in any process."""

    def images(self) -> Iterator[RawImage]:
        """Yield the images; one that cannot be read has a reason instead of bytes."""


@dataclass(frozen=True, eq=False)
class Shard:
    """A part of the images, small enough to be computed again and large enough to be worth a file."""

    number: int
    key: str  # changes when the images do
    reader: ShardReader


def split_of(path: str) -> int:
    """Tell from the folders of a path, or the start of its file's name, which split it belongs to.

    >>> split_of("birds/test/0001.tar"), split_of("birds/val-0001.tar"), split_of("birds/train/test.tar")
    (1, 1, 0)
    """
    *folders, file = PurePosixPath(path).parts
    for part in folders:
        if part == "train":
            return TRAIN
        if part in _TEST_NAMES:
            return TEST
    start = file.split(".")[0].split("-")[0].split("_")[0]
    return TEST if start in _TEST_NAMES else TRAIN

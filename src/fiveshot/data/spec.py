"""What is known about a named dataset: official counts, how to read it, where to get it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fiveshot.data.dataset import ImageDataset


@dataclass(frozen=True)
class Download:
    """One ``file`` to download from ``url``; a checksum or size of None was never published.

    >>> from fiveshot.data import dataset_specs
    >>> [item.file for item in dataset_specs()["cub200"].downloads]
    ['CUB_200_2011.tgz']
    """

    url: str
    file: str
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None


def is_published(item: Download, file: Path) -> bool:
    """Compare a file with the published size and checksums, as far as there are any; empty is never right."""
    size = file.stat().st_size
    if size == 0 or (item.size is not None and size != item.size):
        return False
    for published, digest in ((item.md5, hashlib.md5(usedforsecurity=False)), (item.sha256, hashlib.sha256())):
        if published is None:
            continue
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 18):
                digest.update(chunk)
        if digest.hexdigest() != published.lower():
            return False
    return True


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset known by name: :func:`~fiveshot.data.register_dataset` makes it so.

    A module of this package that has one as ``SPEC`` is found by itself.

    ``reader`` gets a path and returns the dataset in its official layout, or None where that is not there.
    ``layout_help`` tells a user how to lay the files out and, for a dead address, where to get them.

    >>> from fiveshot.data import dataset_specs
    >>> spec = dataset_specs()["cub200"]
    >>> spec.title, spec.classes, spec.train_count
    ('CUB-200-2011', 200, 5994)
    """

    name: str
    title: str
    classes: int
    train_count: int
    test_count: int
    reader: Callable[[Path], ImageDataset | None]
    layout_help: str
    downloads: tuple[Download, ...] = ()


def count_differences(spec: DatasetSpec, dataset: ImageDataset) -> tuple[str, ...]:
    """Say in words where a dataset's counts are not the official ones."""
    counts = (
        ("class", "classes", len(dataset.class_names), spec.classes),
        ("training image", "training images", len(dataset.train), spec.train_count),
        ("test image", "test images", len(dataset.test), spec.test_count),
    )
    return tuple(
        f"{found:,} {one if found == 1 else many}, officially {official:,}"
        for one, many, found, official in counts
        if found != official
    )

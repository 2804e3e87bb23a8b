"""Shards of images that are files of their own: the folders and archives that one machine reads, or URLs."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from fiveshot.data import ImageDataset, ImageError, ImageSource, open_images
from fiveshot.data.folder import tree_dataset
from fiveshot.data.source import StoredSource
from fiveshot.data.tree import Tree
from fiveshot.scale.places import UrlSource, find_files, is_url
from fiveshot.scale.raw_image import TEST, TRAIN, RawImage, Shard

Entry = tuple[ImageSource, str, int]  # image, label, split
AT_ONCE = 16  # images that are fetched from a URL at a time


@dataclass(frozen=True, eq=False)
class ListedReader:
    """Reads images one by one from where each of them lies."""

    entries: tuple[Entry, ...]

    def images(self) -> Iterator[RawImage]:
        """Yield the images in order."""
        remote = bool(self.entries) and isinstance(self.entries[0][0], UrlSource)
        if not remote:
            yield from map(_read, self.entries)
            return
        # A distant store answers late, but many at a time.
        with ThreadPoolExecutor(AT_ONCE) as pool:
            waiting: deque[Future[RawImage]] = deque()
            for entry in self.entries:
                waiting.append(pool.submit(_read, entry))
                if len(waiting) == 2 * AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


def _read(entry: Entry) -> RawImage:
    source, label, split = entry
    try:
        return RawImage(source.name, label, split, source.read())
    except ImageError as error:
        return RawImage(source.name, label, split, b"", error.reason)


def open_listed(where: str, *, seed: int, holdout: float | None) -> ImageDataset:
    """Open class folders on a disk or behind a URL, as ``fiveshot.data.open_images`` does.

    With ``holdout=None`` no test images are drawn where there is no test split: all are for training.
    """
    share = 0.5 if holdout is None else holdout
    if is_url(where):
        sources = {file.name: UrlSource(file, file.name) for file in find_files(where)}
        # A tree is meant for the disk, but only lists names; its place is used in messages alone.
        tree = Tree(Path(where), cast("Mapping[str, StoredSource]", sources))
        dataset = tree_dataset(tree, name=_last_name(where), seed=seed, holdout=share)
    else:
        dataset = open_images(Path(where), seed=seed, holdout=share)
    drawn = not any(image.name.startswith("test/") for image in dataset.test.images)
    return _undrawn(dataset) if holdout is None and drawn else dataset


def listed_shards(dataset: ImageDataset, *, shard_images: int) -> list[Shard]:
    """Cut a dataset into shards: the training images in order, then the test images."""
    entries = [
        (image, dataset.class_names[label], split)
        for split, part in ((TRAIN, dataset.train), (TEST, dataset.test))
        for image, label in zip(part.images, part.labels.tolist(), strict=True)
    ]
    shards: list[Shard] = []
    for start in range(0, len(entries), shard_images):
        part = tuple(entries[start : start + shard_images])
        shards.append(Shard(len(shards), _key(part), ListedReader(part)))
    return shards


def _key(entries: tuple[Entry, ...]) -> str:
    from fiveshot.features.image_marks import quick_marks

    total = hashlib.sha256()
    local = [source for source, _, _ in entries if not isinstance(source, UrlSource)]
    total.update(quick_marks(local).tobytes() if local else b"")
    for source, label, split in entries:
        mark = source.file.mark if isinstance(source, UrlSource) else ""
        total.update(f"{source.name}\0{label}\0{split}\0{mark}\0".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _last_name(url: str) -> str:
    first = url.partition("::")[0].rstrip("/").rpartition("/")[2]
    return first or url.rstrip("/").rpartition("/")[2]


def _undrawn(dataset: ImageDataset) -> ImageDataset:
    """Return the dataset with its test images among the training images, in the order of their names."""
    images = dataset.train.images + dataset.test.images
    labels = np.concatenate([dataset.train.labels, dataset.test.labels])
    order = sorted(range(len(images)), key=lambda i: (int(labels[i]), images[i].name))
    joined = type(dataset.train)(images, labels).select(order)
    nothing = dataset.test.select([])
    return ImageDataset(dataset.name, dataset.class_names, joined, nothing, dataset.differences)

"""What is to be read: the images behind paths or URLs, cut into shards that are done one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from fiveshot.data import ImageDataset
from fiveshot.data.tree import SPLITS
from fiveshot.errors import InputError, unknown_name
from fiveshot.scale.listed_images import listed_shards, open_listed
from fiveshot.scale.parquet import ParquetReader
from fiveshot.scale.places import StoredFile, find_files, is_url
from fiveshot.scale.raw_image import Shard, ShardReader
from fiveshot.scale.webdataset import TarReader

Layout = Literal["auto", "folders", "parquet", "webdataset"]
SHARD_IMAGES = 4096
TARS = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, eq=False)
class Catalog:
    """Shards in their order; how many images they hold is known where each image is a file of its own.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.scale import open_catalog
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("owl/1.jpg", "owl/2.jpg", "wren/1.jpg", "wren/2.jpg"):
    ...         path = Path(folder, "birds", name)
    ...         path.parent.mkdir(parents=True, exist_ok=True)
    ...         path.touch()
    ...     catalog = open_catalog(f"{folder}/birds", seed=0, holdout=0.5, shard_images=3)
    >>> catalog.name, catalog.class_names, catalog.n_images, len(catalog.shards)
    ('birds', ('owl', 'wren'), 4, 2)
    """

    name: str
    shards: tuple[Shard, ...]
    n_images: int | None
    class_names: tuple[str, ...] | None
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of all shards: another catalog, or changed images, another digest."""
        return hashlib.sha256("".join(shard.key for shard in self.shards).encode()).hexdigest()


def open_catalog(
    images: str,
    *,
    seed: int,
    holdout: float | None = 0.2,
    layout: Layout = "auto",
    image_column: str = "image",
    label_column: str | None = None,
    shard_images: int = SHARD_IMAGES,
) -> Catalog:
    """List what lies at a path, a URL or a pattern such as ``s3://photos/train-{000..127}.tar``.

    ``auto`` reads ``*.parquet`` as parquet, several ``*.tar`` as webdataset, and anything else as folders named
    after classes. Only folders without a test split have test images drawn by ``seed`` and ``holdout``;
    elsewhere the split is the folder, or the start of the file's name (``test``, ``val``, ...).

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.scale import open_catalog
    >>> with TemporaryDirectory() as folder:
    ...     for number in range(3):
    ...         Path(folder, f"photos-{number:03}.tar").touch()
    ...     catalog = open_catalog(folder + "/photos-{001..002}.tar", seed=0)
    >>> catalog.name, len(catalog.shards), catalog.n_images
    ('photos', 2, None)
    """
    if layout not in get_args(Layout):
        raise unknown_name("layout", layout, get_args(Layout))
    if shard_images < 1:
        raise InputError(f"shard_images is {shard_images}; choose 1 or more")
    chosen = _layout(images) if layout == "auto" else layout
    if chosen == "folders":
        opened = open_listed(images, seed=seed, holdout=holdout)
        return dataset_catalog(opened, shard_images=shard_images)
    if chosen == "parquet":
        return _files(
            images, (".parquet",), lambda file: ParquetReader(file, image_column, label_column or "label")
        )
    return _files(images, TARS, lambda file: TarReader(file, label_column or "cls"))


def dataset_catalog(dataset: ImageDataset, *, shard_images: int = SHARD_IMAGES) -> Catalog:
    """Return the catalog of a dataset that is open already.

    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import dataset_catalog
    >>> greys = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(greys), np.array([0, 0, 1, 1]))
    >>> dataset = ImageDataset("greys", ("dark", "light"), split, split.select([]))
    >>> catalog = dataset_catalog(dataset, shard_images=3)
    >>> catalog.n_images, [len(list(shard.reader.images())) for shard in catalog.shards]
    (4, [3, 1])
    """
    shards = tuple(listed_shards(dataset, shard_images=shard_images))
    n_images = len(dataset.train) + len(dataset.test)
    return Catalog(dataset.name, shards, n_images, dataset.class_names, dataset.differences)


def join_catalogs(name: str, catalogs: list[Catalog]) -> Catalog:
    """Return one catalog of several; their shards are numbered anew.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.scale import join_catalogs, open_catalog
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("owls-0.tar", "owls-1.tar", "wrens-0.tar"):
    ...         Path(folder, name).touch()
    ...     catalogs = [open_catalog(f"{folder}/{kind}-*.tar", seed=0) for kind in ("owls", "wrens")]
    >>> birds = join_catalogs("birds", catalogs)
    >>> birds.name, [shard.number for shard in birds.shards]
    ('birds', [0, 1, 2])
    """
    shards = [shard for catalog in catalogs for shard in catalog.shards]
    counts = [catalog.n_images for catalog in catalogs]
    return Catalog(
        name,
        tuple(replace(shard, number=number) for number, shard in enumerate(shards)),
        None if None in counts else sum(count or 0 for count in counts),
        None,
        tuple(note for catalog in catalogs for note in catalog.notes),
    )


def _layout(images: str) -> Layout:
    if images.endswith(".parquet"):
        return "parquet"
    if (not is_url(images) and Path(images).is_dir()) or images.endswith("/"):
        names = {PurePosixPath(file.path).name for file in find_files(images)}
        if any(name.endswith(".parquet") for name in names):
            return "parquet"
        tars = {name for name in names if name.endswith(TARS)}
        plain = {f"{split}{suffix}" for split in SPLITS for suffix in TARS}
        return "webdataset" if tars - plain else "folders"
    if any(sign in images for sign in "*?[{"):
        pattern = images.rpartition("/")[2]
        return "parquet" if ".parquet" in pattern else "webdataset" if ".t" in pattern else "folders"
    return "webdataset" if images.endswith(TARS) and is_url(images) else "folders"


def _files(images: str, suffixes: tuple[str, ...], reader: Callable[[StoredFile], ShardReader]) -> Catalog:
    found = [file for file in find_files(images) if file.path.endswith(suffixes)]
    if not found:
        raise InputError(f"{images} has no files ending in {', '.join(suffixes)}; choose another --layout")
    shards = []
    for number, file in enumerate(found):
        own = reader(file)
        columns = [value for key, value in vars(own).items() if key != "file"]
        key = hashlib.sha256(f"{file.path} {file.mark} {columns}".encode("utf-8", "surrogateescape"))
        shards.append(Shard(number, key.hexdigest(), own))
    name = PurePosixPath(images.rstrip("/")).name.partition(".")[0].partition("{")[0].rstrip("-_*")
    return Catalog(name or "images", tuple(shards), None, None)

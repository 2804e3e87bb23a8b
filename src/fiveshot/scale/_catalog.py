"""The images behind paths or URLs, divided into shards that are computed one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal, cast, get_args

from fiveshot.core.ranges import OneOf
from fiveshot.data import SPLITS, ImageDataset, ImageSplit, StoredSource, Tree, open_images, tree_dataset
from fiveshot.errors import InputError
from fiveshot.features import TEST, TRAIN, quick_marks
from fiveshot.scale._files import StoredFile, find_files, is_url
from fiveshot.scale._shards import Entry, FirstImages, ListedReader, ParquetReader, Shard, ShardReader, TarReader

Layout = Literal["auto", "folders", "parquet", "webdataset"]
SHARD_IMAGES = 4096
PREVIEW_SHARDS = 64  # the most shards in a preview, if single images are not listed
TARS = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, eq=False)
class Catalog:
    """The shards of a set of images, in order.

    Attributes
    ----------
    name : str
        Name of the set.
    shards : tuple of Shard
        The shards.
    n_images : int or None
        Number of images; known only if each image is a separate file.
    class_names : tuple of str or None
        Names of the classes; known in the same case.
    notes : tuple of str
        Notes for the user.

    Examples
    --------
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
        """SHA-256 of all shards; it changes when the images do."""
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
    """List the images at a path, a URL or a pattern such as ``s3://photos/train-{000..127}.tar``.

    For folders without a test split, test images are drawn. Otherwise the split is the folder, or the start of the
    file's name (``test``, ``val``, ...).

    Parameters
    ----------
    images : str
        The path, URL or pattern.
    seed : int
        Seed for drawing test images.
    holdout : float or None, default 0.2
        Share of every class to draw as test images; with None all images are for training.
    layout : {"auto", "folders", "parquet", "webdataset"}
        ``auto`` reads ``*.parquet`` as parquet, several ``*.tar`` as webdataset, and anything else as folders
        named after classes.
    image_column : str, default "image"
        Column of a parquet file with the encoded images.
    label_column : str, optional
        Column of a parquet file with the labels (by default ``label``), or the suffix of the tar members that
        hold them (by default ``cls``).
    shard_images : int, default 4096
        Images in a shard, if each image is a separate file.

    Returns
    -------
    Catalog
        The shards, in the order of their names.

    Raises
    ------
    InputError
        If there are no images, or none in that layout.

    Examples
    --------
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
    OneOf(get_args(Layout)).check("layout", layout)
    if shard_images < 1:
        raise InputError(f"shard_images is {shard_images}", hint="choose 1 or more")
    chosen = _layout(images) if layout == "auto" else layout
    if chosen == "folders":
        return dataset_catalog(_open_folders(images, seed=seed, holdout=holdout), shard_images=shard_images)
    if chosen == "parquet":
        label = label_column or "label"
        return _files(images, (".parquet",), lambda file: ParquetReader(file, image_column, label))
    return _files(images, TARS, lambda file: TarReader(file, label_column or "cls"))


def dataset_catalog(dataset: ImageDataset, *, shard_images: int = SHARD_IMAGES) -> Catalog:
    """Return the catalog of an open dataset: its training images in order, then its test images.

    Parameters
    ----------
    dataset : ImageDataset
        The images, as ``fiveshot.data`` opens them.
    shard_images : int, default 4096
        Images in a shard.

    Returns
    -------
    Catalog
        The shards.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import dataset_catalog
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> dataset = ImageDataset("grays", ("dark", "light"), split, split.select([]))
    >>> catalog = dataset_catalog(dataset, shard_images=3)
    >>> catalog.n_images, [len(list(shard.reader.images())) for shard in catalog.shards]
    (4, [3, 1])
    """
    entries = [
        (image, dataset.class_names[label], split)
        for split, part in ((TRAIN, dataset.train), (TEST, dataset.test))
        for image, label in zip(part.images, part.labels.tolist(), strict=True)
    ]
    shards: list[Shard] = []
    for start in range(0, len(entries), shard_images):
        part = tuple(entries[start : start + shard_images])
        shards.append(Shard(len(shards), _listed_key(part), ListedReader(part)))
    return Catalog(dataset.name, tuple(shards), len(entries), dataset.class_names, dataset.differences)


def join_catalogs(name: str, catalogs: list[Catalog]) -> Catalog:
    """Join several catalogs into one.

    Parameters
    ----------
    name : str
        Name of the joined set.
    catalogs : list of Catalog
        The catalogs, in this order.

    Returns
    -------
    Catalog
        All shards, numbered from zero.

    Examples
    --------
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


def preview(catalog: Catalog, images: int) -> list[Shard]:
    """Return shards with about ``images`` training images, spread over a catalog.

    Listed images are sorted by class, so every n-th of them is taken. Other shards are usually mixed, so the first
    images of some of them are taken.
    """
    listed = [shard.reader for shard in catalog.shards if isinstance(shard.reader, ListedReader)]
    others = [shard.reader for shard in catalog.shards if not isinstance(shard.reader, ListedReader)]
    readers: list[ShardReader] = []
    entries = [entry for reader in listed for entry in reader.entries if entry[2] == TRAIN]
    if entries:
        readers.append(ListedReader(tuple(entries[:: -(-len(entries) // images)])))
    chosen = others[:: -(-len(others) // PREVIEW_SHARDS)] if others else []
    readers += [FirstImages(reader, -(-images // len(chosen))) for reader in chosen]
    return [Shard(number, "", reader) for number, reader in enumerate(readers)]


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
    """Return a catalog with one shard for each file."""
    found = [file for file in find_files(images) if file.path.endswith(suffixes)]
    if not found:
        raise InputError(
            f"{images} has no files ending in {', '.join(suffixes)}", hint="name files with these endings"
        )
    shards = []
    for number, file in enumerate(found):
        own = reader(file)
        columns = [value for key, value in vars(own).items() if key != "file"]
        key = hashlib.sha256(f"{file.path} {file.mark} {columns}".encode("utf-8", "surrogateescape"))
        shards.append(Shard(number, key.hexdigest(), own))
    name = PurePosixPath(images.rstrip("/")).name.partition(".")[0].partition("{")[0].rstrip("-_*")
    return Catalog(name or "images", tuple(shards), None, None)


def _open_folders(where: str, *, seed: int, holdout: float | None) -> ImageDataset:
    """Open class folders on a disk or behind a URL."""
    share = 0.5 if holdout is None else holdout
    if is_url(where):
        sources = {file.name: file for file in find_files(where)}
        # A tree is meant for the disk, but it only lists names; its path is used only in messages.
        tree = Tree(Path(where), cast("Mapping[str, StoredSource]", sources))
        dataset = tree_dataset(tree, name=_last_name(where), seed=seed, holdout=share)
    else:
        dataset = open_images(Path(where), seed=seed, holdout=share)
    drawn = not any(image.name.startswith("test/") for image in dataset.test.images)
    return _undrawn(dataset) if holdout is None and drawn else dataset


def _undrawn(dataset: ImageDataset) -> ImageDataset:
    """Return the dataset with its test images among the training images, in the order of their names."""
    splits = (dataset.train, dataset.test)
    images = [pair for split in splits for pair in zip(split.images, split.labels.tolist(), strict=True)]
    joined = ImageSplit.of(sorted(images, key=lambda pair: (pair[1], pair[0].name)))
    return replace(dataset, train=joined, test=dataset.test.select([]))


def _listed_key(entries: tuple[Entry, ...]) -> str:
    total = hashlib.sha256()
    local = [source for source, _, _ in entries if not isinstance(source, StoredFile)]
    total.update(quick_marks(local).tobytes() if local else b"")
    for source, label, split in entries:
        mark = source.mark if isinstance(source, StoredFile) else ""
        total.update(f"{source.name}\0{label}\0{split}\0{mark}\0".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _last_name(url: str) -> str:
    first = url.partition("::")[0].rstrip("/").rpartition("/")[2]
    return first or url.rstrip("/").rpartition("/")[2]

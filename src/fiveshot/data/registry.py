"""Datasets known by name: official counts, how to read them, where to get them; and opening one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from fiveshot.data.archives import is_archive
from fiveshot.data.dataset import ImageDataset
from fiveshot.data.folders import open_images, split_archive
from fiveshot.data.sources import FileSource
from fiveshot.errors import InputError, counted
from fiveshot.plugins import load_plugins, same_origin, unknown_or_unloaded

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # usable in a path and in a protocol's name
NO_DATASET = "no_dataset"  # code of the error for a folder without the dataset
_registered: dict[str, DatasetSpec] = {}


@dataclass(frozen=True)
class Download:
    """One file to download.

    Parameters
    ----------
    url : str
        Where it is.
    file : str
        File name on disk.
    md5, sha256 : str, optional
        Its published checksums, if any.
    size : int, optional
        Its published size in bytes, if any.

    Examples
    --------
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
    """Tell whether a file has the published size and checksums, if any; an empty file never has."""
    size = file.stat().st_size
    if size == 0 or (item.size is not None and size != item.size):
        return False
    for published, kind in ((item.md5, "md5"), (item.sha256, "sha256")):
        if published is not None:
            with file.open("rb") as stream:
                if hashlib.file_digest(stream, kind).hexdigest() != published.lower():
                    return False
    return True


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset known by name; :func:`~fiveshot.data.register_dataset` adds one.

    Specifications in ``fiveshot.data._official`` are found automatically.

    Parameters
    ----------
    name : str
        Letters, digits, ``-`` and ``_``.
    title : str
        What people call it.
    classes, train_count, test_count : int
        The official counts.
    reader : callable
        Takes a path and returns the dataset in its official layout, or None if the path does not have that layout.
    layout_help : str
        Says how to arrange the files and, if the official address is dead, where to get them.
    downloads : tuple of Download
        What to download.

    Examples
    --------
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
    """Return the differences between a dataset's counts and the official ones, in words."""
    counts = (
        ("class", len(dataset.class_names), spec.classes),
        ("training image", len(dataset.train), spec.train_count),
        ("test image", len(dataset.test), spec.test_count),
    )
    return tuple(
        f"{counted(found, noun)}, officially {official:,}" for noun, found, official in counts if found != official
    )


def dataset_specs() -> MappingProxyType[str, DatasetSpec]:
    """Return all known datasets by name: those of this package and the registered ones.

    Returns
    -------
    mapping of str to DatasetSpec
        A read-only mapping.

    Examples
    --------
    >>> sorted(dataset_specs())
    ['aircraft', 'cars', 'cifar100', 'cub200', 'imagenet-r', 'miniimagenet']
    """
    return MappingProxyType({**package_specs(), **_registered})


def register_dataset(spec: DatasetSpec) -> None:
    """Make a dataset known by name to :func:`open_dataset`, ``fiveshot extract`` and ``fiveshot data``.

    Parameters
    ----------
    spec : DatasetSpec
        The dataset.

    Raises
    ------
    InputError
        When the name is not valid, or belongs to a dataset whose reader comes from another file.

    Examples
    --------
    >>> from fiveshot.data import DatasetSpec, open_images
    >>> def read(path):
    ...     return open_images(path / "pictures", seed=0)
    >>> register_dataset(DatasetSpec("garden", "My garden", 12, 240, 60, read, "Expected pictures/<class>/*.jpg."))
    >>> dataset_specs()["garden"].classes
    12
    >>> unregister_dataset("garden")
    """
    if not isinstance(spec, DatasetSpec):
        raise InputError(f"register_dataset needs a DatasetSpec, not {spec!r}")
    if not NAME.fullmatch(spec.name):
        hint = "use letters, digits, '-' and '_': 'my-garden'"
        raise InputError(f"{spec.name!r} is not a valid name for a dataset", hint=hint)
    known = dataset_specs().get(spec.name)
    if known is not None and (spec.name in package_specs() or not same_origin(known.reader, spec.reader)):
        taken = f"the name {spec.name!r} is taken by a dataset of {known.reader.__module__}"
        raise InputError(taken, hint="choose another")
    _registered[spec.name] = spec


def unregister_dataset(name: str) -> None:
    """Remove a registered dataset.

    Parameters
    ----------
    name : str
        Its name.

    Raises
    ------
    InputError
        When no such dataset was registered.

    Examples
    --------
    >>> unregister_dataset("cub200")
    Traceback (most recent call last):
    fiveshot.errors.InputError: 'cub200' is not a registered dataset; built-in datasets cannot be removed
    """
    if name not in _registered:
        raise InputError(f"{name!r} is not a registered dataset", hint="built-in datasets cannot be removed")
    del _registered[name]


@cache
def package_specs() -> MappingProxyType[str, DatasetSpec]:
    """Return the datasets of this package by name: all in ``fiveshot.data._official``."""
    from fiveshot.data import _official

    specs = {spec.name: spec for spec in vars(_official).values() if isinstance(spec, DatasetSpec)}
    return MappingProxyType(dict(sorted(specs.items())))


def dataset_spec(name: str) -> DatasetSpec:
    """Return the specification of a dataset; the error for an unknown name lists the known ones."""
    if name not in dataset_specs():
        load_plugins()
    specs = dataset_specs()
    if name not in specs:
        raise unknown_or_unloaded("dataset", name, specs)
    return specs[name]


def open_dataset(name: str | DatasetSpec, root: Path, *, seed: int, holdout: float = 0.2) -> ImageDataset:
    """Open a named dataset in ``root`` or ``root/<name>``: its official layout, or plain class folders.

    Parameters
    ----------
    name : str or DatasetSpec
        The dataset.
    root : Path
        Where it lies.
    seed, holdout : int, float
        As in :func:`open_images`; they matter only for class folders without a test split.

    Returns
    -------
    ImageDataset
        The images; its ``differences`` list differences from the official dataset.

    Raises
    ------
    InputError
        When the dataset is unknown, or not found.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.data import open_dataset
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for photo in (Path(root, part, "wren", "1.jpg") for part in ("train", "test")):
    ...         photo.parent.mkdir(parents=True)
    ...         photo.touch()
    ...     birds = open_dataset("cub200", Path(root), seed=0)
    >>> birds.class_names, birds.differences[0]
    (('wren',), '1 class, officially 200')
    """
    spec, root = name if isinstance(name, DatasetSpec) else dataset_spec(name), Path(root)
    place = root / spec.name if (root / spec.name).is_dir() else root
    if not place.exists():
        raise InputError(f"no such folder: {place}", hint=_where_to_get(spec), code=NO_DATASET)
    dataset = spec.reader(place)
    if dataset is None:
        if not _has_class_folders(place, spec):
            raise InputError(f"no {spec.title} in {place}", hint=_where_to_get(spec), code=NO_DATASET)
        dataset = open_images(place, seed=seed, holdout=holdout)
    return replace(dataset, name=spec.name).noting(*count_differences(spec, dataset), *_missing(dataset))


def _has_class_folders(place: Path, spec: DatasetSpec) -> bool:
    """Tell whether a folder holds class folders; a data directory with many datasets does not."""
    if is_archive(place) or (place / "train").is_dir() or split_archive(place, "train"):
        return True
    return place.is_dir() and sum(entry.is_dir() for entry in place.iterdir()) == spec.classes


def _missing(dataset: ImageDataset) -> tuple[str, ...]:
    images = dataset.train.images + dataset.test.images
    absent = [i.name for i in images if isinstance(i, FileSource) and not i.path.is_file()]
    if not absent:
        return ()
    return (f"{len(absent):,} of {len(images):,} listed images are missing, the first is {absent[0]}",)


def _where_to_get(spec: DatasetSpec) -> str:
    command = f"Download it with: fiveshot data fetch {spec.name}. " if spec.downloads else ""
    return f"{command}{spec.layout_help}"

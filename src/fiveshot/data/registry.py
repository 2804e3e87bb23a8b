"""Open a dataset by its name, in whichever of the known layouts it lies there."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import fiveshot.data
from fiveshot.data.archives import is_archive
from fiveshot.data.dataset import ImageDataset
from fiveshot.data.folder import open_images
from fiveshot.data.source import FileSource
from fiveshot.data.spec import DatasetSpec, count_differences
from fiveshot.data.tree import split_archive
from fiveshot.errors import InputError
from fiveshot.plugins import load_plugins, same_origin, unknown_or_unloaded

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # what can stand in a path and in the name of a protocol
_registered: dict[str, DatasetSpec] = {}


def dataset_specs() -> MappingProxyType[str, DatasetSpec]:
    """Return every known dataset by name: those of this package, and those that were registered.

    >>> sorted(dataset_specs())
    ['aircraft', 'cars', 'cifar100', 'cub200']
    """
    return MappingProxyType({**package_specs(), **_registered})


def register_dataset(spec: DatasetSpec) -> None:
    """Make a dataset known by name to :func:`open_dataset`, ``fiveshot extract`` and ``fiveshot data``.

    Registering a name again is an error, unless the reader comes from the same file.

    >>> from fiveshot.data import DatasetSpec, open_images
    >>> def read(path):
    ...     return open_images(path / "pictures", seed=0)
    >>> register_dataset(DatasetSpec("garden", "My garden", 12, 240, 60, read, "Expected pictures/<class>/*.jpg."))
    >>> dataset_specs()["garden"].classes
    12
    >>> unregister_dataset("garden")
    """
    if not isinstance(spec, DatasetSpec):
        raise InputError(f"a dataset is registered by its DatasetSpec, not by {spec!r}")
    if not NAME.fullmatch(spec.name):
        raise InputError(f"{spec.name!r} cannot name a dataset; use letters, digits, '-' and '_': 'my-garden'")
    known = dataset_specs().get(spec.name)
    if known is not None and (spec.name in package_specs() or not same_origin(known.reader, spec.reader)):
        raise InputError(
            f"the name {spec.name!r} is taken by a dataset of {known.reader.__module__}; choose another"
        )
    _registered[spec.name] = spec


def unregister_dataset(name: str) -> None:
    """Take a registered dataset away again.

    >>> unregister_dataset("cub200")
    Traceback (most recent call last):
    fiveshot.errors.InputError: 'cub200' is not a registered dataset; those of the package stay
    """
    if name not in _registered:
        raise InputError(f"{name!r} is not a registered dataset; those of the package stay")
    del _registered[name]


@cache
def package_specs() -> MappingProxyType[str, DatasetSpec]:
    """Return the datasets of this package by name: those of its modules that have a ``SPEC``."""
    modules = (
        importlib.import_module(f"{fiveshot.data.__name__}.{found.name}")
        for found in pkgutil.iter_modules(fiveshot.data.__path__)
    )
    specs = (getattr(module, "SPEC", None) for module in modules)
    return MappingProxyType({spec.name: spec for spec in specs if isinstance(spec, DatasetSpec)})


def dataset_spec(name: str) -> DatasetSpec:
    """Return what is known about a dataset, or say which names there are."""
    if name not in dataset_specs():
        load_plugins()
    specs = dataset_specs()
    if name not in specs:
        raise unknown_or_unloaded("dataset", name, specs)
    return specs[name]


def open_dataset(name: str, root: Path, *, seed: int, holdout: float = 0.2) -> ImageDataset:
    """Open a named dataset in ``root`` or ``root/<name>``: its official layout, or plain class folders.

    Differences from the official counts are listed in the result. ``seed`` and ``holdout`` matter only for
    class folders without a test split.

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
    return open_spec(dataset_spec(name), Path(root), seed=seed, holdout=holdout)


def open_spec(spec: DatasetSpec, root: Path, *, seed: int, holdout: float = 0.2) -> ImageDataset:
    """Open a dataset by its specification; see ``open_dataset``."""
    place = root / spec.name if (root / spec.name).is_dir() else root
    if not place.exists():
        raise InputError(f"no such folder: {place}. {_where_to_get(spec)}")
    dataset = spec.reader(place)
    if dataset is None:
        if not _has_class_folders(place, spec):
            raise InputError(f"no {spec.title} in {place}. {_where_to_get(spec)}")
        dataset = open_images(place, seed=seed, holdout=holdout)
    return replace(dataset, name=spec.name).noting(*count_differences(spec, dataset), *_missing(dataset))


def _has_class_folders(place: Path, spec: DatasetSpec) -> bool:
    """Whether to read a place as class folders; the many folders of a data directory are not classes."""
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

"""Which feature files a folder has, by the dataset they are of, and what to do about those it lacks."""

from __future__ import annotations

import os
import re
import shlex
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from fiveshot.benchmark import Protocol, embedded_source, get_protocol, paper_protocols
from fiveshot.data.registry import dataset_spec
from fiveshot.errors import InputError, StorageError
from fiveshot.features import FeatureSet
from fiveshot.features.feature_set import ARRAYS
from fiveshot.storage import FilePath

DATASETS = tuple(dict.fromkeys(get_protocol(name).dataset for name in paper_protocols()))
STARTS = ("small", "big")


@dataclass(frozen=True)
class MissingFeatures:
    """A dataset without features.

    Parameters
    ----------
    dataset : str
        Its name.
    protocols : tuple of str
        Those that wait for it.
    folder : str
        Where feature files are looked for.

    Examples
    --------
    >>> from fiveshot.reports import MissingFeatures
    >>> for command in MissingFeatures("aircraft", ("aircraft/big",), "features").commands:
    ...     print(command)
    fiveshot data fetch aircraft --root data
    fiveshot extract --dataset aircraft --root data --out features/aircraft.safetensors
    """

    dataset: str
    protocols: tuple[str, ...]
    folder: str

    @property
    def commands(self) -> tuple[str, ...]:
        """What to type, in this order; what cannot be downloaded must be in its place before."""
        target = shlex.quote(str(Path(self.folder) / f"{self.dataset}.safetensors"))
        extract = f"fiveshot extract --dataset {self.dataset} --root data --out {target}"
        return (f"fiveshot data fetch {self.dataset} --root data", extract) if self._fetched else (extract,)

    @property
    def _fetched(self) -> bool:
        return bool(dataset_spec(self.dataset).downloads)

    def __str__(self) -> str:
        """Say all of it in one line."""
        waiting = f" (for {', '.join(self.protocols)})" if self.protocols else ""
        way = "get them with"
        if not self._fetched:
            way = (
                f"{dataset_spec(self.dataset).title} cannot be downloaded: put a copy into data/{self.dataset} "
                f"('fiveshot data fetch {self.dataset}' says from where, and how to lay it out), then"
            )
        return f"features of {self.dataset}{waiting}; {way}: {' && '.join(self.commands)}"


def find_feature_files(folder: FilePath | None = None) -> dict[str, str]:
    """Return the feature source of each of the paper's datasets, as far as there is one.

    A ``.safetensors`` or ``.npz`` file of the folder belongs to the dataset that its provenance or its name
    says (``cars.safetensors``, ``cifar-100_vit.npz``). An adapter is trained on the base classes of one
    protocol; a name that also says ``small`` or ``big`` (``cub200-big.safetensors``) is kept for that protocol
    alone, under the protocol's name. Where the folder has nothing, the embedded pack of a dataset is taken.

    Parameters
    ----------
    folder : path, optional
        Where to look.

    Returns
    -------
    dict of str to str
        The source of each dataset or protocol.

    Raises
    ------
    InputError
        If the folder is not there, or two files belong to one dataset.
    StorageError
        If a file that is named after a dataset cannot be read.

    Examples
    --------
    >>> from fiveshot.reports import find_feature_files
    >>> find_feature_files()
    {'cub200': 'embedded:cub200'}
    """
    found: dict[str, str] = {}
    for path in _candidates(folder):
        place = _place(path)
        if place is not None and place in found:
            raise InputError(
                f"two files have features of {place}: {found[place]} and {path}", hint="move one away"
            )
        if place is not None:
            found[place] = str(path)
    packs = {dataset: embedded_source(dataset) for dataset in DATASETS if dataset not in found}
    return found | {dataset: pack for dataset, pack in packs.items() if pack is not None}


def features_for(protocol: Protocol, sources: Mapping[str, str]) -> str | None:
    """Return the features for a protocol: its own, else those of its dataset."""
    return sources.get(protocol.name) or sources.get(protocol.dataset)


def missing_features(
    protocols: Iterable[Protocol], sources: Mapping[str, str], folder: FilePath | None
) -> tuple[MissingFeatures, ...]:
    """Return what is missing for these protocols, dataset by dataset."""
    waiting: dict[str, dict[str, None]] = {}
    for protocol in protocols:
        if features_for(protocol, sources) is None:
            waiting.setdefault(protocol.dataset, {})[protocol.name] = None
    place = "features" if folder is None else os.fspath(folder)
    return tuple(MissingFeatures(dataset, tuple(names), place) for dataset, names in waiting.items())


def named_dataset(text: str) -> str | None:
    """Return the dataset that a name says, in whole words.

    >>> named_dataset("CUB-200_vit"), named_dataset("cifar10"), named_dataset("oscars")
    ('cub200', None, None)
    """
    words = _words(text)
    spelled = {*words, *(a + b for a, b in pairwise(words))}
    said = [dataset for dataset in DATASETS if dataset in spelled]
    return said[0] if len(said) == 1 else None


def _candidates(folder: FilePath | None) -> Sequence[Path]:
    """Return the files of a folder that may hold features."""
    if folder is None:
        return ()
    if not Path(folder).is_dir():
        raise InputError(f"no such folder of features: {os.fspath(folder)}")
    return sorted(path for path in Path(folder).iterdir() if path.suffix in (".safetensors", ".npz"))


def _place(path: Path) -> str | None:
    """Return the dataset or protocol that a file is for, or None."""
    by_name = named_dataset(path.stem)
    try:
        said = _said_inside(path)
    except StorageError:
        # A file that claims to be of a dataset and cannot be read is an error; others may be anything.
        if by_name:
            raise
        return None
    dataset = None if said is None else named_dataset(said) or by_name
    starts = [start for start in STARTS if start in _words(path.stem)]
    return f"{dataset}/{starts[0]}" if dataset and len(starts) == 1 else dataset


def _said_inside(path: Path) -> str | None:
    """Return what a feature file says of its dataset, nothing in an .npz, and None if it is not a feature file."""
    if path.suffix == ".safetensors":
        return FeatureSet.load(path).provenance.dataset
    try:
        with np.load(path, allow_pickle=False) as file:
            return "" if set(ARRAYS) <= set(getattr(file, "files", ())) else None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(f"cannot read {path} ({error})", hint="get a fresh copy of it") from error


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())

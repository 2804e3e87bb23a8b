"""From photos to features for the paper's protocols: tune an adapter on the base classes, then extract."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fiveshot.backbones import BackboneSpec, load_embedder, preprocessing_for
from fiveshot.benchmark.protocol import Protocol
from fiveshot.data import NO_DATASET, ImageDataset, open_dataset, restrict
from fiveshot.errors import InputError
from fiveshot.features import ExtractionSettings, FeatureCache, bare_rate, extract, extraction_seconds
from fiveshot.storage import FilePath, make_folder
from fiveshot.tuning import TUNE_RECIPES, TuneRecipe
from fiveshot.work import Progress

if TYPE_CHECKING:
    from fiveshot.tuning import OnProgress

PLAIN = "no-adapter"
TRAINING_PASSES = 3  # a training step takes about as long as three forward passes
SETTINGS = ExtractionSettings(dtype="float32")


def find_datasets(names: Iterable[str], root: FilePath) -> dict[str, ImageDataset]:
    """Open those of the named datasets that are in a folder; a damaged one is an error.

    Parameters
    ----------
    names : iterable of str
        Names of datasets.
    root : str or path
        The folder that holds them.

    Returns
    -------
    dict of str to ImageDataset
        The datasets that were found.

    Raises
    ------
    InputError
        If none of them is there, or one cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.benchmark import find_datasets
    >>> with tempfile.TemporaryDirectory() as empty:
    ...     find_datasets(["cub200", "cars"], empty)
    Traceback (most recent call last):
    fiveshot.errors.InputError: ... holds none of cub200, cars; see 'fiveshot data fetch --help'
    """
    wanted = list(dict.fromkeys(names))
    if not Path(root).exists():
        raise InputError(f"no such folder: {root}", hint="name the folder of the datasets with --root")
    found = {}
    for name in wanted:
        try:
            found[name] = open_dataset(name, Path(root), seed=0)
        except InputError as error:
            if error.code != NO_DATASET:
                raise
    if not found:
        raise InputError(f"{root} holds none of {', '.join(wanted)}", hint="see 'fiveshot data fetch --help'")
    return found


@dataclass(frozen=True)
class FirstTask:
    """The features of one protocol, made from photos: with an adapter for its base classes, or without.

    Parameters
    ----------
    dataset : ImageDataset
        All photos of the dataset.
    spec : BackboneSpec
        The network, without adapter; the preprocessing ``paper`` is that for this dataset.
    folder : str or path
        Folder for the features and adapters.
    protocol : Protocol, optional
        Tune an adapter on the base classes of this protocol. Without a protocol there is no adapter.
    recipe : TuneRecipe
        How to tune; by default as the paper does.

    Examples
    --------
    >>> from fiveshot.backbones import BackboneSpec
    >>> from fiveshot.benchmark import FirstTask, get_protocol
    >>> from fiveshot.data import ImageDataset, ImageSplit
    >>> import numpy as np
    >>> nothing = ImageSplit((), np.zeros(0, np.int64))
    >>> birds = ImageDataset("cub200", ("wren",), nothing, nothing)
    >>> FirstTask(birds, BackboneSpec(), "out", get_protocol("cub200/big")).features.as_posix()
    'out/features/cub200-big.safetensors'
    """

    dataset: ImageDataset
    spec: BackboneSpec
    folder: FilePath
    protocol: Protocol | None = None
    recipe: TuneRecipe = TUNE_RECIPES["paper"]

    @property
    def name(self) -> str:
        """The dataset, or the protocol if there is an adapter."""
        return self.dataset.name if self.protocol is None else self.protocol.name

    @property
    def features(self) -> Path:
        """The feature file."""
        folder = Path(self.folder) if self.protocol is not None else Path(self.folder) / PLAIN
        return folder / "features" / f"{self.name.replace('/', '-')}.safetensors"

    @cached_property
    def network(self) -> BackboneSpec:
        """The network without adapter, with the preprocessing for this dataset."""
        wanted = self.spec.preprocessing
        if isinstance(wanted, str):
            wanted = preprocessing_for(wanted, self.dataset.name)
        return self.spec.replace(preprocessing=wanted)

    @cached_property
    def base(self) -> ImageDataset:
        """The photos of the base classes."""
        assert self.protocol is not None  # only protocols have base classes
        return restrict(self.dataset, self.protocol.session_classes[0])

    @cached_property
    def adapter(self) -> Path | None:
        """The adapter file. Its name has a hash of all that decides its values, so that a kept one always fits."""
        if self.protocol is None:
            return None
        decisive = {
            "network": load_embedder(self.network).fingerprint,
            "recipe": self.recipe.to_json(),
            "images": [image.name for image in self.base.train.images],
            "labels": self.base.train.labels.tolist(),
        }
        mark = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:8]
        return Path(self.folder) / "adapters" / f"{self.name.replace('/', '-')}-{mark}.safetensors"

    def seconds(self, rate: float) -> float:
        """Estimate the time that is left to do, for a network that sees so many images a second."""
        if self.adapter is not None and not self.adapter.exists():
            trained = TRAINING_PASSES * len(self.base.train) * self.recipe.epochs
            return (trained + len(self.dataset.train) + len(self.dataset.test)) / rate
        embedder = load_embedder(self.network.replace(adapter=self.adapter))
        return extraction_seconds(self.dataset, embedder, SETTINGS, cache=FeatureCache(), rate=rate)

    def tune(self, progress: OnProgress | None = None) -> bool:
        """Train the adapter if one is wanted and missing; a stopped training continues."""
        if self.adapter is None or self.adapter.exists():
            return False
        from fiveshot.backbones import choose_device, load_backbone
        from fiveshot.tuning import tune

        make_folder(self.adapter.parent)
        backbone = load_backbone(self.network.replace(device=choose_device(self.network.device)))
        tune(
            backbone, self.base, recipe=self.recipe, out=self.adapter, held_out=0.0, resume=True, progress=progress
        )
        return True

    def extract(self, progress: Progress | None = None) -> int:
        """Write the feature file; return how many images had to be computed."""
        make_folder(self.features.parent)
        embedder = load_embedder(self.network.replace(adapter=self.adapter))
        done = extract(
            self.dataset, embedder, SETTINGS, out=self.features, cache=FeatureCache(), progress=progress
        )
        return done.computed


def first_tasks(
    protocols: Iterable[Protocol],
    datasets: Mapping[str, ImageDataset],
    spec: BackboneSpec,
    folder: FilePath,
    recipe: TuneRecipe = TUNE_RECIPES["paper"],
) -> list[FirstTask]:
    """Return what to make for these protocols: features with an adapter for each, and without for each dataset.

    Parameters
    ----------
    protocols : iterable of Protocol
        Those whose dataset is not among ``datasets`` are left out.
    datasets : mapping of str to ImageDataset
        The photos, by the name of the dataset.
    spec, folder, recipe
        As in :class:`FirstTask`.

    Returns
    -------
    list of FirstTask
        The ones without adapter come first.

    Raises
    ------
    InputError
        If a dataset has another number of classes than its protocol.

    Examples
    --------
    >>> from fiveshot.backbones import BackboneSpec
    >>> from fiveshot.benchmark import first_tasks, get_protocol
    >>> first_tasks([get_protocol("cub200/big")], {}, BackboneSpec(), "runs")
    []
    """
    wanted = [protocol for protocol in dict.fromkeys(protocols) if protocol.dataset in datasets]
    for one in wanted:
        found = len(datasets[one.dataset].class_names)
        if found != one.n_classes:
            raise InputError(
                f"{one.name} has {one.n_classes} classes, but {found} of {one.dataset} were found",
                hint="get the rest: fiveshot data fetch --help; for a part of a dataset: fiveshot bench --images",
            )
    names = dict.fromkeys(protocol.dataset for protocol in wanted)
    plain = [FirstTask(datasets[name], spec, folder) for name in names]
    return plain + [FirstTask(datasets[one.dataset], spec, folder, one, recipe) for one in wanted]


def first_task_seconds(tasks: Iterable[FirstTask], spec: BackboneSpec) -> float:
    """Estimate the time of all tasks on this machine; the network is run for a second to measure its speed."""
    rate = bare_rate(load_embedder(spec), seconds=1.0)
    return sum(task.seconds(rate) for task in tasks)

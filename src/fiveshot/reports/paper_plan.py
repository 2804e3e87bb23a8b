"""The runs that each table, figure and ablation of the paper needs, and the available features."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from fiveshot.benchmark import (
    BetaAblation,
    Job,
    PartsAblation,
    Protocol,
    ShotDraw,
    embedded_source,
    get_protocol,
    make_jobs,
    paper_beta_ablation,
    paper_parts_ablation,
    paper_protocols,
)
from fiveshot.core.scorers import RECIPES, Flavor, make_scorer, own_parameters
from fiveshot.data import dataset_spec
from fiveshot.errors import InputError, StorageError, command, unknown_name
from fiveshot.features import FEATURE_ARRAYS, FeatureSet
from fiveshot.storage import FilePath

MAIN_METHODS = ("ncm", "teen", "fecam", "c-fecam", "ranpac", "c-ranpac")
CALIBRATED = ("teen", "c-fecam", "c-ranpac")
ABLATION_PROTOCOL = "cars/small"  # protocol of the paper's ablations and of its figure 2
SUBSTITUTE_PROTOCOL = "cub200/small"  # a similar protocol whose features are in the package
PREFIX = "ablation-"

SETTINGS = {
    "table1": ("cub200/small", "cub200/big", "aircraft/small", "aircraft/big"),
    "table2": ("cars/small", "cars/big"),
    "table3": ("cifar100/small",),
    "table5": (ABLATION_PROTOCOL,),
    "table6": (ABLATION_PROTOCOL,),
    "figure1": ("cub200/big", "cars/big"),
    "figure2": (ABLATION_PROTOCOL,),
    "figure3": ("cub200/big", "cars/big", "aircraft/big"),
}
SUBSTITUTED = ("table5", "table6", "figure2")
TARGETS = tuple(SETTINGS)
DATASETS = tuple(dict.fromkeys(get_protocol(name).dataset for name in paper_protocols()))
STARTS = ("small", "big")


@dataclass(frozen=True)
class Ablation:
    """A parameter of heads or of the protocol to vary, its symbol, the methods and the values."""

    parameter: str
    symbol: str
    methods: tuple[str, ...]
    values: tuple[float, ...]


ABLATIONS = {
    "tau": Ablation("tau", "τ", CALIBRATED, (1, 4, 8, 16, 32, 64)),
    "alpha": Ablation("alpha", "α", CALIBRATED, (0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)),
    "beta": Ablation("beta", "β", ("c-fecam", "c-ranpac"), (0.5, 1.0, 1.5)),
    "shots": Ablation(
        "shots", "images per new class", ("ncm", "fecam", "c-fecam", "ranpac", "c-ranpac"), (1, 2, 5, 10, 20)
    ),
    "M": Ablation("n_projections", "random features M", ("ranpac", "c-ranpac"), (500, 1000, 2000, 5000, 10_000)),
    "samples": Ablation(
        "sampling", "samples per new class", ("ranpac*", "c-ranpac"), (5, 25, 100, 400, 800, 1600)
    ),
}
FURTHER_TARGETS = tuple(PREFIX + name for name in ABLATIONS)


@dataclass(frozen=True)
class Configuration:
    """A row of a table: a method, and its differences from the recipe.

    ``value`` is the varied value of an ablation. In table 6, ``calibrated`` says whether the mean and whether the
    covariance of new classes are calibrated. ``paper`` is the paper's row in tables 5 and 6.
    """

    method: str
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    value: float | None = None
    calibrated: tuple[bool, bool] | None = None
    paper: BetaAblation | PartsAblation | None = None


@dataclass(frozen=True)
class Setting:
    """One protocol of a table or figure with its features, its rows, and the jobs of each row, one per seed."""

    protocol: Protocol
    features: str
    rows: tuple[Configuration, ...]
    jobs: tuple[tuple[Job, ...], ...]


@dataclass(frozen=True)
class Procedure:
    """How all rows are run: seeds, form of the methods, draw of the shots, and parameters of the heads.

    ``width`` limits the random features of a head if its own number would take too long.
    """

    seeds: int = 1
    flavor: Flavor = "paper"
    shot_draw: ShotDraw = "random"
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    width: int | None = None


def plan_target(
    target: str, sources: Mapping[str, str], how: Procedure, protocol: Protocol | None = None
) -> tuple[Setting, ...]:
    """Return the settings of a table or figure that have features.

    >>> (setting,) = plan_target("figure1", {"cub200": "embedded:cub200"}, Procedure(seeds=2))
    >>> setting.protocol.name, len(setting.jobs), len(setting.jobs[0])
    ('cub200/big', 6, 2)
    """
    check_parameters(how.parameters)
    settings = []
    for wanted in target_protocols(target, protocol or ablation_protocol(sources)):
        features = features_for(wanted, sources)
        if features is not None:
            # A protocol from the caller keeps its draw unless another is requested.
            drawn = wanted if how.shot_draw == "random" else wanted.replace(shot_draw=how.shot_draw)
            rows = tuple(
                row
                for row in configurations(target, how.flavor)
                if how.width is None or row.changes.get("n_projections", 0) <= how.width
            )
            jobs = tuple(tuple(configuration_jobs(row, drawn, features, how)) for row in rows)
            settings.append(Setting(drawn, features, rows, jobs))
    return tuple(settings)


def resolve_target(target: str) -> tuple[str, ...]:
    """Return the tables and figures of a name; ``all`` are those of the paper.

    >>> resolve_target("table4")
    Traceback (most recent call last):
    fiveshot.errors.InputError: the paper has no table or figure of results 'table4'; choose from table1, ...
    """
    if target == "all":
        return TARGETS
    known = (*TARGETS, "all", *FURTHER_TARGETS)
    if re.fullmatch(r"(table|figure)\d+", target) and target not in known:
        # A wrong number is not a typing error: the nearest one would be an unrelated table.
        raise InputError(
            f"the paper has no table or figure of results {target!r}", hint=f"choose from {', '.join(known)}"
        )
    if target not in known:
        raise unknown_name("table or figure", target, known)
    return (target,)


def target_protocols(target: str, substitute: Protocol | None = None) -> tuple[Protocol, ...]:
    """Return the protocols of a table or figure; ``substitute`` replaces the protocol of the ablations.

    >>> [protocol.name for protocol in target_protocols("table2")]
    ['cars/small', 'cars/big']
    """
    if target in SUBSTITUTED or target.startswith(PREFIX):
        return (substitute or get_protocol(ABLATION_PROTOCOL),)
    return tuple(map(get_protocol, SETTINGS[target]))


def protocols_of(target: str, datasets: Collection[str]) -> tuple[Protocol, ...]:
    """Return the protocols of a table or figure, or of all, that can be run with photos of these datasets.

    >>> [protocol.name for protocol in protocols_of("all", ["cub200"])]
    ['cub200/small', 'cub200/big']
    """
    substitute = ablation_protocol({name: name for name in datasets})
    found = (one for name in resolve_target(target) for one in target_protocols(name, substitute))
    return tuple(dict.fromkeys(one for one in found if one.dataset in datasets))


def ablation_protocol(sources: Mapping[str, str]) -> Protocol:
    """Return the protocol of the paper's ablations, or its substitute if it has no features."""
    papers = get_protocol(ABLATION_PROTOCOL)
    return papers if features_for(papers, sources) else get_protocol(SUBSTITUTE_PROTOCOL)


def configurations(target: str, flavor: Flavor = "paper") -> tuple[Configuration, ...]:
    """Return the rows of a table or figure; figure 2 has none, because it shows only features.

    >>> [(row.method, dict(row.changes)) for row in configurations("table5")[:2]]
    [('c-fecam', {'beta': 0.5}), ('c-fecam', {'beta': 1.0})]
    """
    if target == "figure2":
        return ()
    if target == "table5":
        rows = paper_beta_ablation()
        return tuple(Configuration(row.method.lower(), {"beta": row.beta}, paper=row) for row in rows)
    if target == "table6":
        return parts_rows()
    if target.startswith(PREFIX):
        return ablation_rows(target.removeprefix(PREFIX), flavor)
    return tuple(map(Configuration, MAIN_METHODS))


def parts_rows() -> tuple[Configuration, ...]:
    """Return the rows of table 6, each family with one the paper leaves out: only the covariance calibrated."""
    rows = []
    for row in paper_parts_ablation():
        method, parts = row.method.lower(), (row.mean_calibrated, row.covariance_calibrated)
        if all(parts):
            rows.append(_partly(method, mean=False, covariance=True))
        rows.append(replace(_partly(method, *parts), paper=row))
    return tuple(rows)


def ablation_rows(name: str, flavor: Flavor = "paper") -> tuple[Configuration, ...]:
    """Return the rows of an ablation, method by method, value by value.

    >>> [(row.value, dict(row.changes)) for row in ablation_rows("M")[:2]]
    [(500, {'n_projections': 500}), (1000, {'n_projections': 1000})]
    """
    ablation = ABLATIONS[name]
    rows = []
    for method, value in product(ablation.methods, ablation.values):
        changed: Any = value
        if name == "samples":  # one field of the recipe's sampling
            changed = replace(own_parameters(make_scorer(method, flavor))["sampling"], per_class=value)
        rows.append(Configuration(method, {ablation.parameter: changed}, value))
    return tuple(rows)


def configuration_jobs(
    configuration: Configuration, protocol: Protocol, features: str, how: Procedure
) -> list[Job]:
    """Return a row's jobs, one per seed; the row's changes override the given parameters."""
    changes = dict(configuration.changes)
    shots = changes.pop("shots", None)  # of the protocol, not of the head
    narrowed = {} if how.width is None else {"n_projections": how.width}
    return make_jobs(
        protocol if shots is None else protocol.replace(shots=shots),
        features,
        methods=[configuration.method],
        seeds=how.seeds,
        flavor=how.flavor,
        parameters={**narrowed, **how.parameters, **changes},
    )


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuse a parameter that no head has; others go to the heads that have them."""
    known = sorted({name for method in RECIPES for name in own_parameters(make_scorer(method))})
    for name in parameters:
        if name not in known:
            raise InputError(f"no head has a parameter {name!r}", hint=f"choose from {', '.join(known)}")


def _partly(method: str, mean: bool, covariance: bool) -> Configuration:
    """Return a row of table 6, with the uncalibrated parts turned off."""
    changes: dict[str, Any] = {}
    if own_parameters(make_scorer(method)).get("calibration") is not None:
        changes |= {} if mean else {"alpha": 1.0}
        changes |= {} if covariance else {"beta": None}
    return Configuration(method, changes, calibrated=(mean, covariance))


@dataclass(frozen=True)
class MissingFeatures:
    """A dataset without features.

    Parameters
    ----------
    dataset : str
        Its name.
    protocols : tuple of str
        Protocols that need it.
    folder : str
        Folder of feature files.

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
        """The commands to run, in this order; a dataset that cannot be downloaded must be in place first."""
        target = Path(self.folder) / f"{self.dataset}.safetensors"
        extract = command("extract", "--dataset", self.dataset, "--root", "data", "--out", target)
        fetch = command("data", "fetch", self.dataset, "--root", "data")
        return (fetch, extract) if self._fetched else (extract,)

    @property
    def _fetched(self) -> bool:
        return bool(dataset_spec(self.dataset).downloads)

    def __str__(self) -> str:
        """Return the description in one line."""
        waiting = f" (for {', '.join(self.protocols)})" if self.protocols else ""
        way = "get them with"
        if not self._fetched:
            way = (
                f"{dataset_spec(self.dataset).title} cannot be downloaded: put a copy into data/{self.dataset} "
                f"('fiveshot data fetch {self.dataset}' says from where, and how to lay it out), then"
            )
        return f"features of {self.dataset}{waiting}; {way}: {' && '.join(self.commands)}"


def find_feature_files(folder: FilePath | None = None, *, embedded: bool = True) -> dict[str, str]:
    """Return the available feature source of each of the paper's datasets.

    A ``.safetensors`` or ``.npz`` file of the folder belongs to the dataset in its provenance or its name
    (``cars.safetensors``, ``cifar-100_vit.npz``). An adapter is trained on the base classes of one protocol. So a
    file whose name contains ``small`` or ``big`` (``cub200-big.safetensors``) is used only for that protocol,
    under the protocol's name. For datasets without a file, the embedded packs are used.

    Parameters
    ----------
    folder : path, optional
        Where to look.
    embedded : bool, default True
        Whether to use embedded packs, too.

    Returns
    -------
    dict of str to str
        The source of each dataset or protocol.

    Raises
    ------
    InputError
        If the folder does not exist, or two files belong to one dataset.
    StorageError
        If a file that is named after a dataset cannot be read.

    Examples
    --------
    >>> from fiveshot.reports import find_feature_files
    >>> find_feature_files()
    {'cub200': 'embedded:cub200-vit', 'cub200/small': ..., 'cub200/big': 'embedded:cub200-vit-big'}
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
    own = [dataset for dataset in DATASETS if embedded and dataset not in found]
    packs = {dataset: embedded_source(dataset) for dataset in own}
    packs |= {f"{dataset}/{start}": embedded_source(dataset, start) for dataset in own for start in STARTS}
    return {place: pack for place, pack in packs.items() if pack is not None} | found


def features_for(protocol: Protocol, sources: Mapping[str, str]) -> str | None:
    """Return the features for a protocol: its own, else those of its dataset."""
    return sources.get(protocol.name) or sources.get(protocol.dataset)


def missing_features(
    protocols: Iterable[Protocol], sources: Mapping[str, str], folder: FilePath | None
) -> tuple[MissingFeatures, ...]:
    """Return the missing features for these protocols, dataset by dataset."""
    waiting: dict[str, dict[str, None]] = {}
    for protocol in protocols:
        if features_for(protocol, sources) is None:
            waiting.setdefault(protocol.dataset, {})[protocol.name] = None
    place = "features" if folder is None else os.fspath(folder)
    return tuple(MissingFeatures(dataset, tuple(names), place) for dataset, names in waiting.items())


def named_dataset(text: str) -> str | None:
    """Return the dataset that a name contains as whole words.

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
        # A file that is named after a dataset and cannot be read is an error; other files are ignored.
        if by_name:
            raise
        return None
    dataset = None if said is None else named_dataset(said) or by_name
    starts = [start for start in STARTS if start in _words(path.stem)]
    return f"{dataset}/{starts[0]}" if dataset and len(starts) == 1 else dataset


def _said_inside(path: Path) -> str | None:
    """Return the dataset in a feature file, an empty text for an .npz, and None if it is not a feature file."""
    if path.suffix == ".safetensors":
        return FeatureSet.load(path).provenance.dataset
    try:
        with np.load(path, allow_pickle=False) as file:
            return "" if set(FEATURE_ARRAYS) <= set(getattr(file, "files", ())) else None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(f"cannot read {path} ({error})", hint="get a fresh copy of it") from error


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())

"""A job: one head under one protocol on one set of features, completely fixed before it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fiveshot.benchmark.protocol import PROTOCOLS, Protocol, get_protocol
from fiveshot.core.scorers import (
    RECIPES,
    Flavor,
    check_parameters,
    make_scorer,
    own_parameters,
    parameter_names,
    plain_parameters,
    recipe_name,
    source_digest,
)
from fiveshot.data import dataset_spec, read_session_lists
from fiveshot.errors import InputError, unknown_name
from fiveshot.features import FeatureSet, embedded_features, embedded_packs, load_features
from fiveshot.heads import FewShotHead, ScorerHead, TunedHead, make_head, plain_head
from fiveshot.plugins import load_plugin, load_plugins, plugin_files

EMBEDDED = "embedded:"
ALPHA = {"cifar100": 0.75}  # the paper's alpha by dataset; all others use 0.9, the value of the recipes
DEFAULT_PROTOCOL = "cub200/big"


@dataclass(frozen=True)
class Job:
    """A method to run under a protocol on a set of features.

    Parameters
    ----------
    protocol : Protocol
        Which classes come when.
    method : str
        The name of a recipe.
    features : str
        A feature file, or ``embedded:NAME`` for a pack of the package.
    flavor : {"paper", "published"}
        Which form of the recipe.
    parameters : mapping
        Values of the head that differ from the recipe's; :func:`protocol_head` sets the others.
    sessions : str, optional
        A folder of official session lists, which replace the protocol's own sessions.
    plugins : tuple of str
        Files that may define the method.

    Examples
    --------
    >>> from fiveshot.benchmark import Job, get_protocol
    >>> job = Job(get_protocol("cub200/big"), "ranpac", "embedded:cub200", parameters={"n_projections": 500})
    >>> job.head().n_projections
    500
    >>> job.folder
    'cub200-big/ranpac/seed0-...'
    """

    protocol: Protocol
    method: str
    features: str
    flavor: Flavor = "paper"
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    sessions: str | None = None
    plugins: tuple[str, ...] = field(default_factory=plugin_files, compare=False)

    def head(self) -> FewShotHead:
        """Return the unfitted head, a fresh copy each time."""
        return deepcopy(self._unfitted)

    def config(self) -> dict[str, Any]:
        """Return everything that affects the numbers, as JSON values."""
        return run_config(
            self.protocol,
            self.method,
            self._unfitted,
            flavor=self.flavor,
            features=features_fingerprint(self.features),
            sessions=None if self.sessions is None else lists_fingerprint(Path(self.sessions)),
        )

    @property
    def identity(self) -> str:
        """Short name of the configuration; equal jobs have equal names."""
        text = json.dumps(self.config(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def folder(self) -> str:
        """Folder of the run below the output folder."""
        protocol = self.protocol.name.replace("/", "-")
        method = self.method if self.flavor == "paper" else f"{self.method}.{self.flavor}"
        return f"{protocol}/{method.replace('*', '-star')}/seed{self.protocol.shot_seed}-{self.identity}"

    @cached_property
    def _unfitted(self) -> FewShotHead:
        """The head, built once in each process."""
        if self.method not in RECIPES:  # in another process than the one that created the job
            for file in self.plugins:
                load_plugin(file)
        return protocol_head(self.method, self.protocol, self.flavor, self.parameters)

    def __getstate__(self) -> dict[str, Any]:
        # Without the head: its class may come from a plugin that the other process has not yet loaded.
        return {name: value for name, value in self.__dict__.items() if name != "_unfitted"}


def protocol_head(
    method: str, protocol: Protocol, flavor: Flavor = "paper", parameters: Mapping[str, Any] | None = None
) -> FewShotHead:
    """Return the unfitted head of a recipe's name under a protocol.

    ``parameters`` are always kept. Otherwise random numbers use the seed of the shots, and a calibration
    uses the paper's alpha for the dataset.

    >>> from fiveshot.benchmark import get_protocol
    >>> cifar = get_protocol("cifar100/small").replace(shot_seed=3)
    >>> head = protocol_head("c-ranpac", cifar)
    >>> head.calibration.alpha, head.random_state
    (0.75, 3)
    """
    given = dict(parameters or {})
    if protocol.dataset in ALPHA and not {"alpha", "calibration"} & set(given) and _is_calibrated(method, flavor):
        given["alpha"] = ALPHA[protocol.dataset]
    head = make_head(method, flavor, **given)
    known = {*head.get_params(deep=False), *own_parameters(plain_head(head).unlearned_scorer())}
    if "random_state" in known and "random_state" not in given:
        head.set_params(random_state=protocol.shot_seed)
    return head


def run_config(
    protocol: Protocol,
    method: str,
    head: FewShotHead,
    *,
    features: str,
    flavor: Flavor = "paper",
    sessions: str | None = None,
) -> dict[str, Any]:
    """Return everything that affects a run's numbers; ``features`` and ``sessions`` are fingerprints."""
    return {
        "protocol": asdict(protocol),
        "sessions": sessions,
        "method": method,
        "flavor": flavor,
        "head": head_config(head),
        "features": features,
    }


def head_config(head: FewShotHead) -> dict[str, Any]:
    """Return everything that affects a head's numbers; with a digest of the file of a foreign class."""
    inside = plain_head(head)
    scorer = inside.unlearned_scorer()
    kind = type(scorer if isinstance(inside, ScorerHead) else inside).__name__
    parameters = plain_parameters(own_parameters(scorer))
    config: dict[str, Any] = {"class": kind, "parameters": parameters}
    if isinstance(head, TunedHead):
        own = {name: value for name, value in head.get_params(deep=False).items() if name != "head"}
        inner = {"type": kind, **parameters}
        config = {"class": TunedHead.__name__, "parameters": {"head": inner, **plain_parameters(own)}}
    source = source_digest(type(scorer))
    return config if source is None else {**config, "source": source}


def open_features(source: str) -> FeatureSet:
    """Open a feature file or an embedded pack; the last few stay open until their files change.

    Parameters
    ----------
    source : str
        A file, or ``embedded:NAME``.

    Returns
    -------
    FeatureSet
        The features.

    Examples
    --------
    >>> from fiveshot.benchmark import open_features
    >>> open_features("embedded:cub200")
    FeatureSet('cub200': 5994 training and 5794 test vectors of 320 float16, 200 classes)
    """
    return _opened(source, *_mark(source))


def embedded_source(dataset: str, start: str = "") -> str | None:
    """Return the embedded features of a dataset from a plain ViT (as in the paper), or None.

    Parameters
    ----------
    dataset : str
        The name of a dataset.
    start : str, optional
        ``big`` or ``small``: prefer features of a ViT that was adapted on the base classes of that start with the
        paper's recipe.

    Returns
    -------
    str or None
        The source for :func:`open_features`.

    Examples
    --------
    >>> from fiveshot.benchmark import embedded_source
    >>> embedded_source("cub200", "big"), embedded_source("cub200"), embedded_source("cars")
    ('embedded:cub200-vit-big', 'embedded:cub200-vit', None)
    """
    names = f"{dataset}-vit-{start}", f"{dataset}-vit"
    return next((EMBEDDED + name for name in names if name in embedded_packs()), None)


def features_fingerprint(source: str) -> str:
    """Return the fingerprint of the features in a file or an embedded pack."""
    return _fingerprint(source, *_mark(source))


def lists_fingerprint(folder: Path) -> str:
    """Return a hash over the session lists in a folder; the path does not count."""
    listed = json.dumps(read_session_lists(folder).train)
    return f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}"


def fingerprint(features: FeatureSet) -> str:
    """Return a hash over vectors, labels and class names."""
    digest = hashlib.sha256(json.dumps(features.class_names).encode())
    for array in (features.train_x, features.train_y, features.test_x, features.test_y):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _is_calibrated(method: str, flavor: Flavor) -> bool:
    """Tell whether a recipe has a calibration; ``alpha`` is then a field of it."""
    scorer = make_scorer(method, flavor)
    return "calibration" in own_parameters(scorer) and "alpha" in parameter_names(scorer)


@lru_cache(maxsize=4)
def _opened(source: str, _changed: int, _size: int) -> FeatureSet:
    """Open features; the other arguments are only cache keys, so a changed file is opened again."""
    if source.startswith(EMBEDDED):
        return embedded_features(source.removeprefix(EMBEDDED))
    return load_features(source)


@lru_cache(maxsize=16)
def _fingerprint(source: str, changed: int, size: int) -> str:
    return fingerprint(_opened(source, changed, size))


def _mark(source: str) -> tuple[int, int]:
    """Return the time of the last change and the size of a file, or of the files in a folder."""
    path = Path(source)
    try:
        files = [file.stat() for file in (path.iterdir() if path.is_dir() else (path,))]
    except OSError:  # an embedded pack, or a missing file: opening it raises the error
        return 0, 0
    return max((file.st_mtime_ns for file in files), default=0), sum(file.st_size for file in files)


def choose_protocol(name: str | None, features: str | None, changes: Mapping[str, Any]) -> Protocol:
    """Return the named protocol, or one that fits the features, with some values changed."""
    if name is None and features is not None:
        protocol = fitting_protocol(features)
    else:
        protocol = get_protocol(name or DEFAULT_PROTOCOL)
    wanted = {key: value for key, value in changes.items() if value is not None}
    n_classes = protocol.n_classes if features is None else len(open_features(features).class_names)
    if protocol.n_classes != n_classes:
        raise InputError(
            f"protocol {protocol.name!r} has {protocol.n_classes} classes, the features have {n_classes}",
            hint="leave the protocol out, and set the sessions with --base and --increment",
        )
    return protocol.replace(**wanted) if wanted else protocol


def fitting_protocol(features: str) -> Protocol:
    """Return a protocol for features of any dataset: half of the classes, then the rest in ten sessions."""
    found = open_features(features)
    n_classes, dataset = len(found.class_names), found.provenance.dataset
    known = PROTOCOLS.get(f"{dataset}/big")
    if known is not None and known.n_classes == n_classes:
        return known
    base = (n_classes + 1) // 2
    return Protocol(
        name=dataset or "own",
        dataset=dataset or "own",
        n_classes=n_classes,
        base_classes=base,
        increment=max(1, -(-(n_classes - base) // 10)),
    )


def choose_features(features: str | None, protocol: str | None) -> str:
    """Return the given feature source, or the embedded pack that suits the protocol."""
    if features is not None:
        path = Path(features)
        if path.exists() or path.suffix or features.startswith(EMBEDDED):
            return features
        if features not in embedded_packs():
            raise unknown_name("embedded features", features, embedded_packs(), elsewhere="or give a feature file")
        return EMBEDDED + features
    named = get_protocol(protocol or DEFAULT_PROTOCOL)
    dataset, start = named.dataset, named.name.partition("/")[2]
    source = embedded_source(dataset, start)
    if source is None:
        way = f"get the images with 'fiveshot data fetch {dataset}'"
        if not dataset_spec(dataset).downloads:
            way = f"get the images by hand ('fiveshot data fetch {dataset}' says where)"
        raise InputError(
            f"the package contains no features of {dataset}",
            hint=f"{way} and give them with --images, or give extracted features with --features",
        )
    return source


def make_jobs(
    protocol: Protocol,
    features: str,
    *,
    methods: Sequence[str],
    seeds: int,
    flavor: Flavor = "paper",
    parameters: Mapping[str, Any] | None = None,
    sessions: str | None = None,
    needed: Collection[str] = (),
) -> list[Job]:
    """Return one job per method and seed; without ``methods``, for every head.

    A parameter is given to the heads that have it; they refuse a value out of its range. The names in ``needed``
    must be parameters of at least one head.
    """
    if seeds < 1:
        raise InputError(f"seeds must be at least 1, got {seeds}")
    if not methods:
        load_plugins()
    jobs: list[Job] = []
    known: set[str] = set()
    for method in dict.fromkeys(recipe_name(name, kind="method") for name in methods or RECIPES):
        names = parameter_names(make_scorer(method, flavor))
        known.update(names)
        fitting = {key: value for key, value in (parameters or {}).items() if key in names}
        first = Job(protocol, method, features, flavor, fitting, sessions)
        check_parameters(plain_head(first.head()).unlearned_scorer())
        drawn = range(protocol.shot_seed, protocol.shot_seed + seeds)
        jobs += [replace(first, protocol=protocol.replace(shot_seed=seed)) for seed in drawn]
    for name in needed:
        if name not in known:
            raise InputError(
                f"none of the methods has a parameter {name!r}", hint=f"they have {', '.join(sorted(known))}"
            )
    return jobs

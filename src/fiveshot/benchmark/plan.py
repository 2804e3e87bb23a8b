"""From what a user asks for to the jobs that answer it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fiveshot.benchmark.job import Adapter, Job, adapted_source, embedded_source, open_features
from fiveshot.benchmark.protocol import PROTOCOLS, Protocol, get_protocol
from fiveshot.data.registry import dataset_spec
from fiveshot.errors import InputError
from fiveshot.heads import RECIPES, make_head
from fiveshot.heads.estimator import parameter_names
from fiveshot.heads.head import Flavor
from fiveshot.heads.registry import recipe_name
from fiveshot.heads.tuned import plain_head
from fiveshot.plugins import load_plugins

DEFAULT_PROTOCOL = "cub200/big"


def choose_protocol(name: str | None, features: str | None, changes: Mapping[str, Any]) -> Protocol:
    """Return the protocol of a name, or one that fits the features, with some values changed."""
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
    """Return the protocol for features of any dataset: half the classes, then the rest in ten sessions."""
    found = open_features(features)
    n_classes, dataset = len(found.class_names), found.provenance.dataset
    for protocol in PROTOCOLS.values():
        if protocol.name == f"{dataset}/big" and protocol.n_classes == n_classes:
            return protocol
    base = (n_classes + 1) // 2
    return Protocol(
        name=dataset or "own",
        dataset=dataset or "own",
        n_classes=n_classes,
        base_classes=base,
        increment=max(1, -(-(n_classes - base) // 10)),
    )


def choose_features(features: str | None, protocol: str | None, adapter: Adapter | None = None) -> str:
    """Return the feature source: the file given, or the embedded pack of the protocol's dataset."""
    if features is not None:
        if adapter is not None:
            raise InputError(
                "--adapter chooses embedded features; a feature file comes with its own adapter or without one"
            )
        return features
    named = get_protocol(protocol or DEFAULT_PROTOCOL)
    if adapter is not None:
        return adapted_source(named, adapter)
    dataset = named.dataset
    source = embedded_source(dataset)
    if source is None:
        way = f"get the images with 'fiveshot data fetch {dataset}'"
        if not dataset_spec(dataset).downloads:
            way = f"get the images by hand ('fiveshot data fetch {dataset}' says from where)"
        raise InputError(
            f"no features of {dataset} come with the package",
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
    """Return one job per method and seed; without ``methods``, of every head there is.

    A parameter goes to the heads that have it, which refuse a value out of its range. Those in ``needed`` must be
    parameters of at least one head.
    """
    if seeds < 1:
        raise InputError(f"seeds must be at least 1, got {seeds}")
    if not methods:
        load_plugins()
    jobs: list[Job] = []
    known: set[str] = set()
    for method in dict.fromkeys(recipe_name(name, kind="method") for name in methods or RECIPES):
        names = parameter_names(make_head(method, flavor))
        known.update(names)
        fitting = {key: value for key, value in (parameters or {}).items() if key in names}
        first = Job(protocol, method, features, flavor, fitting, sessions)
        plain_head(first.head()).check_parameters()
        drawn = range(protocol.shot_seed, protocol.shot_seed + seeds)
        jobs += [replace(first, protocol=protocol.replace(shot_seed=seed)) for seed in drawn]
    for name in needed:
        if name not in known:
            raise InputError(
                f"none of the methods has a parameter {name!r}", hint=f"they have {', '.join(sorted(known))}"
            )
    return jobs

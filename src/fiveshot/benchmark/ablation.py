"""Ablations: one value of a method or of the protocol varied, everything else as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fiveshot.benchmark.job import Job
from fiveshot.benchmark.plan import make_jobs
from fiveshot.benchmark.protocol import Protocol
from fiveshot.errors import InputError, unknown_name
from fiveshot.heads import Sampling, make_head
from fiveshot.heads.parameters import parameter_names
from fiveshot.heads.recipes import Flavour

CALIBRATED = ("teen", "c-fecam", "c-ranpac")


@dataclass(frozen=True)
class Ablation:
    """What is varied: its symbol for a reader, the methods it matters to, the values tried unless others are."""

    name: str
    symbol: str
    methods: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class AblationJob:
    """A job, and the value it has of what is varied."""

    job: Job
    value: float


ABLATIONS = {
    ablation.name: ablation
    for ablation in (
        Ablation("tau", "τ", CALIBRATED, (1, 4, 8, 16, 32, 64)),
        Ablation("alpha", "α", CALIBRATED, (0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)),
        Ablation("beta", "β", ("c-fecam", "c-ranpac"), (0.5, 1.0, 1.5)),
        Ablation(
            "shots", "images per new class", ("ncm", "fecam", "c-fecam", "ranpac", "c-ranpac"), (1, 2, 5, 10, 20)
        ),
        Ablation("M", "random features M", ("ranpac", "c-ranpac"), (500, 1000, 2000, 5000, 10_000)),
        Ablation("samples", "samples per new class", ("ranpac*", "c-ranpac"), (5, 25, 100, 400, 800, 1600)),
    )
}


def get_ablation(name: str) -> Ablation:
    """Return an ablation by name.

    >>> get_ablation("alfa")
    Traceback (most recent call last):
    fiveshot.errors.InputError: no ablation 'alfa'; did you mean 'alpha'? choose from M, alpha, beta, samples, ...
    """
    if name not in ABLATIONS:
        raise unknown_name("ablation", name, ABLATIONS)
    return ABLATIONS[name]


def ablation_jobs(
    name: str,
    protocol: Protocol,
    features: str,
    *,
    seeds: int,
    values: Sequence[float] | None = None,
    methods: Sequence[str] | None = None,
    flavour: Flavour = "paper",
    parameters: Mapping[str, Any] | None = None,
) -> list[AblationJob]:
    """Return the jobs of an ablation, method by method, value by value, seed by seed.

    ``parameters`` go to the heads that have them; the varied value goes before them.

    >>> from fiveshot.benchmark import get_protocol
    >>> found = ablation_jobs("shots", get_protocol("cub200/big"), "embedded:cub200", seeds=2, methods=["ncm"])
    >>> [(entry.value, entry.job.protocol.shot_seed) for entry in found[:3]]
    [(1, 0), (1, 1), (2, 0)]
    """
    ablation = get_ablation(name)
    found = []
    for method in methods or ablation.methods:
        for value in values or ablation.values:
            varied = protocol.replace(shots=_whole(name, value)) if name == "shots" else protocol
            changes = varied_parameters(method, flavour, name, value)
            jobs = make_jobs(
                varied,
                features,
                methods=[method],
                seeds=seeds,
                flavour=flavour,
                parameters={**(parameters or {}), **changes},
            )
            found += [AblationJob(job, value) for job in jobs]
    return found


def varied_parameters(method: str, flavour: Flavour, name: str, value: float) -> dict[str, Any]:
    """Return what a head must be given so that the varied value takes effect; nothing for the protocol's own."""
    if name == "shots":
        return {}
    if name == "M":
        wanted: dict[str, Any] = {"n_projections": _whole(name, value)}
    elif name == "samples":
        wanted = {"sampling": replace(_sampling(method, flavour), per_class=_whole(name, value))}
    else:
        wanted = {name: value}
    known = parameter_names(make_head(method, flavour))
    if not set(wanted) <= set(known):
        raise InputError(
            f"{name} means nothing to {method!r}; choose from {', '.join(get_ablation(name).methods)}"
        )
    make_head(method, flavour, **wanted)  # refuses a value that makes no sense before anything runs
    return wanted


def _sampling(method: str, flavour: Flavour) -> Sampling:
    own = make_head(method, flavour).get_params(deep=False).get("sampling")
    if not isinstance(own, Sampling):
        raise InputError(f"{method!r} draws no samples; choose from {', '.join(get_ablation('samples').methods)}")
    return own


def _whole(name: str, value: float) -> int:
    if value != int(value) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)

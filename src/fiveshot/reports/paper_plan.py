"""Which runs a table or figure needs, given the features that are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fiveshot.benchmark import Job, Protocol, get_protocol
from fiveshot.benchmark.ablation import ablation_jobs
from fiveshot.benchmark.paper import (
    ABLATION_PROTOCOL,
    PREFIX,
    SUBSTITUTE_PROTOCOL,
    configuration_jobs,
    configurations,
    target_protocols,
)
from fiveshot.benchmark.protocol import ShotDraw
from fiveshot.errors import InputError
from fiveshot.heads import RECIPES, make_head
from fiveshot.heads.recipes import Flavour
from fiveshot.reports.feature_files import features_for


@dataclass(frozen=True)
class Setting:
    """One protocol of a table or figure with its features: the jobs of each row, one per seed.

    ``values`` are what an ablation varies, row by row; other targets have none.
    """

    protocol: Protocol
    features: str
    rows: tuple[tuple[Job, ...], ...]
    values: tuple[float, ...] = ()


def plan_target(
    target: str,
    sources: Mapping[str, str],
    *,
    seeds: int,
    flavour: Flavour = "paper",
    shot_draw: ShotDraw = "random",
    parameters: Mapping[str, Any] | None = None,
    protocol: Protocol | None = None,
) -> tuple[Setting, ...]:
    """Return the settings of a table or figure for which there are features.

    >>> (setting,) = plan_target("figure1", {"cub200": "embedded:cub200"}, seeds=2)
    >>> setting.protocol.name, len(setting.rows), len(setting.rows[0])
    ('cub200/big', 6, 2)
    """
    check_parameters(parameters or {})
    settings = []
    for wanted in target_protocols(target, protocol or ablation_protocol(sources)):
        features = features_for(wanted, sources)
        if features is None:
            continue
        # A protocol of the caller's own keeps its draw unless another is asked for.
        drawn = wanted if shot_draw == "random" else wanted.replace(shot_draw=shot_draw)
        if target.startswith(PREFIX):
            settings.append(_ablation(target.removeprefix(PREFIX), drawn, features, seeds, flavour, parameters))
        else:
            rows = tuple(
                tuple(
                    configuration_jobs(row, drawn, features, seeds=seeds, flavour=flavour, parameters=parameters)
                )
                for row in configurations(target)
            )
            settings.append(Setting(drawn, features, rows))
    return tuple(settings)


def ablation_protocol(sources: Mapping[str, str]) -> Protocol:
    """Return the protocol of the paper's ablations, or its substitute where there are no features for it."""
    papers = get_protocol(ABLATION_PROTOCOL)
    return papers if features_for(papers, sources) else get_protocol(SUBSTITUTE_PROTOCOL)


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Refuse a parameter that no head has; others go to the heads that have them."""
    known = sorted({name for method in RECIPES for name in make_head(method).get_params(deep=False)})
    for name in parameters:
        if name not in known:
            raise InputError(f"no head has a parameter {name!r}; choose from {', '.join(known)}")


def _ablation(
    name: str,
    protocol: Protocol,
    features: str,
    seeds: int,
    flavour: Flavour,
    parameters: Mapping[str, Any] | None,
) -> Setting:
    entries = ablation_jobs(name, protocol, features, seeds=seeds, flavour=flavour, parameters=parameters)
    groups = [list(group) for _, group in groupby(entries, key=lambda entry: (entry.job.method, entry.value))]
    rows = tuple(tuple(entry.job for entry in group) for group in groups)
    return Setting(protocol, features, rows, tuple(group[0].value for group in groups))

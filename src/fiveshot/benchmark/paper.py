"""What each table and figure of the paper needs: protocols, methods and their calibration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fiveshot.benchmark.ablation import ABLATIONS
from fiveshot.benchmark.job import Job
from fiveshot.benchmark.paper_figures import paper_beta_ablation, paper_parts_ablation
from fiveshot.benchmark.plan import make_jobs
from fiveshot.benchmark.protocol import Protocol, get_protocol
from fiveshot.errors import InputError, unknown_name
from fiveshot.heads import make_head
from fiveshot.heads.recipes import Flavour

MAIN_METHODS = ("ncm", "teen", "fecam", "c-fecam", "ranpac", "c-ranpac")
ABLATION_PROTOCOL = "cars/small"  # where the paper ablates, and what its figure 2 shows
SUBSTITUTE_PROTOCOL = "cub200/small"  # the like of it whose features come with the package
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
FURTHER_TARGETS = tuple(PREFIX + name for name in ABLATIONS)


@dataclass(frozen=True)
class Configuration:
    """A row of a table: a method, and what differs from its recipe's calibration."""

    method: str
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Part:
    """Which statistics of new classes a row of table 6 calibrates; ``paper`` where the paper has that row."""

    configuration: Configuration
    mean: bool
    covariance: bool
    paper: bool = True


def resolve_target(target: str) -> tuple[str, ...]:
    """Return the tables and figures of a name; ``all`` are those of the paper.

    >>> resolve_target("table4")
    Traceback (most recent call last):
    fiveshot.errors.InputError: 'table4' is no table or figure of results in the paper; choose from table1, ...
    """
    if target == "all":
        return TARGETS
    known = (*TARGETS, "all", *FURTHER_TARGETS)
    if re.fullmatch(r"(table|figure)\d+", target) and target not in known:
        # Another number is no slip of the finger: the nearest one would be a table about something else.
        raise InputError(
            f"{target!r} is no table or figure of results in the paper; choose from {', '.join(known)}"
        )
    if target not in known:
        raise unknown_name("table or figure", target, known)
    return (target,)


def target_protocols(target: str, substitute: Protocol | None = None) -> tuple[Protocol, ...]:
    """Return the protocols of a table or figure; ``substitute`` takes the place of the ablations' one.

    >>> [protocol.name for protocol in target_protocols("table2")]
    ['cars/small', 'cars/big']
    """
    if target in SUBSTITUTED or target.startswith(PREFIX):
        return (substitute or get_protocol(ABLATION_PROTOCOL),)
    return tuple(map(get_protocol, SETTINGS[target]))


def configurations(target: str) -> tuple[Configuration, ...]:
    """Return the rows of a table or figure; figure 2 has none, it shows features and no method.

    >>> [(row.method, dict(row.changes)) for row in configurations("table5")[:2]]
    [('c-fecam', {'beta': 0.5}), ('c-fecam', {'beta': 1.0})]
    """
    if target == "figure2":
        return ()
    if target == "table5":
        return tuple(Configuration(row.method.lower(), {"beta": row.beta}) for row in paper_beta_ablation())
    if target == "table6":
        return tuple(part.configuration for part in parts())
    return tuple(map(Configuration, MAIN_METHODS))


def parts() -> tuple[Part, ...]:
    """Return the rows of table 6, each family with one the paper leaves out: only the covariance calibrated."""
    found: dict[str, list[Part]] = {"fecam": [], "ranpac": []}
    for row in paper_parts_ablation():
        family = "fecam" if "fecam" in row.method.lower() else "ranpac"
        found[family].append(_part(row.method.lower(), row.mean_calibrated, row.covariance_calibrated))
    for family, rows in found.items():
        rows.insert(-1, _part(f"c-{family}", mean=False, covariance=True, paper=False))
    return tuple(part for rows in found.values() for part in rows)


def _part(method: str, mean: bool, covariance: bool, paper: bool = True) -> Part:
    changes: dict[str, Any] = {}
    if make_head(method).get_params(deep=False).get("calibration") is not None:
        changes |= {} if mean else {"alpha": 1.0}
        changes |= {} if covariance else {"beta": None}
    return Part(Configuration(method, changes), mean, covariance, paper)


def configuration_jobs(
    configuration: Configuration,
    protocol: Protocol,
    features: str,
    *,
    seeds: int,
    flavour: Flavour = "paper",
    parameters: Mapping[str, Any] | None = None,
) -> list[Job]:
    """Return a row's jobs under a protocol, one per seed."""
    given = {**(parameters or {}), **configuration.changes}
    return make_jobs(
        protocol, features, methods=[configuration.method], seeds=seeds, flavour=flavour, parameters=given
    )

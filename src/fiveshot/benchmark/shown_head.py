"""The head of a run as a reader wants to see it: one that tunes itself as the one inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fiveshot.benchmark.record import RunRecord
from fiveshot.heads import TunedHead

SEEDS = ("random_state",)  # parameters that follow the seed of the shots
PLAYED = {"shots": 5, "episodes": 8}  # of heads that tune themselves, unless said otherwise


def shown_head(record: RunRecord) -> tuple[str, dict[str, Any]]:
    """Return class and parameters of a run's head; of one that tunes itself those inside, ``auto`` among them."""
    head = record.config["head"]
    kind, parameters = head["class"], dict(head["parameters"])
    if kind == TunedHead.__name__:
        inside = dict(parameters["head"])
        played = {key: parameters[key] for key in ("shots", "episodes")}
        kind = inside.pop("type")
        parameters = {**_with_auto(inside, parameters["auto"]), **({} if played == PLAYED else played)}
    return kind, {key: value for key, value in parameters.items() if key not in SEEDS}


def _with_auto(parameters: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {
        key: "auto" if key in names else _with_auto(value, names) if isinstance(value, Mapping) else value
        for key, value in parameters.items()
    }

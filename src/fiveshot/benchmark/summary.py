"""Runs of one method over several seeds, as mean and standard deviation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fiveshot.benchmark.record import RunRecord
from fiveshot.errors import InputError
from fiveshot.metrics import Spread, mean_std


@dataclass(frozen=True)
class Summary:
    """What a table shows of a method: fractions with their spread over seeds."""

    method: str
    flavour: str
    seeds: tuple[int, ...]
    a_hm: tuple[Spread, ...]  # after session 1, 2, ...
    a_hm_mean: Spread  # averaged over the sessions of a run
    accuracy: tuple[Spread, ...]  # after session 0, 1, ...
    a_old: Spread  # after the last session
    a_new: Spread
    a_last: Spread
    a_inc: Spread
    seconds: Spread
    calibration_error: Spread | None = None  # after the last session


def summarize_runs(records: Sequence[RunRecord]) -> Summary:
    """Summarise runs that differ in nothing but the seed."""
    if not records:
        raise InputError("no runs to summarise")
    metrics = [record.metrics for record in records]
    later = range(1, len(metrics[0].sessions))
    first = records[0]
    errors = [record.calibration_error for record in records if record.calibration_error is not None]
    return Summary(
        method=first.method,
        flavour=str(first.config.get("flavour", "paper")),
        seeds=tuple(record.seed for record in records),
        a_hm=tuple(mean_std([m.sessions[number].a_hm or 0.0 for m in metrics]) for number in later),
        a_hm_mean=mean_std([_mean_hm(record) for record in records]),
        accuracy=tuple(
            mean_std([m.sessions[number].accuracy for m in metrics]) for number in range(len(later) + 1)
        ),
        a_old=mean_std([m.sessions[-1].a_old or 0.0 for m in metrics]),
        a_new=mean_std([m.sessions[-1].a_new or 0.0 for m in metrics]),
        a_last=mean_std([m.a_last for m in metrics]),
        a_inc=mean_std([m.a_inc for m in metrics]),
        seconds=mean_std([record.seconds for record in records]),
        calibration_error=mean_std(errors) if len(errors) == len(records) else None,
    )


def summarize_all(records: Sequence[RunRecord]) -> list[Summary]:
    """Group runs by everything but the seed, in order of appearance, and summarise each group."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_without_seed(record), []).append(record)
    return [summarize_runs(group) for group in groups.values()]


def _mean_hm(record: RunRecord) -> float:
    values = [session.a_hm or 0.0 for session in record.metrics.sessions[1:]]
    return sum(values) / len(values) if values else 0.0


def _without_seed(record: RunRecord) -> str:
    config = dict(record.config)
    config["protocol"] = {**config["protocol"], "shot_seed": None}
    head = config["head"]
    config["head"] = {**head, "parameters": {**head["parameters"], "random_state": None}}
    return json.dumps(config, sort_keys=True)  # a run read from its folder has lists where a fresh one has tuples

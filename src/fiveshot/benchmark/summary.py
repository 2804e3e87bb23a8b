"""Runs of one method over several seeds, as mean and standard deviation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fiveshot.benchmark.record import RunRecord
from fiveshot.benchmark.shown_head import shown_head
from fiveshot.errors import InputError, is_number
from fiveshot.metrics import RunMetrics, Spread, mean_std


@dataclass(frozen=True)
class Summary:
    """What a table shows of a method: fractions and seconds with their spread over seeds.

    >>> from fiveshot.benchmark import get_protocol, run, summarize_runs
    >>> from fiveshot.features import embedded_features
    >>> summary = summarize_runs([run(get_protocol("cub200/big"), embedded_features(), "ncm")])
    >>> summary.method, summary.seeds, len(summary.a_hm), len(summary.accuracy)
    ('ncm', (0,), 10, 11)
    """

    method: str
    flavour: str
    seeds: tuple[int, ...]
    a_hm: tuple[Spread | None, ...]  # after session 1, 2, ...
    a_hm_mean: Spread | None  # averaged over the sessions of a run; None without any after session 0
    accuracy: tuple[Spread, ...]  # after session 0, 1, ...
    a_old: Spread | None  # after the last session; None where nothing is old then
    a_new: Spread | None
    a_last: Spread
    a_inc: Spread
    seconds: Spread
    calibration_error: Spread | None = None  # after the last session
    alpha: float | None = None  # of the method's calibration, where it has one


def summarize_runs(records: Sequence[RunRecord]) -> Summary:
    """Summarise runs that differ in nothing but the seed.

    >>> from fiveshot.benchmark import get_protocol, run, summarize_runs
    >>> from fiveshot.features import embedded_features
    >>> protocols = [get_protocol("cub200/big").replace(shot_seed=seed) for seed in (0, 1)]
    >>> summary = summarize_runs([run(protocol, embedded_features(), "ncm") for protocol in protocols])
    >>> summary.seeds, f"{summary.a_last.mean:.2f} ± {summary.a_last.std:.2f}"
    ((0, 1), '0.50 ± 0.00')
    """
    if not records:
        raise InputError("no runs to summarise")
    metrics = [record.metrics for record in records]
    later = range(1, len(metrics[0].sessions))
    first = records[0]
    return Summary(
        method=first.method,
        flavour=str(first.config.get("flavour", "paper")),
        seeds=tuple(record.seed for record in records),
        a_hm=tuple(_spread([m.sessions[number].a_hm for m in metrics]) for number in later),
        a_hm_mean=_spread([_mean_hm(m) for m in metrics]),
        accuracy=tuple(
            mean_std([m.sessions[number].accuracy for m in metrics]) for number in range(len(later) + 1)
        ),
        a_old=_spread([m.sessions[-1].a_old for m in metrics]),
        a_new=_spread([m.sessions[-1].a_new for m in metrics]),
        a_last=mean_std([m.a_last for m in metrics]),
        a_inc=mean_std([m.a_inc for m in metrics]),
        seconds=mean_std([record.seconds for record in records]),
        calibration_error=_spread([record.calibration_error for record in records]),
        alpha=_alpha(first),
    )


def summarize_all(records: Sequence[RunRecord]) -> list[Summary]:
    """Group runs by everything but the seed, in order of appearance, and summarise each group.

    >>> from fiveshot.benchmark import Protocol, run, summarize_all
    >>> from fiveshot.features import embedded_features
    >>> birds = embedded_features("cub200").restrict(["001.Black_footed_Albatross", "002.Laysan_Albatross"])
    >>> protocol = Protocol("two birds", "cub200", n_classes=2, base_classes=1, increment=1)
    >>> runs = [(method, protocol.replace(shot_seed=seed)) for method in ("ncm", "teen") for seed in (0, 1)]
    >>> summaries = summarize_all([run(protocol, birds, method) for method, protocol in runs])
    >>> [(summary.method, summary.seeds) for summary in summaries]
    [('ncm', (0, 1)), ('teen', (0, 1))]
    """
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_without_seed(record), []).append(record)
    return [summarize_runs(group) for group in groups.values()]


def _spread(values: Sequence[float | None]) -> Spread | None:
    """Return mean and deviation of what every run measured, or None."""
    measured = [value for value in values if value is not None]
    return mean_std(measured) if len(measured) == len(values) else None


def _mean_hm(metrics: RunMetrics) -> float | None:
    values = [session.a_hm for session in metrics.sessions[1:]]
    measured = [value for value in values if value is not None]
    return sum(measured) / len(values) if values and len(measured) == len(values) else None


def _without_seed(record: RunRecord) -> str:
    config = dict(record.config)
    config["protocol"] = {**config["protocol"], "shot_seed": None}
    head = config["head"]
    config["head"] = {**head, "parameters": {**head["parameters"], "random_state": None}}
    return json.dumps(config, sort_keys=True)  # a run read from its folder has lists where a fresh one has tuples


def _alpha(record: RunRecord) -> float | None:
    """Return the alpha of the head's calibration; None where it was chosen, or there is none."""
    calibration = shown_head(record)[1].get("calibration")  # of a head of one's own it may be anything
    alpha = calibration.get("alpha") if isinstance(calibration, Mapping) else None
    return alpha if is_number(alpha) else None

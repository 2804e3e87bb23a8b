"""Runs put in order: which belong to one experiment, and which of those differ in their seed alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fiveshot.benchmark import Protocol, RunRecord, Summary, summarize_runs
from fiveshot.benchmark.shown_head import shown_head
from fiveshot.metrics import Spread, mean_std
from fiveshot.reports.method_style import METHODS, method_label


@dataclass(frozen=True, eq=False)
class Variant:
    """One method with one set of parameters, run with one or more seeds.

    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import experiments
    >>> protocols = [get_protocol("cub200/big").replace(shot_seed=seed) for seed in (0, 1)]
    >>> (experiment,) = experiments([run(protocol, embedded_features(), "ncm") for protocol in protocols])
    >>> (variant,) = experiment.variants
    >>> base, new = variant.base_new
    >>> variant.label, len(variant.records), round(base.mean, 2), round(new.mean, 2)
    ('NCM', 2, 0.62, 0.37)
    """

    label: str  # tells the variants of an experiment apart
    summary: Summary
    records: tuple[RunRecord, ...]

    @property
    def base_new(self) -> tuple[Spread, Spread | None]:
        """Accuracy after the last session on the base classes, and on all classes that came later, if any did."""
        counts = [record.metrics.confusion for record in self.records]
        base = [c.base_right / (c.base_right + c.base_to_base + c.base_to_new) for c in counts]
        later = [(c.new_right, c.new_right + c.new_to_new + c.new_to_base) for c in counts]
        return mean_std(base), mean_std(a / b for a, b in later) if all(b for _, b in later) else None


@dataclass(frozen=True, eq=False)
class Experiment:
    """All variants that were run under one protocol on one set of features.

    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import experiments
    >>> record = run(get_protocol("cub200/big"), embedded_features(), "ncm")
    >>> (experiment,) = experiments([record])
    >>> experiment.protocol.name, experiment.provenance["dataset"], len(experiment.variants)
    ('cub200/big', 'cub200', 1)
    """

    protocol: Protocol
    session_lists: str | None  # which official lists, where those took the protocol's place
    provenance: Mapping[str, Any]
    variants: tuple[Variant, ...]


def experiments(records: Sequence[RunRecord]) -> tuple[Experiment, ...]:
    """Group runs by protocol and features, then by everything but the seed; a run found twice counts once.

    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.heads import NCM
    >>> from fiveshot.reports import experiments
    >>> heads = [NCM("cosine"), NCM("euclidean")]
    >>> records = [run(get_protocol("cub200/big"), embedded_features(), head) for head in heads]
    >>> [variant.label for variant in experiments(records)[0].variants]
    ['NCM, metric cosine', 'NCM, metric euclidean']
    """
    groups: dict[str, dict[str, RunRecord]] = {}
    for record in records:
        place = _key({"protocol": {**record.config["protocol"], "shot_seed": 0}, **_setting(record)})
        groups.setdefault(place, {})[_key({"config": record.config, **_setting(record)})] = record
    return tuple(_experiment(list(group.values())) for group in groups.values())


def _experiment(records: list[RunRecord]) -> Experiment:
    first = records[0]
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_key(_identity(record)), []).append(record)
    members = [sorted(group, key=lambda record: record.seed) for group in groups.values()]
    order = sorted(range(len(members)), key=lambda index: _rank(members[index][0]))
    labels = variant_labels([members[index][0] for index in order])
    return Experiment(
        protocol=Protocol(**{**first.config["protocol"], "shot_seed": 0}),
        session_lists=first.config.get("sessions"),
        provenance=first.provenance,
        variants=tuple(
            Variant(label, summarize_runs(members[index]), tuple(members[index]))
            for label, index in zip(labels, order, strict=True)
        ),
    )


def variant_labels(records: Sequence[RunRecord]) -> list[str]:
    """Return the method of each run, with the parameters that tell runs of one method apart."""
    labels = []
    for record in records:
        own = _identity(record)
        same = [_identity(r) for r in records if (r.method, _flavour(r)) == (record.method, _flavour(record))]
        parameters = flat(own["parameters"])
        others = [flat(identity["parameters"]) for identity in same]
        names = [key for key in parameters if any(other.get(key) != parameters[key] for other in others)]
        details = ", ".join(f"{key.split('.')[-1]} {parameters[key]}" for key in names)
        labels.append(method_label(record.method, _flavour(record)) + (f", {details}" if details else ""))
    return labels


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested entries under dotted names.

    >>> flat({"gamma": 100, "calibration": {"alpha": 0.9}})
    {'gamma': 100, 'calibration.alpha': 0.9}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _setting(record: RunRecord) -> dict[str, Any]:
    sources = {key: record.config.get(key) for key in ("sessions", "features")}
    return {**sources, "provenance": record.provenance, "classes": record.class_names}


def _identity(record: RunRecord) -> dict[str, Any]:
    head = record.config["head"]
    kind, parameters = shown_head(record)
    if "source" in head:  # of a head from a file of one's own: an edited one is another
        parameters["source"] = str(head["source"])[:8]
    return {
        "method": record.method,
        "flavour": _flavour(record),
        "class": kind,
        "parameters": parameters,
    }


def _flavour(record: RunRecord) -> str:
    return str(record.config.get("flavour", "paper"))


def _rank(record: RunRecord) -> tuple[int, str, str]:
    """Order the paper's methods as its tables do, and others after them by name."""
    known = list(METHODS)
    place = known.index(record.method) if record.method in METHODS else len(known)
    return place, record.method, _key(_identity(record))


def _key(values: Any) -> str:
    return json.dumps(values, sort_keys=True, default=str)

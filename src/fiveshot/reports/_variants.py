"""Group runs into experiments and variants (runs that differ only in their seed), with labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fiveshot.benchmark import Protocol, RunRecord, Summary, summarize_runs
from fiveshot.core.scorers import RECIPES, make_scorer, own_parameters, plain_parameters
from fiveshot.loggers import flat
from fiveshot.metrics import Spread, mean_std
from fiveshot.reports._styles import STYLES

MOST_DRAWN = 8
AFTER_ALL = 1 << 30
# Answers about images of base and of new classes: right, another class of the same kind, one of the other kind.
ANSWERS = {
    "base": ("base_right", "base_to_base", "base_to_new"),
    "new": ("new_right", "new_to_new", "new_to_base"),
}


def method_label(method: str, flavor: str = "paper") -> str:
    """Return the display name of a method.

    >>> method_label("c-ranpac"), method_label("teen", "published"), method_label("mine")
    ('C-RanPAC', 'TEEN (published)', 'mine')
    """
    name = (RECIPES[method].label if method in RECIPES else "") or method
    return name if flavor == "paper" else f"{name} ({flavor})"


def class_titles(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of classes as a page shows them; numbers alone could be mistaken for counts.

    >>> class_titles(["owl", "7"]), class_titles(["0", "1"])
    (('owl', '7'), ('class 0', 'class 1'))
    """
    numbers = all(name.isascii() and name.isdecimal() for name in names)
    return tuple(f"class {name}" if numbers else name for name in names)


@dataclass(frozen=True, eq=False)
class Variant:
    """One method with one set of parameters, run with one or more seeds.

    Attributes
    ----------
    label : str
        Unique name among the variants of an experiment.
    summary : Summary
        Mean and deviation of each measure.
    records : tuple of RunRecord
        The runs, one for each seed.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import experiments
    >>> protocols = [get_protocol("cub200/big").replace(shot_seed=seed) for seed in (0, 1)]
    >>> (experiment,) = experiments([run(protocol, embedded_features(), "ncm") for protocol in protocols])
    >>> (variant,) = experiment.variants
    >>> base, new = variant.base_new
    >>> variant.label, len(variant.records), round(base.mean, 2), round(new.mean, 2)
    ('NCM', 2, 0.82, 0.62)
    """

    label: str
    summary: Summary
    records: tuple[RunRecord, ...]

    @property
    def base_new(self) -> tuple[Spread | None, Spread | None]:
        """Accuracy after the last session on the base classes, and on all later classes, if any."""
        return self.answers("base")[0], self.answers("new")[0]

    def answers(self, kind: str) -> list[Spread | None]:
        """Return the share of each of ``ANSWERS`` for images of ``base`` or ``new`` classes, if any."""
        counts = [[getattr(r.metrics.confusion, name) for name in ANSWERS[kind]] for r in self.records]
        if not all(map(sum, counts)):
            return [None] * len(ANSWERS[kind])
        return [mean_std(row[place] / sum(row) for row in counts) for place in range(len(ANSWERS[kind]))]


@dataclass(frozen=True, eq=False)
class Experiment:
    """All variants that were run under one protocol on one set of features.

    Attributes
    ----------
    protocol : Protocol
        Which classes came when.
    session_lists : str or None
        Fingerprint of the official lists that replaced the protocol.
    provenance : mapping
        Where the features come from.
    variants : tuple of Variant
        The paper's methods first, in its order.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import experiments
    >>> record = run(get_protocol("cub200/big"), embedded_features(), "ncm")
    >>> (experiment,) = experiments([record])
    >>> experiment.protocol.name, experiment.provenance["dataset"], len(experiment.variants)
    ('cub200/big', 'cub200', 1)
    """

    protocol: Protocol
    session_lists: str | None
    provenance: Mapping[str, Any]
    variants: tuple[Variant, ...]


def experiments(records: Sequence[RunRecord]) -> tuple[Experiment, ...]:
    """Group runs by protocol and features, then by everything except the seed.

    Parameters
    ----------
    records : sequence of RunRecord
        The runs; duplicates count once.

    Returns
    -------
    tuple of Experiment
        The groups, in order of appearance.

    Examples
    --------
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
    """Return the variants among runs of one protocol and one set of features."""
    first = records[0]
    groups: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: (*_rank(record), record.seed)):
        groups.setdefault(_key(_identity(record)), []).append(record)
    labels = variant_labels([group[0] for group in groups.values()])
    pairs = zip(labels, groups.values(), strict=True)
    return Experiment(
        protocol=Protocol(**{**first.config["protocol"], "shot_seed": 0}),
        session_lists=first.config.get("sessions"),
        provenance=first.provenance,
        variants=tuple(Variant(label, summarize_runs(group), tuple(group)) for label, group in pairs),
    )


def variant_labels(records: Sequence[RunRecord]) -> list[str]:
    """Return the method of each run, with the parameters in which runs of one method differ."""
    labels = []
    for record in records:
        own = _identity(record)
        same = [_identity(r) for r in records if (r.method, r.flavor) == (record.method, record.flavor)]
        parameters = flat(own["parameters"])
        others = [flat(identity["parameters"]) for identity in same]
        names = [key for key in parameters if any(other.get(key) != parameters[key] for other in others)]
        details = ", ".join(sorted(f"{key.split('.')[-1]} {parameters[key]}" for key in names))
        labels.append(method_label(record.method, record.flavor) + (f", {details}" if details else ""))
    return labels


def representatives(variants: Sequence[Variant], most: int = MOST_DRAWN) -> tuple[Variant, ...]:
    """Return the variants if they are few; else, for every method and flavor, the one nearest to its recipe.

    The choice is by parameters; a choice by accuracy would favor lucky results.
    """
    if len(variants) <= most:
        return tuple(variants)
    chosen: dict[str, Variant] = {}
    for variant in variants:
        label = method_label(variant.summary.method, variant.summary.flavor)
        known = chosen.get(label)
        if known is None or _changes(variant.records[0]) < _changes(known.records[0]):
            chosen[label] = variant
    return tuple(replace(variant, label=label) for label, variant in chosen.items())


def _changes(record: RunRecord) -> int:
    """Return how many parameters differ from the recipe's."""
    if record.method not in RECIPES:
        return 0
    recipe = flat(plain_parameters(own_parameters(make_scorer(record.method, record.config["flavor"]))))
    own = flat(record.head[1])
    return sum(own.get(name) != recipe.get(name) for name in {*own, *recipe} - {"random_state"})


def _setting(record: RunRecord) -> dict[str, Any]:
    """Return what all runs of an experiment share in addition to the protocol."""
    sources = {key: record.config.get(key) for key in ("sessions", "features")}
    return {**sources, "provenance": record.provenance, "classes": record.class_names}


def _identity(record: RunRecord) -> dict[str, Any]:
    """Return what all runs of a variant share."""
    head = record.config["head"]
    kind, parameters = record.head
    if "source" in head:  # a head from a user's file: after an edit of the file it is another head
        parameters["source"] = str(head["source"])[:8]
    return {"method": record.method, "flavor": record.flavor, "class": kind, "parameters": parameters}


def _rank(record: RunRecord) -> tuple[int, str, str]:
    """Sort the paper's methods as in its tables, and others after them by name."""
    place = list(RECIPES).index(record.method) if record.method in STYLES else AFTER_ALL
    return place, record.method, _key(_identity(record))


def _key(values: Any) -> str:
    return json.dumps(values, sort_keys=True, default=str)

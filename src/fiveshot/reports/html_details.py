"""The parts of the page to look things up in: every class, and every setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiveshot.benchmark.shown_head import shown_head
from fiveshot.reports.html_table import scrolling
from fiveshot.reports.markup import Html, element, joined
from fiveshot.reports.variants import Experiment, Variant, flat


def per_class(experiment: Experiment, number: int) -> Html:
    """Return the accuracy of every class after the last session, in a table that can be sorted."""
    first = experiment.variants[0].records[0]
    session_of = {label: n for n, classes in enumerate(first.session_classes) for label in classes}
    accuracies = [_class_accuracies(variant) for variant in experiment.variants]
    rows = []
    for label, session in session_of.items():
        cells = [_share_cell(values.get(label)) for values in accuracies]
        place = element("td", "base" if session == 0 else session, class_="number", data_value=session)
        rows.append(element("tr", element("th", first.class_names[label], scope="row"), place, *cells))
    names = ["class", "session", *(variant.label for variant in experiment.variants)]
    headings = [
        element("th", name, scope="col", class_=None if n == 0 else "number") for n, name in enumerate(names)
    ]
    identity = f"classes-{number}"
    field = element("input", type="search", data_filters=identity)
    table = element(
        "table",
        element(
            "caption", element("span", "Accuracy in % of every class after the last session, mean over seeds")
        ),
        element("thead", element("tr", *headings)),
        element("tbody", *rows),
        class_="sortable",
        id=identity,
    )
    return joined(
        element("h3", "Accuracy per class"),
        element("label", "Show classes with", field, class_="filter", hidden=True),
        scrolling(table, "Accuracy per class", "scroll tall"),
    )


def configuration(experiment: Experiment) -> Html:
    """Return protocol, features, heads, seeds and versions, folded."""
    protocol = dict(experiment.variants[0].records[0].config["protocol"])
    protocol.pop("shot_seed", None)
    parts = [_fields("Protocol", protocol), _fields("Features", flat(experiment.provenance))]
    for variant in experiment.variants:
        kind, parameters = shown_head(variant.records[0])
        head = {"class": kind, **flat(parameters)}
        chosen = {f"{name}, chosen": _chosen(variant, name) for name in variant.records[0].chosen}
        seeds = ", ".join(str(record.seed) for record in variant.records)
        seconds = f"{variant.summary.seconds.mean:.2f}"
        parts.append(_fields(variant.label, {**head, **chosen, "seeds": seeds, "seconds per run": seconds}))
    versions = {key: value for v in experiment.variants for r in v.records for key, value in r.versions.items()}
    return joined(element("h3", "Configuration"), *parts, _fields("Versions", versions))


def _class_accuracies(variant: Variant) -> dict[int, float]:
    values: dict[int, list[float]] = {}
    for record in variant.records:
        for label, accuracy in record.metrics.per_class:
            if accuracy is not None:
                values.setdefault(label, []).append(accuracy)
    return {label: sum(found) / len(found) for label, found in values.items()}


def _share_cell(value: float | None) -> Html:
    if value is None:
        return element("td", "", class_="number")
    shown = f"{100 * value:.1f}"
    return element("td", shown, class_="number share", data_value=repr(value), style=f"--part:{shown}%")


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _fields(title: str, values: Mapping[str, Any]) -> Html:
    rows = [
        element("tr", element("th", key, scope="row"), element("td", _words(value), class_="wrap"))
        for key, value in values.items()
    ]
    table = element("table", element("tbody", *rows))
    return element("details", element("summary", title), scrolling(table, title))


def _chosen(variant: Variant, name: str) -> str:
    """Return what each run chose for a parameter."""
    return ", ".join(f"{record.chosen.get(name)} (seed {record.seed})" for record in variant.records)

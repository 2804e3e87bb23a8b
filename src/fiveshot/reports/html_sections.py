"""The parts of the page that belong to one experiment."""

from __future__ import annotations

from fiveshot.metrics import mean_std
from fiveshot.reports.bench_table import bench_table, described
from fiveshot.reports.charts import base_new_chart, percent, session_chart
from fiveshot.reports.confusion import confusion_matrix
from fiveshot.reports.heatmap import NUMBERED, heatmap, in_words
from fiveshot.reports.html_details import configuration, per_class
from fiveshot.reports.html_table import as_html
from fiveshot.reports.markers import legend
from fiveshot.reports.markup import Html, element, joined
from fiveshot.reports.representatives import representatives
from fiveshot.reports.table import Column, Number, Row, Table
from fiveshot.reports.variants import Experiment, Variant

CONFUSIONS = {
    "right": ("base_right", "new_right"),
    "other, same kind": ("base_to_base", "new_to_new"),
    "other kind": ("base_to_new", "new_to_base"),
}


def experiment_section(experiment: Experiment, title: str, number: int) -> Html:
    """Return everything about one protocol on one set of features."""
    best = max(experiment.variants, key=lambda variant: variant.summary.a_last.mean)
    lists = "" if experiment.session_lists is None else " Classes and images came from official session lists."
    backbone = experiment.provenance.get("backbone", "unknown")
    return element(
        "section",
        element("h2", title, id=f"experiment-{number}"),
        element("p", f"{described(experiment.protocol)}. Features of {backbone}.{lists}", class_="lead"),
        element("p", "Highest A_last: ", element("strong", best.label), f", {percent(best.summary.a_last)}."),
        results(experiment),
        curves(experiment),
        confusions(experiment),
        per_class(experiment, number),
        configuration(experiment),
        aria_labelledby=f"experiment-{number}",
    )


def results(experiment: Experiment) -> Html:
    """Return the table a benchmark prints."""
    table = bench_table(
        [variant.summary for variant in experiment.variants],
        experiment.protocol,
        experiment.provenance,
        labels=[variant.label for variant in experiment.variants],
        paper=False if experiment.session_lists else None,
    )
    return joined(element("h3", "Results"), as_html(table))


def curves(experiment: Experiment) -> Html:
    """Return the charts of accuracy by session, and on base and new classes."""
    variants = representatives(experiment.variants)
    by_session = element(
        "figure",
        session_chart(variants),
        legend(variants),
        element("figcaption", "Accuracy in % on all classes seen so far, after each session."),
    )
    by_kind = element(
        "figure",
        base_new_chart(variants),
        element(
            "figcaption",
            "Accuracy in % after the last session: filled, the base classes; light, all classes that came later.",
        ),
    )
    return joined(
        element("h3", "Accuracy by session, and on old and new classes"),
        element("div", by_session, by_kind, class_="pair"),
        _selection_hint(experiment),
        _session_details(experiment),
    )


def confusions(experiment: Experiment) -> Html:
    """Return errors between base and new classes as a table, and a heat-map for each variant."""
    columns = [Column("method")]
    columns += [Column(name, f"{kind} images", True) for kind in ("base", "new") for name in CONFUSIONS]
    rows = tuple(Row((variant.label, *_shares(variant))) for variant in experiment.variants)
    notes = ("Shares in % of the test images of base classes, and of those of classes that came later.",)
    table = Table("Taken for a class of the same kind, or of the other", tuple(columns), rows, notes)
    maps = []
    wide = False
    for variant in representatives(experiment.variants):
        matrix = confusion_matrix(variant.records)
        wide = matrix.kind == "class" or len(matrix.groups) > NUMBERED
        caption = element("figcaption", element("strong", variant.label), f": {in_words(matrix)}.")
        maps.append(element("figure", heatmap(matrix, variant.label), caption))
    hint = "Rows are the truth, columns what was predicted; a cell is the share of its row, in %."
    return joined(
        element("h3", "Confusion after the last session"),
        as_html(table),
        element("p", hint, class_="hint"),
        element("div", *maps, class_="maps wide" if wide else "maps"),
    )


def _selection_hint(experiment: Experiment) -> Html | None:
    if len(representatives(experiment.variants)) == len(experiment.variants):
        return None
    hint = "Of a method run with several parameters, drawings show the variant nearest to the paper's values."
    return element("p", hint, class_="hint")


def _session_details(experiment: Experiment) -> Html:
    sessions = len(experiment.variants[0].summary.accuracy)
    columns = [Column("method"), *(Column(str(n) if n else "base", percent=True) for n in range(sessions))]
    rows = tuple(Row((v.label, *map(Number.of, v.summary.accuracy))) for v in experiment.variants)
    table = as_html(Table("Accuracy in % after each session", tuple(columns), rows))
    return element("details", element("summary", "The same by session, in numbers"), table)


def _shares(variant: Variant) -> list[Number | None]:
    found: list[Number | None] = []
    for kind in (0, 1):
        names = [pair[kind] for pair in CONFUSIONS.values()]
        counts = [[getattr(r.metrics.confusion, name) for name in names] for r in variant.records]
        known = all(sum(row) for row in counts)
        for place in range(len(names)):
            share = mean_std([row[place] / sum(row) for row in counts]) if known else None
            found.append(None if share is None else Number.of(share))
    return found

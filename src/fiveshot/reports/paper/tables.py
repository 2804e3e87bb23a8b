"""The paper's tables, made from our runs, with the paper's own figures in or beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fiveshot.benchmark import (
    PROTOCOLS,
    BetaAblation,
    PartsAblation,
    Protocol,
    Summary,
    paper_beta_ablation,
    paper_methods,
    paper_parts_ablation,
    paper_result,
)
from fiveshot.data.registry import dataset_spec
from fiveshot.heads import RECIPES
from fiveshot.reports.paper.plan import ABLATION_PROTOCOL, SETTINGS, Setting
from fiveshot.reports.tables.bench import (
    PAPER_BLOCK,
    alpha_notes,
    backbone_notes,
    described,
    image_notes,
    seed_words,
)
from fiveshot.reports.tables.table import Cell, Column, Number, Row, Table, measured
from fiveshot.reports.variants import method_label

Summaries = Mapping[str, Sequence[Summary]]  # by protocol
MEASURES = ("A_HM", "A_last", "A_inc")


def main_table(target: str, summaries: Summaries, provenances: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return table 1, 2 or 3 in the paper's layout: a block per dataset, columns for small and big start.

    What ``summaries`` has no runs of is left empty; a dataset without any is left out.
    """
    settings = [PROTOCOLS[name] for name in SETTINGS[target]]
    datasets = dict.fromkeys(protocol.dataset for protocol in settings if protocol.name in summaries)
    starts = list(dict.fromkeys(protocol.name.split("/")[1] for protocol in settings))
    rows: list[Row] = []
    for dataset in datasets:
        title = dataset_spec(dataset).title
        here = [PROTOCOLS[f"{dataset}/{start}"] for start in starts]
        found = {summary.method for protocol in here for summary in summaries.get(protocol.name, ())}
        for method in (method for method in RECIPES if method in found):
            cells = [cell for protocol in here for cell in _own(method, protocol, summaries)]
            rows.append(Row((method_label(method), *cells), title))
        for name in paper_methods(here[0]):
            cells = [cell for protocol in here for cell in _papers(name, protocol)]
            rows.append(Row((name, *cells), f"{title}: {PAPER_BLOCK}"))
    columns = [Column("method")]
    for start in starts:
        protocol = next(setting for setting in settings if setting.name.endswith(start))
        group = start if len(starts) > 1 else ""
        columns += [Column(f"A_HM {n}", group, True, 2, spread=False, marked=2) for n in protocol.paper_sessions]
        columns += [Column(name, group, True, 2, marked=2) for name in MEASURES[1:]]
    seeds = seed_words([summary for part in summaries.values() for summary in part])
    notes = [
        f"Accuracies in % ({seeds}), A_HM n after session n.",
        *(
            f"{name}: {note}"
            for name, part in summaries.items()
            for note in image_notes(part[0].images, PROTOCOLS[name])
        ),
        *(note for name, part in summaries.items() for note in alpha_notes(part, PROTOCOLS[name].dataset)),
        *dict.fromkeys(note for p in provenances.values() for note in backbone_notes(p, paper=True)),
    ]
    return Table(f"Table {target[-1]}", tuple(columns), tuple(rows), tuple(notes))


def beta_table(setting: Setting, summaries: Sequence[Summary], provenance: Mapping[str, Any]) -> Table:
    """Return table 5, the ablation over beta, with a summary for each row of its setting."""
    theirs = {(row.method.lower(), row.beta): row for row in paper_beta_ablation()}
    rows = []
    for row, summary in zip(setting.rows, summaries, strict=True):
        beta = row.changes["beta"]
        cells = (*_last_measures(summary), *_paper_measures(theirs[row.method, beta]))
        rows.append(Row((str(beta), *cells), method_label(row.method)))
    notes = _notes(summaries, setting.protocol, provenance)
    return Table("Table 5: scale β of the covariance", (Column("β"), *_beside()), tuple(rows), notes)


def parts_table(setting: Setting, summaries: Sequence[Summary], provenance: Mapping[str, Any]) -> Table:
    """Return table 6, what calibrating means and covariances does, with a summary for each row of its setting."""
    theirs = {(r.method.lower(), (r.mean_calibrated, r.covariance_calibrated)): r for r in paper_parts_ablation()}
    rows = []
    for row, summary in zip(setting.rows, summaries, strict=True):
        assert row.calibrated is not None  # every row of table 6 has it
        ticks = ("✓" if part else "×" for part in row.calibrated)
        cells = (*_last_measures(summary), *_paper_measures(theirs.get((row.method, row.calibrated))))
        family = "FeCAM" if "fecam" in row.method else "RanPAC"
        rows.append(Row((method_label(row.method), *ticks, *cells), f"{family} and variants"))
    meaning = (
        "μ, Σ: whether the mean and the covariance of new classes are calibrated. "
        "RanPAC*: samples of the new classes, not calibrated."
    )
    columns = (Column("method"), Column("μ"), Column("Σ"), *_beside())
    notes = (meaning, *_notes(summaries, setting.protocol, provenance))
    return Table("Table 6: what is calibrated", columns, tuple(rows), notes)


def _last_measures(summary: Summary) -> tuple[Cell, ...]:
    """Return A_HM after the last session, A_last and A_inc."""
    return measured(summary.a_hm[-1]), Number.of(summary.a_last), Number.of(summary.a_inc)


def _paper_measures(row: BetaAblation | PartsAblation | None) -> tuple[Cell, ...]:
    """Return the same measures of the paper, where it has the row."""
    return (None,) * 3 if row is None else tuple(map(Number, (row.a_hm, row.a_last, row.a_inc)))


def _own(method: str, protocol: Protocol, summaries: Summaries) -> list[Cell]:
    """Return what was measured for a method under a protocol, in the columns of a main table."""
    for summary in summaries.get(protocol.name, ()):
        if summary.method == method:
            after = [measured(summary.a_hm[number - 1]) for number in protocol.paper_sessions]
            return [*after, Number.of(summary.a_last), Number.of(summary.a_inc)]
    return [None] * (len(protocol.paper_sessions) + 2)


def _papers(name: str, protocol: Protocol) -> list[Cell]:
    """Return what the paper reports, in the same columns."""
    theirs = paper_result(protocol, name)
    return [*map(Number, theirs.a_hm), Number(theirs.a_last), Number(theirs.a_inc)]


def _beside() -> tuple[Column, ...]:
    """Return the columns of an ablation: ours, and the paper's beside them."""
    return tuple(Column(name, group, True, 2, marked=1) for group in ("here", "paper") for name in MEASURES)


def _notes(summaries: Sequence[Summary], protocol: Protocol, provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what an ablation was made on."""
    seeds = seed_words(summaries)
    notes = [
        f"Here: {protocol.name}, {described(protocol)}; accuracies in % ({seeds}), A_HM after the last session.",
        *image_notes(summaries[0].images, protocol),
    ]
    if protocol.name != ABLATION_PROTOCOL:
        notes.append(f"The paper ablates on {ABLATION_PROTOCOL}, whose features are not there or not asked for.")
    return (*notes, *backbone_notes(provenance, paper=True))

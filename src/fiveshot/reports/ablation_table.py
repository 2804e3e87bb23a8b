"""An ablation as a table: one block per method, one row per value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fiveshot.benchmark import Protocol, Summary
from fiveshot.benchmark.ablation import Ablation
from fiveshot.reports.bench_table import backbone_notes, described, reading_notes
from fiveshot.reports.method_style import method_label
from fiveshot.reports.table import Column, Row, Table, measured

Series = Mapping[str, Sequence[tuple[float, Summary]]]  # by method: each value with what was measured


def ablation_table(
    ablation: Ablation, series: Series, protocol: Protocol, provenance: Mapping[str, Any] | None = None
) -> Table:
    """Return mean A_HM, A_last and A_inc for each method and value.

    >>> from fiveshot.benchmark import get_protocol, run_job, summarize_runs
    >>> from fiveshot.benchmark.ablation import ablation_jobs, get_ablation
    >>> from fiveshot.reports import ablation_table
    >>> protocol = get_protocol("cub200/big")
    >>> jobs = ablation_jobs("shots", protocol, "embedded:cub200", seeds=1, values=[1, 5], methods=["ncm"])
    >>> points = [(entry.value, summarize_runs([run_job(entry.job)])) for entry in jobs]
    >>> table = ablation_table(get_ablation("shots"), {"ncm": points}, protocol)
    >>> [(row.block, row.cells[0], round(row.cells[1].value, 1)) for row in table.rows]
    [('NCM', '1', 0.1), ('NCM', '5', 0.5)]
    """
    rows = [
        Row(
            (f"{value:g}", *map(measured, (summary.a_hm_mean, summary.a_last, summary.a_inc))),
            method_label(method, summary.flavour),
        )
        for method, points in series.items()
        for value, summary in points
    ]
    columns = (
        Column(ablation.symbol),
        *(Column(name, percent=True, decimals=2, marked=1) for name in ("mean A_HM", "A_last", "A_inc")),
    )
    summaries = [summary for points in series.values() for _, summary in points]
    setting = described(protocol) if ablation.name != "shots" else f"{protocol.n_classes} classes"
    notes = (*reading_notes(summaries, ()), *backbone_notes(provenance, paper=False))
    return Table(f"{ablation.symbol} on {protocol.name}: {setting}", columns, tuple(rows), notes)

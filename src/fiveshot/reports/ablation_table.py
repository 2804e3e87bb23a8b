"""An ablation as a table: one block per method, one row per value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fiveshot.benchmark import Protocol, Summary
from fiveshot.benchmark.ablation import Ablation
from fiveshot.reports.bench_table import backbone_notes, described, reading_notes
from fiveshot.reports.method_style import method_label
from fiveshot.reports.table import Column, Number, Row, Table

Series = Mapping[str, Sequence[tuple[float, Summary]]]  # by method: each value with what was measured


def ablation_table(
    ablation: Ablation, series: Series, protocol: Protocol, provenance: Mapping[str, Any] | None = None
) -> Table:
    """Return mean A_HM, A_last and A_inc for each method and value."""
    rows = [
        Row(
            (f"{value:g}", *map(Number.of, (summary.a_hm_mean, summary.a_last, summary.a_inc))),
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

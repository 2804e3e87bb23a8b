"""The table a benchmark prints: our figures, and below them the paper's, marked as theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fiveshot.backbones.names import PAPER_BACKBONE
from fiveshot.benchmark import Protocol, RunRecord, Summary, paper_methods, paper_result
from fiveshot.benchmark.protocol_head import ALPHA
from fiveshot.errors import InputError
from fiveshot.features.provenance import UNKNOWN
from fiveshot.reports.method_style import method_label
from fiveshot.reports.table import Cell, Column, Number, Row, Table, measured
from fiveshot.reports.variants import experiments

PAPER_BLOCK = "paper, ViT-B/16"
SHOWN_SESSIONS = 5


def bench_table(
    summaries: Sequence[Summary],
    protocol: Protocol,
    provenance: Mapping[str, Any] | None = None,
    *,
    labels: Sequence[str] | None = None,
    paper: bool | None = None,
    given: Mapping[str, Any] | None = None,
) -> Table:
    """Return method, A_HM after some sessions and on average, A_last, A_inc, calibration error and seconds.

    ``provenance`` is that of the runs and says what the features are; ``labels`` name the rows where methods
    alone do not. The paper's rows stand below unless ``paper`` is false or the protocol was changed. ``given``
    are parameters of the heads that were set for these runs, to be said in a note.

    >>> from fiveshot.benchmark import get_protocol, run, summarize_all
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import bench_table
    >>> protocol = get_protocol("cub200/big")
    >>> table = bench_table(summarize_all([run(protocol, embedded_features(), "ncm")]), protocol)
    >>> [(row.block, row.cells[0]) for row in table.rows]
    [('', 'NCM'), ('paper, ViT-B/16', 'NCM')]
    """
    later = _later_sessions(summaries)
    paper = protocol.is_papers and max(protocol.paper_sessions) <= later if paper is None else paper
    sessions = protocol.paper_sessions if paper else shown_sessions(later)
    labels = labels or [method_label(summary.method, summary.flavour) for summary in summaries]
    rows = [Row(_own_cells(*pair, sessions)) for pair in zip(labels, summaries, strict=True)]
    if paper:
        methods = {summary.method.lower() for summary in summaries}
        theirs = [name for name in paper_methods(protocol) if name.lower() in methods]
        rows += [Row(_paper_cells(protocol, name), PAPER_BLOCK) for name in theirs]
    columns = (
        Column("method"),
        *(Column(f"A_HM {number}", percent=True, spread=False, marked=2) for number in sessions),
        *(Column(name, percent=True, marked=2) for name in ("mean A_HM", "A_last", "A_inc")),
        Column("ECE", percent=True, marked=0),
        Column("time (s)"),
    )
    notes = (
        *reading_notes(summaries, sessions),
        *alpha_notes(summaries, protocol.dataset),
        *setting_notes(given or {}),
        *backbone_notes(provenance, paper=any(r.block for r in rows)),
    )
    return Table(f"{protocol.name}: {described(protocol)}", columns, tuple(rows), notes)


def bench_tables(records: Sequence[RunRecord]) -> tuple[Table, ...]:
    """Return one table per protocol and set of features among the runs.

    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import bench_tables
    >>> protocols = [get_protocol(name) for name in ("cub200/small", "cub200/big")]
    >>> tables = bench_tables([run(protocol, embedded_features(), "ncm") for protocol in protocols])
    >>> for table in tables:
    ...     print(table.title)
    cub200/small: 20 base classes, then 9 sessions of 20 with 5 images each
    cub200/big: 100 base classes, then 10 sessions of 10 with 5 images each
    """
    return tuple(
        bench_table(
            [variant.summary for variant in experiment.variants],
            experiment.protocol,
            experiment.provenance,
            labels=[variant.label for variant in experiment.variants],
            paper=False if experiment.session_lists else None,
        )
        for experiment in experiments(records)
    )


def shown_sessions(later: int) -> tuple[int, ...]:
    """Return up to five sessions, evenly chosen from 1 to the last.

    >>> shown_sessions(10), shown_sessions(2), shown_sessions(0)
    ((1, 3, 6, 8, 10), (1, 2), ())
    """
    return tuple(np.linspace(1, later, min(later, SHOWN_SESSIONS)).round().astype(int).tolist())


def described(protocol: Protocol) -> str:
    """Say in words how many classes come when.

    >>> from fiveshot.benchmark import get_protocol
    >>> described(get_protocol("cub200/big"))
    '100 base classes, then 10 sessions of 10 with 5 images each'
    """
    sizes = protocol.session_sizes
    if len(sizes) == 1:
        return f"{sizes[0]} base classes"
    last = f", the last of {sizes[-1]}," if sizes[-1] != sizes[1] else ""
    sessions = "session" if len(sizes) == 2 else "sessions"
    images = "image" if protocol.shots == 1 else "images"
    return (
        f"{sizes[0]} base classes, then {len(sizes) - 1} {sessions} of {sizes[1]}{last} "
        f"with {protocol.shots} {images} each"
    )


def reading_notes(summaries: Sequence[Summary], sessions: Sequence[int]) -> tuple[str, ...]:
    """Say what the numbers are."""
    seeds = sorted({len(summary.seeds) for summary in summaries})
    spread = "one seed" if seeds == [1] else f"mean ± standard deviation over {' or '.join(map(str, seeds))} seeds"
    after = f", A_HM n after session n (mean A_HM: over all {len(summaries[0].a_hm)})" if sessions else ""
    error = "; ECE: calibration error of the probabilities at the end" if summaries[0].calibration_error else ""
    return (f"Accuracies in %, {spread}{after}{error}.",)


def setting_notes(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which parameters were set.

    >>> setting_notes({"alpha": "auto"}), setting_notes({})
    (('Set for the methods that have it: alpha = auto.',), ())
    """
    shown = ", ".join(f"{name} = {value}" for name, value in given.items())
    return (f"Set for the methods that have it: {shown}.",) if given else ()


def alpha_notes(summaries: Sequence[Summary], dataset: str) -> tuple[str, ...]:
    """Say which alpha the calibrated methods had, for a dataset where the paper departs from its usual one."""
    found = sorted({summary.alpha for summary in summaries if summary.alpha is not None})
    if dataset not in ALPHA or not found:
        return ()
    ours = " or ".join(f"{alpha:g}" for alpha in found)
    same = found == [ALPHA[dataset]]
    theirs = "as in the paper" if same else f"where the paper has {ALPHA[dataset]:g}"
    return (f"Calibrated methods with α = {ours} on this dataset, {theirs} (0.9 on others).",)


def backbone_notes(provenance: Mapping[str, Any] | None, *, paper: bool) -> tuple[str, ...]:
    """Say which backbone the features are of and, where the paper's figures are shown, what theirs is."""
    backbone = str((provenance or {}).get("backbone", UNKNOWN))
    adapter = (provenance or {}).get("adapter")
    if backbone == UNKNOWN:
        ours = "The backbone of these features is not recorded."
    else:
        state = f"with the adapter {str(adapter)[:8]}" if adapter else "without an adapter"
        ours = f"Features of {backbone}, {state}."
    if not paper:
        return (ours,)
    theirs = "ViT-B/16 (ImageNet-21k, then 1k) with an adapter trained on the base session, one seed"
    if backbone == PAPER_BACKBONE and adapter:
        return (f"{ours} The paper's are of the same backbone, {theirs}.",)
    return (f"{ours} The paper's backbone is another, {theirs}: compare the order of methods, not the values.",)


def _later_sessions(summaries: Sequence[Summary]) -> int:
    if not summaries:
        raise InputError("no runs to make a table of")
    lengths = {len(summary.a_hm) for summary in summaries}
    if len(lengths) > 1:
        raise InputError(
            f"runs of {sorted(n + 1 for n in lengths)} sessions do not fit one table; make one of each"
        )
    return lengths.pop()


def _own_cells(label: str, summary: Summary, sessions: Sequence[int]) -> tuple[Cell, ...]:
    return (
        label,
        *(measured(summary.a_hm[number - 1]) for number in sessions),
        measured(summary.a_hm_mean),
        Number.of(summary.a_last),
        Number.of(summary.a_inc),
        measured(summary.calibration_error),
        Number(summary.seconds.mean),
    )


def _paper_cells(protocol: Protocol, name: str) -> tuple[Cell, ...]:
    theirs = paper_result(protocol, name)
    return (name, *map(Number, theirs.a_hm), None, Number(theirs.a_last), Number(theirs.a_inc), None, None)

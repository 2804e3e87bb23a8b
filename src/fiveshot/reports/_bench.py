"""The tables of a benchmark, with the paper's results below ours, and those of an ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from fiveshot.backbones import PAPER_BACKBONE
from fiveshot.benchmark import ALPHA, Protocol, RunRecord, SessionImages, Summary, paper_methods, paper_result
from fiveshot.errors import InputError, counted
from fiveshot.features import UNRECORDED
from fiveshot.reports._table import Cell, Column, Number, Row, Table
from fiveshot.reports._variants import Experiment, experiments, method_label

PAPER_BLOCK = "paper, ViT-B/16"
SHOWN_SESSIONS = 5
MOST_COUNTED = 12  # the most sessions whose numbers of images a note lists one by one


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

    Parameters
    ----------
    summaries : sequence of Summary
        One for each row.
    protocol : Protocol
        What was run.
    provenance : mapping, optional
        Where the features come from.
    labels : sequence of str, optional
        Names of the rows, if the methods' names are not distinct.
    paper : bool, optional
        Whether to add the paper's rows; by default if the protocol is the paper's.
    given : mapping, optional
        Parameters of the heads that were set for these runs, for a note.

    Returns
    -------
    Table
        The table.

    Raises
    ------
    InputError
        If there are no runs, or runs of different numbers of sessions.

    Examples
    --------
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
    labels = labels or [method_label(summary.method, summary.flavor) for summary in summaries]
    rows = [Row(_own_cells(*pair, sessions)) for pair in zip(labels, summaries, strict=True)]
    if paper:
        methods = {summary.method.lower() for summary in summaries}
        theirs = [name for name in paper_methods(protocol) if name.lower() in methods]
        rows += [Row(_paper_cells(protocol, name), PAPER_BLOCK) for name in theirs]
    columns = (
        Column("method"),
        *(
            Column(f"A_HM {n}", percent=True, spread=False, marked=2, words=f"A_HM after session {n}")
            for n in sessions
        ),
        *(Column(name, percent=True, marked=2) for name in ("mean A_HM", "A_last", "A_inc")),
        Column("ECE", percent=True, marked=0),
        Column("time (s)"),
    )
    notes = (
        *reading_notes(summaries, sessions),
        *image_notes(summaries[0].images, protocol),
        *alpha_notes(summaries, protocol.dataset),
        *setting_notes(given or {}),
        *backbone_notes(provenance, paper=any(r.block for r in rows)),
        *version_notes(summaries),
    )
    return Table(f"{protocol.name}: {described(protocol)}", columns, tuple(rows), notes)


def bench_tables(records: Sequence[RunRecord]) -> tuple[Table, ...]:
    """Return one table per protocol and set of features among the runs.

    Parameters
    ----------
    records : sequence of RunRecord
        The runs.

    Returns
    -------
    tuple of Table
        The tables.

    Examples
    --------
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
    return tuple(map(experiment_table, experiments(records)))


def experiment_table(experiment: Experiment) -> Table:
    """Return the table of all variants that were run under one protocol on one set of features."""
    return bench_table(
        [variant.summary for variant in experiment.variants],
        experiment.protocol,
        experiment.provenance,
        labels=[variant.label for variant in experiment.variants],
        paper=False if experiment.session_lists else None,
    )


def ablation_table(
    title: str,
    value_name: str,
    series: Mapping[str, Sequence[tuple[float, Summary]]],
    provenance: Mapping[str, Any] | None = None,
) -> Table:
    """Return mean A_HM, A_last and A_inc of each method for each value of the varied parameter.

    Parameters
    ----------
    title : str
        The title of the table.
    value_name : str
        The varied parameter, as the first column's heading.
    series : mapping of str to sequence of (float, Summary)
        By method: each value with its results.
    provenance : mapping, optional
        Where the features come from.

    Returns
    -------
    Table
        One block per method, one row per value.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run, summarize_runs
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import ablation_table
    >>> shots = {n: get_protocol("cub200/big").replace(shots=n) for n in (1, 5)}
    >>> points = [(n, summarize_runs([run(shots[n], embedded_features(), "ncm")])) for n in shots]
    >>> table = ablation_table("Shots", "images", {"ncm": points})
    >>> [(row.block, row.cells[0], round(row.cells[1].value, 1)) for row in table.rows]
    [('NCM', '1', 0.3), ('NCM', '5', 0.7)]
    """
    rows = [
        Row(
            (f"{value:g}", *map(Number.of, (summary.a_hm_mean, summary.a_last, summary.a_inc))),
            method_label(method, summary.flavor),
        )
        for method, points in series.items()
        for value, summary in points
    ]
    columns = (
        Column(value_name),
        *(Column(name, percent=True, decimals=2, marked=1) for name in ("mean A_HM", "A_last", "A_inc")),
    )
    summaries = [summary for points in series.values() for _, summary in points]
    notes = (
        *reading_notes(summaries, ()),
        *backbone_notes(provenance, paper=False),
        *version_notes(summaries),
    )
    return Table(title, columns, tuple(rows), notes)


def shown_sessions(later: int) -> tuple[int, ...]:
    """Return up to five sessions, evenly chosen from 1 to the last.

    >>> shown_sessions(10), shown_sessions(2), shown_sessions(0)
    ((1, 3, 6, 8, 10), (1, 2), ())
    """
    return tuple(np.linspace(1, later, min(later, SHOWN_SESSIONS)).round().astype(int).tolist())


def described(protocol: Protocol) -> str:
    """Describe the sessions of a protocol in words.

    >>> from fiveshot.benchmark import get_protocol
    >>> described(get_protocol("cub200/big"))
    '100 base classes, then 10 sessions of 10 with 5 images each'
    """
    sizes = protocol.session_sizes
    if len(sizes) == 1:
        return f"{sizes[0]} base classes"
    later = f"{counted(len(sizes) - 1, 'session')} of {sizes[1]}"
    later += f", the last of {sizes[-1]}," if sizes[-1] != sizes[1] else ""
    return f"{sizes[0]} base classes, then {later} with {counted(protocol.shots, 'image')} each"


def reading_notes(summaries: Sequence[Summary], sessions: Sequence[int]) -> tuple[str, ...]:
    """Return notes that explain the numbers."""
    spread = seed_words(summaries)
    after = f", A_HM n after session n (mean A_HM: over all {len(summaries[0].a_hm)})" if sessions else ""
    error = "; ECE: calibration error of the probabilities at the end" if summaries[0].calibration else ""
    return (f"Accuracies in %, {spread}{after}{error}.",)


def image_notes(images: Sequence[SessionImages], protocol: Protocol) -> tuple[str, ...]:
    """Return notes on the images of each session and the choice of shots, in which published splits differ.

    >>> from fiveshot.benchmark import SessionImages, get_protocol
    >>> split = [SessionImages(3000, 2864), SessionImages(50, 279), SessionImages(50, 287), SessionImages(50, 287)]
    >>> image_notes(split, get_protocol("cub200/big"))
    ('Images to learn / to test: base 3,000 / 2,864; session 1 50 / 279; sessions 2 to 3 50 / 287 each.',)
    """
    if not images:
        return ()
    said = []
    for (train, test), members in groupby(range(1, len(images)), key=lambda n: images[n]):
        first, *others = members
        which, each = (f"sessions {first} to {others[-1]}", " each") if others else (f"session {first}", "")
        said.append(f"{which} {train:,} / {test:,}{each}")
    if len(said) > MOST_COUNTED:
        learned, tests = ([one[place] for one in images[1:]] for place in (0, 1))
        each = f"{min(tests):,} to {max(tests):,} to test in each"
        said = [f"sessions 1 to {len(tests)} together {sum(learned):,} / {sum(tests):,}, {each}"]
    said = [f"base {images[0].train:,} / {images[0].test:,}", *said]
    note = f"Images to learn / to test: {'; '.join(said)}."
    listed = ("Shots of the official lists; seeds change what heads draw, and nothing else.",)
    return (note, *(listed if protocol.shot_draw == "listed" else ()))


def version_notes(summaries: Sequence[Summary]) -> tuple[str, ...]:
    """Return a note on the versions of fiveshot that made the runs.

    >>> from dataclasses import replace
    >>> from fiveshot.benchmark import get_protocol, run, summarize_runs
    >>> from fiveshot.features import embedded_features
    >>> summary = summarize_runs([run(get_protocol("cub200/big"), embedded_features(), "ncm")])
    >>> version_notes([replace(summary, versions=("0.2.0",)), replace(summary, versions=("0.1.0",))])
    ('Made by fiveshot 0.1.0 and 0.2.0.',)
    """
    found = sorted({version for summary in summaries for version in summary.versions})
    return (f"Made by fiveshot {' and '.join(found)}.",) if found else ()


def seed_words(summaries: Sequence[Summary]) -> str:
    """Return the number of seeds in words."""
    seeds = sorted({len(summary.seeds) for summary in summaries})
    return "one seed" if seeds == [1] else f"mean ± standard deviation over {' or '.join(map(str, seeds))} seeds"


TRANSDUCTION_NOTE = (
    "Transduction: methods that have 'together' see all test images of a session at once, without labels; do not "
    "compare them with methods that look at each alone."
)


def setting_notes(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return notes on the parameters that were set.

    >>> setting_notes({"alpha": "auto"}), setting_notes({})
    (('Set for the methods that have it: alpha = auto.',), ())
    >>> [note.split(":")[0] for note in setting_notes({"together": 3})]
    ['Set for the methods that have it', 'Transduction']
    """
    shown = ", ".join(f"{name} = {value}" for name, value in given.items())
    notes = [f"Set for the methods that have it: {shown}."] if given else []
    return (*notes, TRANSDUCTION_NOTE) if given.get("together") else tuple(notes)


def alpha_notes(summaries: Sequence[Summary], dataset: str) -> tuple[str, ...]:
    """Return notes on the alpha of the calibrated methods, for a dataset with a special alpha in the paper."""
    found = sorted({summary.alpha for summary in summaries if summary.alpha is not None})
    if dataset not in ALPHA or not found:
        return ()
    ours = " or ".join(f"{alpha:g}" for alpha in found)
    same = found == [ALPHA[dataset]]
    theirs = "as in the paper" if same else f"where the paper has {ALPHA[dataset]:g}"
    return (f"Calibrated methods with α = {ours} on this dataset, {theirs} (0.9 on others).",)


def backbone_notes(provenance: Mapping[str, Any] | None, *, paper: bool) -> tuple[str, ...]:
    """Return notes on the backbone of the features and, with the paper's results, on the paper's backbone."""
    backbone = str((provenance or {}).get("backbone", UNRECORDED))
    adapter = (provenance or {}).get("adapter")
    if backbone == UNRECORDED:
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
    """Return the number of sessions after session 0, which must be the same in all runs."""
    if not summaries:
        raise InputError("there are no runs for a table")
    lengths = {len(summary.a_hm) for summary in summaries}
    if len(lengths) > 1:
        raise InputError(
            f"runs of {sorted(n + 1 for n in lengths)} sessions do not fit one table", hint="make one of each"
        )
    return lengths.pop()


def _own_cells(label: str, summary: Summary, sessions: Sequence[int]) -> tuple[Cell, ...]:
    """Return a row of our results."""
    return (
        label,
        *(Number.of(summary.a_hm[number - 1]) for number in sessions),
        *map(Number.of, (summary.a_hm_mean, summary.a_last, summary.a_inc)),
        Number.of(summary.calibration[-1] if summary.calibration else None),
        Number(summary.seconds.mean),
    )


def _paper_cells(protocol: Protocol, name: str) -> tuple[Cell, ...]:
    """Return a row of the paper's results."""
    theirs = paper_result(protocol, name)
    return (name, *map(Number, theirs.a_hm), None, Number(theirs.a_last), Number(theirs.a_inc), None, None)

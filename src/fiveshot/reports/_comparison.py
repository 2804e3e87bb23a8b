"""Tables with confidence intervals: further measures, and the difference of two heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fiveshot.benchmark import LOWER_IS_BETTER, Comparison, PublishedFigures, RunRecord, compare_runs
from fiveshot.errors import InputError
from fiveshot.metrics import PairedDifference, Spread, mean_interval, mean_std
from fiveshot.metrics.paired import resampled_interval
from fiveshot.reports._table import Cell, Column, Number, Row, Table
from fiveshot.reports._variants import Experiment, Variant, experiments

LEADING = "mean A_HM"  # the measure that heads are ranked and paired by


@dataclass(frozen=True, eq=False)
class PairedVariants:
    """Two heads under one protocol, and how they compare.

    Attributes
    ----------
    protocol : str
        Its name.
    first, second : Variant
        The heads with their runs.
    comparison : Comparison
        Their difference.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import paired_variants
    >>> teen, ncm = (run(get_protocol("cub200/big"), embedded_features(), method) for method in ("teen", "ncm"))
    >>> paired_variants([teen], [ncm])[0].names
    {'protocol': 'cub200/big', 'names': ['TEEN', 'NCM']}
    """

    protocol: str
    first: Variant
    second: Variant
    comparison: Comparison

    @property
    def names(self) -> dict[str, Any]:
        """The protocol and the names of the heads, as JSON values."""
        return {"protocol": self.protocol, "names": [self.first.label, self.second.label]}


def paired_variants(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> tuple[PairedVariants, ...]:
    """Pair the heads of two sides that ran under one protocol on one set of features, and compare them.

    If a side has several heads, each is compared with the same head of the other side.

    Parameters
    ----------
    first, second : sequence of RunRecord
        The runs of each side.

    Returns
    -------
    tuple of PairedVariants
        At least one pair.

    Raises
    ------
    InputError
        If no heads of the two sides can be paired.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import paired_variants
    >>> teen, ncm = (run(get_protocol("cub200/big"), embedded_features(), method) for method in ("teen", "ncm"))
    >>> (pair,) = paired_variants([teen], [ncm])
    >>> pair.comparison.differences["A_last"].mean > 0
    True
    """
    others = {_setting(experiment): experiment for experiment in experiments(second)}
    found = [
        PairedVariants(experiment.protocol.name, one, other, compare_runs(one.records, other.records))
        for experiment in experiments(first)
        if _setting(experiment) in others
        for one, other in _pairs(experiment, others[_setting(experiment)])
    ]
    if not found:
        raise InputError(
            "the two sides share no protocol on the same features",
            hint="compare runs of one protocol on one set of features, such as runs/cub200-big/ncm and "
            "runs/cub200-big/teen",
        )
    return tuple(found)


def comparison_tables(pairs: Sequence[PairedVariants]) -> tuple[Table, ...]:
    """Return one table per pair of heads: both, their difference, its interval and p.

    Parameters
    ----------
    pairs : sequence of PairedVariants
        From :func:`paired_variants`.

    Returns
    -------
    tuple of Table
        The tables.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import comparison_tables, paired_variants
    >>> teen, ncm = (run(get_protocol("cub200/big"), embedded_features(), method) for method in ("teen", "ncm"))
    >>> (table,) = comparison_tables(paired_variants([teen], [ncm]))
    >>> table.title, [row.cells[0] for row in table.rows][:3]
    ('cub200/big: TEEN less NCM', ['mean A_HM', 'A_last', 'A_inc'])
    """
    return tuple(map(_table, pairs))


def further_table(experiment: Experiment) -> Table:
    """Return further measures with intervals, and the difference of each head to the leader.

    The leader is the head with the highest mean A_HM; without later sessions, with the highest A_last.

    Parameters
    ----------
    experiment : Experiment
        What was run under one protocol on one set of features.

    Returns
    -------
    Table
        One row per head.

    Examples
    --------
    >>> from fiveshot.benchmark import get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import experiments, further_table
    >>> records = [run(get_protocol("cub200/big"), embedded_features(), method) for method in ("ncm", "teen")]
    >>> table = further_table(experiments(records)[0])
    >>> [row.cells[3] for row in table.rows][1], [column.name for column in table.columns][5:8]
    ('leads', ['gAcc', 'area', 'forgetting'])
    """
    variants = experiment.variants
    leader = max(variants, key=lambda v: (v.summary.a_hm_mean or v.summary.a_last).mean)
    several = len(variants) > 1
    rows = [Row(_cells(variant, leader if several else None)) for variant in variants]
    sure = [f"{name}, 95 %" for name in ("mean A_HM", "A_last")]
    columns = [
        Column("method"),
        *(Column(name, "sure:") for name in (*sure, *([f"less {leader.label}'s", "p"] if several else []))),
        *(Column(name, "balance:", percent=True, spread=False, marked=1) for name in ("gAcc", "area")),
        *(Column(name, "balance:", percent=True, spread=False) for name in ("forgetting", "ECE base", "ECE mean")),
    ]
    return Table(
        f"{experiment.protocol.name}: how sure, and how balanced", tuple(columns), tuple(rows), _notes(variants)
    )


def against_table(experiment: Experiment, published: PublishedFigures) -> Table:
    """Return the accuracy after each session with published results below, or a note why they are not comparable.

    Parameters
    ----------
    experiment : Experiment
        What was run under one protocol on one set of features.
    published : PublishedFigures
        The figures to compare with.

    Returns
    -------
    Table
        With published rows only if class order, split and shots are the same; else a note lists the differences.

    Examples
    --------
    >>> from fiveshot.benchmark import PublishedFigures, get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> from fiveshot.reports import against_table, experiments
    >>> theirs = PublishedFigures("A paper", "cub200", "", {"Theirs": (0.7,) * 11}, {"shots": 5})
    >>> found = experiments([run(get_protocol("cub200/big"), embedded_features(), "ncm")])
    >>> [row.cells[0] for row in against_table(found[0], theirs).rows]
    ['NCM']
    """
    differences = published.differences(experiment.variants[0].records[0])
    last = len(experiment.variants[0].summary.accuracy) - 1
    columns = [
        Column("method"),
        *(Column(str(n) if n else "base", percent=True, spread=False) for n in range(last + 1)),
    ]
    columns += [Column("A_inc", percent=True), Column("drop", percent=True, spread=False)]
    rows = []
    for variant in experiment.variants:
        after = variant.summary.accuracy
        cells = (*map(Number.of, after), Number.of(variant.summary.a_inc), Number(after[0].mean - after[-1].mean))
        rows.append(Row((variant.label, *cells)))
    if differences:
        note = f"Not shown: the figures of {published.source}, which were not measured as these were. "
        notes = (note + "; ".join(differences) + ".",)
    else:
        block = ", ".join(part for part in (published.source, published.backbone) if part)
        for method, known in published.accuracy.items():
            cells = (*map(Number, known), Number(sum(known) / len(known)), Number(known[0] - known[-1]))
            rows.append(Row((method, *cells), block))
        ours = experiment.provenance.get("backbone", "an unknown backbone")
        theirs = published.backbone or "a backbone that the file does not say"
        notes = (f"Same classes, images and shots; features of {ours} here, of {theirs} there.",)
    title = f"{experiment.protocol.name}: accuracy in % after each session, against {published.source}"
    return Table(title, tuple(columns), tuple(rows), notes)


def interval_words(difference: PairedDifference) -> tuple[str, str, str]:
    """Return a difference of fractions, its interval and p, formatted for a table.

    >>> interval_words(PairedDifference(0.031, 0.0042, 0.0578, 0.0321, 5))
    ('+3.1', '[+0.4, +5.8]', '0.032')
    """
    shown = f"{100 * difference.mean:+.1f}"
    if difference.low is None or difference.high is None or difference.p is None:
        return shown, "", ""
    p = "< 0.001" if difference.p < 0.001 else f"{difference.p:.3f}"
    return shown, f"[{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]", p


def _table(pair: PairedVariants) -> Table:
    """Return the table of one comparison."""
    one, other, found = pair.first, pair.second, pair.comparison
    rows = []
    for name, difference in found.differences.items():
        label = f"{name} (lower is better)" if name in LOWER_IS_BETTER else name
        means = (Number(found.first[name]), Number(found.second[name]))
        rows.append(Row((label, *means, *interval_words(difference))))
    columns = (
        Column("measure"),
        *(Column(variant.label, percent=True) for variant in (one, other)),
        *map(Column, ("difference", "interval", "p")),
    )
    notes = [f"In %, with 95 % intervals: {_way(found)}"]
    if found.left_out:
        notes.append(f"Left out, because only one side has them: seeds {', '.join(map(str, found.left_out))}.")
    return Table(f"{pair.protocol}: {one.label} less {other.label}", columns, tuple(rows), tuple(notes))


def _way(found: Comparison) -> str:
    """Describe how the intervals were computed."""
    if len(found.seeds) > 1:
        return f"means over {len(found.seeds)} draws of the shots that both have; Student's paired t-test."
    return (
        "one draw of the shots; intervals and p are from resampled test images, and say nothing about other "
        "shots. Run both with --seeds 5 for that."
    )


def _pairs(first: Experiment, second: Experiment) -> list[tuple[Variant, Variant]]:
    """Return which head is compared with which."""
    if len(first.variants) == len(second.variants) == 1:
        return [(first.variants[0], second.variants[0])]
    by_label = {variant.label: variant for variant in second.variants}
    pairs = [(variant, by_label[variant.label]) for variant in first.variants if variant.label in by_label]
    if not pairs:
        sides = [", ".join(variant.label for variant in side.variants) for side in (first, second)]
        raise InputError(
            f"cannot tell which of {sides[0]} to compare with which of {sides[1]}",
            hint="name the folder of one head on each side, such as runs/cub200-big/ncm; other parameters go "
            "to another --out",
        )
    return pairs


def _setting(experiment: Experiment) -> tuple[object, ...]:
    """Return what must be equal on both sides."""
    config = experiment.variants[0].records[0].config
    return experiment.protocol, experiment.session_lists, config["features"]


def _cells(variant: Variant, leader: Variant | None) -> tuple[Cell, ...]:
    """Return a row of further measures."""
    summary = variant.summary
    calibration = summary.calibration
    ends: list[Cell] = [
        None if spread is None else _interval(spread, variant, key)
        for spread, key in ((summary.a_hm_mean, "a_hm_mean"), (summary.a_last, "a_last"))
    ]
    shown: tuple[Cell, ...] = (
        *map(Number.of, (summary.g_acc, summary.area, summary.forgetting)),
        Number.of(calibration[0]) if calibration else None,
        Number(mean_std(spread.mean for spread in calibration).mean) if calibration else None,
    )
    paired = () if leader is None else _paired(variant, leader)
    return (variant.label, *ends, *paired, *shown)


def _paired(variant: Variant, leader: Variant) -> tuple[str, str]:
    """Return the difference of a head to the leader, with interval and p."""
    if variant is leader:
        return "leads", ""
    draws = [{record.seed for record in one.records} for one in (variant, leader)]
    shared = compare_runs(variant.records, leader.records).differences if draws[0] & draws[1] else {}
    difference, interval, p = interval_words(shared[LEADING]) if LEADING in shared else ("", "", "")
    return f"{difference} {interval}".strip(), p


def _interval(spread: Spread, variant: Variant, key: str) -> str:
    """Return the ends of an interval: over draws, or over test images if there is one draw."""
    low, high = mean_interval(spread) or resampled_interval(variant.records[0].resampled[key])
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _notes(variants: Sequence[Variant]) -> tuple[str, ...]:
    draws = max(len(variant.records) for variant in variants)
    over = "resampled test images (one draw of the shots)" if draws == 1 else f"{draws} draws, Student's t, paired"
    meaning = (
        "gAcc: accuracy over all weights of the base session. area: under the curve of accuracy on base against "
        "new classes. ECE: calibration error, after the base session and averaged over all."
    )
    return f"In %; intervals over {over}; less: difference in mean A_HM, with its p.", meaning

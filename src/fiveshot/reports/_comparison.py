"""Tables with confidence intervals: further measures, and the difference of two heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fiveshot.benchmark import (
    LOWER_IS_BETTER,
    MEASURES,
    RESAMPLED,
    Comparison,
    OverallFigures,
    Protocol,
    PublishedFigures,
    RunRecord,
    compare_runs,
)
from fiveshot.errors import InputError
from fiveshot.metrics import PairedDifference, hierarchical_interval, holm_corrected, mean_std, resampled_interval
from fiveshot.reports._bench import version_notes
from fiveshot.reports._table import Cell, Column, Number, Row, Table
from fiveshot.reports._variants import Experiment, Variant, experiments, variant_labels

LEADING = "mean A_HM"  # the measure that heads are ranked and paired by
WITH_INTERVAL = (LEADING, "A_last")  # measures with an interval for each head


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
    >>> paired_variants([teen], [ncm])[0].names["names"]
    ['TEEN', 'NCM']
    """

    protocol: str
    first: Variant
    second: Variant
    comparison: Comparison

    @property
    def names(self) -> dict[str, Any]:
        """The protocol, the names of the heads, and the versions of fiveshot that ran them, as JSON values."""
        versions = sorted({*self.first.summary.versions, *self.second.summary.versions})
        return {"protocol": self.protocol, "names": [self.first.label, self.second.label], "fiveshot": versions}


def paired_variants(first: Sequence[RunRecord], *others: Sequence[RunRecord]) -> tuple[PairedVariants, ...]:
    """Pair the heads of two or more sides that ran under one protocol on one set of features, and compare them.

    If a side has several heads, each is compared with the same head of the other side. The first side is compared
    with each of the others. Several comparisons under one protocol get p values with Holm's correction, measure by
    measure.

    Parameters
    ----------
    first : sequence of RunRecord
        The runs of one side.
    *others : sequence of RunRecord
        The runs of each other side.

    Returns
    -------
    tuple of PairedVariants
        At least one pair.

    Raises
    ------
    InputError
        If no heads of two sides can be paired.

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
    return _corrected([pair for other in others for pair in _two_sides(first, other)])


def _two_sides(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> list[PairedVariants]:
    """Return the pairs of heads of two sides."""
    others = {_setting(experiment): experiment for experiment in experiments(second)}
    found = [
        PairedVariants(experiment.protocol.name, one, other, compare_runs(one.records, other.records))
        for experiment in experiments(first)
        if _setting(experiment) in others
        for one, other in _pairs(experiment, others[_setting(experiment)])
    ]
    if not found:
        raise InputError(
            f"the two sides share no protocol on the same features: {_apart(first, second)}",
            hint="compare runs of one protocol on one set of features, such as runs/cub200-big/ncm and "
            "runs/cub200-big/teen",
        )
    return found


def _corrected(pairs: Sequence[PairedVariants]) -> tuple[PairedVariants, ...]:
    """Return the pairs with p values corrected for the number of comparisons under the same protocol."""
    families: dict[object, list[PairedVariants]] = {}
    for pair in pairs:
        config = pair.first.records[0].config
        families.setdefault((pair.protocol, config.get("sessions"), config["features"]), []).append(pair)
    return tuple(pair for family in families.values() for pair in _corrected_family(family))


def _corrected_family(pairs: Sequence[PairedVariants]) -> Iterator[PairedVariants]:
    known = [pair.comparison.differences for pair in pairs]
    names = {name: None for differences in known for name in differences}
    ready = {name: iter(holm_corrected([each[name] for each in known if name in each])) for name in names}
    for pair in pairs:
        differences = {name: next(ready[name]) for name in pair.comparison.differences}
        yield replace(pair, comparison=replace(pair.comparison, differences=differences))


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
    behind = _behind(variants, leader)
    rows = []
    for variant in variants:
        paired = _paired(behind.get(variant.label), leads=variant is leader) if several else ()
        rows.append(Row(_cells(variant, paired)))
    sure = [(f"{name}, 95 %", f"95 % interval of {name}") for name in WITH_INTERVAL]
    if several:
        sure += [
            (f"less {leader.label}'s", f"{LEADING} less that of {leader.label}"),
            ("p", "p of this difference"),
        ]
    balance = (
        ("gAcc", "gAcc", 1),
        ("area", "area under the curve of base and new", 1),
        ("forgetting", "forgetting", 0),
        ("ECE base", "ECE after the base session", 0),
        ("ECE mean", "ECE, mean of all sessions", 0),
    )
    columns = [
        Column("method"),
        *(Column(name, "sure:", words=words) for name, words in sure),
        *(
            Column(name, "balance:", percent=True, spread=False, marked=marked, words=words)
            for name, words, marked in balance
        ),
    ]
    return Table(
        f"{experiment.protocol.name}: how sure, and how balanced",
        tuple(columns),
        tuple(rows),
        (*_notes(variants, behind), *_power_notes(_hardest(behind))),
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
        notes = [note + "; ".join(differences) + "."]
    else:
        block = ", ".join(part for part in (published.source, published.backbone) if part)
        for method, known in published.accuracy.items():
            cells = (*map(Number, known), Number(sum(known) / len(known)), Number(known[0] - known[-1]))
            rows.append(Row((method, *cells), block))
        rows += [Row((method, *_overall_cells(known, last)), block) for method, known in published.overall.items()]
        ours = experiment.provenance.get("backbone", "an unknown backbone")
        theirs = published.backbone or "a backbone that the file does not say"
        notes = [f"Same classes, images and shots; features of {ours} here, of {theirs} there."]
        notes += [f"The figures of {published.source}: {published.origin}."] if published.origin else []
    title = f"{experiment.protocol.name}: accuracy in % after each session, against {published.source}"
    return Table(title, tuple(columns), tuple(rows), tuple(notes))


def _overall_cells(known: OverallFigures, last: int) -> tuple[Cell, ...]:
    """Return the cells of a method without figures for each session: base, last, average and drop, if known."""
    base, end, average = (None if x is None else Number(x) for x in (known.base, known.last, known.average))
    after = (base, *[None] * (last - 1), end) if last else (base or end,)
    drop = None if known.base is None or known.last is None else Number(known.base - known.last)
    return (*after, average, drop)


def interval_words(difference: PairedDifference) -> tuple[str, str, str]:
    """Return a difference of fractions, its interval and p, formatted for a table.

    >>> interval_words(PairedDifference(0.031, 0.0042, 0.0578, 0.0321, 5))
    ('+3.1', '[+0.4, +5.8]', '0.032')
    """
    shown = f"{100 * difference.mean:+.1f}"
    if difference.low is None or difference.high is None or difference.p is None:
        return shown, "", ""
    return shown, f"[{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]", p_words(difference.p)


def p_words(p: float | None) -> str:
    """Return a p value, formatted for a table.

    >>> p_words(0.0321), p_words(0.0001), p_words(None)
    ('0.032', '< 0.001', '')
    """
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _table(pair: PairedVariants) -> Table:
    """Return the table of one comparison."""
    one, other, found = pair.first, pair.second, pair.comparison
    several = any(difference.corrected is not None for difference in found.differences.values())
    rows = []
    for name, difference in found.differences.items():
        label = f"{name} (lower is better)" if name in LOWER_IS_BETTER else name
        means = (Number(found.first[name]), Number(found.second[name]))
        corrected = (p_words(difference.corrected),) if several else ()
        rows.append(Row((label, *means, *interval_words(difference), *corrected)))
    columns = (
        Column("measure"),
        *(Column(variant.label, percent=True) for variant in (one, other)),
        *map(Column, ("difference", "interval", "p", *(("p (Holm)",) if several else ()))),
    )
    notes = [f"In %, with 95 % intervals: {_way(found)}", *_power_notes(found.differences.get(LEADING))]
    if several:
        notes.append("p (Holm): corrected for the comparisons of this measure in this command.")
    if found.left_out:
        notes.append(f"Left out, because only one side has them: seeds {', '.join(map(str, found.left_out))}.")
    notes += version_notes([one.summary, other.summary])
    return Table(f"{pair.protocol}: {one.label} less {other.label}", columns, tuple(rows), tuple(notes))


def _way(found: Comparison) -> str:
    """Describe how the intervals were computed."""
    if len(found.seeds) > 1:
        return (
            f"means over {len(found.seeds)} draws of the shots that both have. mean A_HM, A_last and A_inc: over "
            "draws and test images (hierarchical bootstrap); others: over draws (Student's paired t-test)."
        )
    return (
        "one draw of the shots; intervals and p are from resampled test images, and say nothing about other "
        "shots. Run both with --seeds 5 for that."
    )


def _power_notes(difference: PairedDifference | None) -> tuple[str, ...]:
    """Say which difference these draws can show at all.

    >>> _power_notes(PairedDifference(0.03, 0.01, 0.05, 0.01, 5, "draws and images", 0.0081))
    ('These 5 draws can show differences of 0.8 points or more in mean A_HM (found with a probability of 80 %).',)
    """
    if difference is None or not difference.detectable:  # zero: the same answers in all draws
        return ()
    points = f"{100 * difference.detectable:.1f} points or more in {LEADING}"
    return (f"These {difference.n} draws can show differences of {points} (found with a probability of 80 %).",)


def _pairs(first: Experiment, second: Experiment) -> list[tuple[Variant, Variant]]:
    """Return which head is compared with which."""
    if len(first.variants) == len(second.variants) == 1:
        one, other = first.variants[0], second.variants[0]
        labels = variant_labels([one.records[0], other.records[0]])
        return [(replace(one, label=labels[0]), replace(other, label=labels[1]))]
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


def _setting(experiment: Experiment) -> tuple[Protocol, str | None, str]:
    """Return what must be equal on both sides."""
    config = experiment.variants[0].records[0].config
    return experiment.protocol, experiment.session_lists, config["features"]


def _apart(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> str:
    """Say in what the first experiments of two sides differ."""
    one, other = (_named_setting(experiments(side)[0]) for side in (first, second))
    return "; ".join(f"{name} {one[name]} and {other[name]}" for name in one if one[name] != other[name])


def _named_setting(experiment: Experiment) -> dict[str, object]:
    protocol, lists, features = _setting(experiment)
    return {**asdict(protocol), "session lists": lists, "features": features}


def _behind(variants: Sequence[Variant], leader: Variant) -> dict[str, PairedDifference]:
    """Return the difference in the leading measure of each other head to the leader, if they share draws."""
    found: dict[str, PairedDifference] = {}
    for variant in variants:
        draws = [{record.seed for record in one.records} for one in (variant, leader)]
        if variant is not leader and draws[0] & draws[1]:
            differences = compare_runs(variant.records, leader.records).differences
            found |= {variant.label: differences[LEADING]} if LEADING in differences else {}
    return dict(zip(found, holm_corrected(list(found.values())), strict=True))


def _hardest(behind: Mapping[str, PairedDifference]) -> PairedDifference | None:
    """Return the comparison that needs the largest difference."""
    known = [one for one in behind.values() if one.detectable is not None]
    return max(known, key=lambda one: one.detectable or 0.0, default=None)


def _cells(variant: Variant, paired: tuple[str, ...]) -> tuple[Cell, ...]:
    """Return a row of further measures; ``paired`` is the difference to the leader."""
    summary = variant.summary
    calibration = summary.calibration
    shown: tuple[Cell, ...] = (
        *map(Number.of, (summary.g_acc, summary.area, summary.forgetting)),
        Number.of(calibration[0]) if calibration else None,
        Number(mean_std(spread.mean for spread in calibration).mean) if calibration else None,
    )
    return (variant.label, *(_interval(variant, name) for name in WITH_INTERVAL), *paired, *shown)


def _paired(behind: PairedDifference | None, *, leads: bool) -> tuple[str, str]:
    """Return the difference of a head to the leader, with interval and p."""
    if leads:
        return "leads", ""
    if behind is None:
        return "", ""
    difference, interval, p = interval_words(behind)
    return f"{difference} {interval}".strip(), p if behind.corrected is None else p_words(behind.corrected)


def _interval(variant: Variant, name: str) -> str | None:
    """Return the ends of an interval: over draws and test images, or over test images if there is one draw."""
    values = [MEASURES[name](record) for record in variant.records]
    known = [value for value in values if value is not None]
    if known != values:
        return None
    resampled = [record.resampled[RESAMPLED[name]] for record in variant.records]
    if len(known) == 1:
        low, high = resampled_interval(resampled[0])
    else:
        low, high = hierarchical_interval(known, resampled)
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _notes(variants: Sequence[Variant], behind: Mapping[str, PairedDifference]) -> tuple[str, ...]:
    draws = max(len(variant.records) for variant in variants)
    over = "resampled test images (one draw of the shots)"
    if draws > 1:
        over = f"{draws} draws and the test images together (hierarchical bootstrap)"
    p = f"its p, corrected for {len(behind)} comparisons (Holm)" if len(behind) > 1 else "its p"
    meaning = (
        "gAcc: accuracy over all weights of the base session. area: under the curve of accuracy on base against "
        "new classes. ECE: calibration error, after the base session and averaged over all."
    )
    return f"In %; intervals over {over}; less: difference in mean A_HM, with {p}.", meaning

"""One self-contained HTML page about finished runs.

This module collects the data, and the templates next to it format them. They escape every text, so that the name
of a class or a folder cannot become markup. A page needs no network and no other file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiveshot import __version__
from fiveshot.benchmark import RunRecord, find_runs
from fiveshot.errors import counted
from fiveshot.features import UNRECORDED
from fiveshot.loggers import flat
from fiveshot.reports._bench import described, experiment_table
from fiveshot.reports._comparison import further_table
from fiveshot.reports._drawings import (
    NUMBERED,
    base_new_chart,
    confusion_chart,
    confusion_matrix,
    confusions_in_words,
    marker_path,
    percent,
    session_chart,
    trade_off_chart,
    variant_styles,
)
from fiveshot.reports._formats import write_text
from fiveshot.reports._table import Column, Number, Row, Table, header_groups, marks, shown
from fiveshot.reports._variants import ANSWERS, Experiment, class_titles, experiments, representatives
from fiveshot.storage import FilePath

if TYPE_CHECKING:
    from jinja2 import Environment

# Marks that reverse the direction of text: in a name they would reverse the rest of the sentence. They are shown.
DIRECTION_MARKS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def write_report(folder: FilePath, out: FilePath) -> Path:
    """Write one page about all finished runs below a folder.

    Parameters
    ----------
    folder : path
        The ``--out`` folder of a benchmark, or a part of it.
    out : path
        The page.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    StorageError
        If there is no finished run, or the page cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.benchmark import Job, get_protocol, sweep
    >>> from fiveshot.reports import write_report
    >>> jobs = [Job(get_protocol("cub200/big"), method, "embedded:cub200") for method in ("ncm", "teen")]
    >>> with TemporaryDirectory() as folder:
    ...     outcomes = list(sweep(jobs, Path(folder)))
    ...     page = write_report(folder, Path(folder) / "report.html").read_text(encoding="utf-8")
    >>> "2 runs, seed 0." in page
    True
    """
    return write_text(Path(out), report_page(find_runs(Path(folder))))


def report_page(records: Sequence[RunRecord]) -> str:
    """Return the page: results, charts, confusion, classes and configuration of each experiment."""
    found = experiments(records)
    runs = sum(len(variant.records) for experiment in found for variant in experiment.variants)
    seeds = sorted({r.seed for e in found for v in e.variants for r in v.records})
    sections = [
        _section(experiment, title, number)
        for number, (experiment, title) in enumerate(zip(found, experiment_titles(found), strict=True), 1)
    ]
    return filled(
        "page.html",
        names=list(dict.fromkeys(experiment.protocol.name for experiment in found)),
        lead=f"{counted(runs, 'run')}, {'seed' if len(seeds) == 1 else 'seeds'} {_words(seeds)}.",
        sections=sections,
    )


def filled(template: str, **values: Any) -> str:
    """Fill a template with these values."""
    return templates().get_template(template).render(version=__version__, **values).translate(DIRECTION_MARKS)


@cache
def templates() -> Environment:
    """Return the templates of the page, with escaping turned on for all of them."""
    import jinja2  # here, because only this page needs it

    here = Path(__file__).parent / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {
        "style": (here / "page.css").read_text(encoding="utf-8"),
        "script": (here / "page.js").read_text(encoding="utf-8"),
        "marks": marks,
        "header_groups": header_groups,
        "marker_path": marker_path,
    }
    environment.filters |= {"number": _number, "shown": shown}
    environment.tests |= {"measured": lambda cell: isinstance(cell, Number)}
    return environment


def experiment_titles(found: Sequence[Experiment]) -> list[str]:
    """Return the name of each protocol, with details if names are not unique."""
    names = [experiment.protocol.name for experiment in found]
    sessions = [described(experiment.protocol) for experiment in found]
    features = [f"features of {experiment.provenance.get('backbone')}" for experiment in found]
    adapters = [_adapter(experiment.provenance.get("adapter")) for experiment in found]
    origins = [str(experiment.provenance.get("note") or "no note") for experiment in found]
    for details in (sessions, features, adapters, origins):
        distinct: dict[str, set[str]] = {}
        for name, detail in zip(names, details, strict=True):
            distinct.setdefault(name, set()).add(detail)
        pairs = zip(names, details, strict=True)
        names = [f"{name}, {detail}" if len(distinct[name]) > 1 else name for name, detail in pairs]
    return names


def _section(experiment: Experiment, title: str, number: int) -> dict[str, Any]:
    """Return everything about one protocol on one set of features."""
    best = max(experiment.variants, key=lambda variant: variant.summary.a_last.mean)
    drawn = representatives(experiment.variants)
    matrices = [(variant, confusion_matrix(variant.records)) for variant in drawn]
    results = experiment_table(experiment)
    backbone = experiment.provenance.get("backbone", UNRECORDED)
    return {
        "title": title,
        "number": number,
        "setting": described(experiment.protocol),
        "backbone": None if backbone == UNRECORDED else backbone,  # a note below the table says so
        "official_lists": experiment.session_lists is not None,
        "best": (best.label, percent(best.summary.a_last)),
        "results": results,
        "left_out": _left_out(results, len(best.summary.a_hm)),
        "further": further_table(experiment),
        "session_chart": session_chart(drawn),
        "trade_off_chart": trade_off_chart(drawn),
        "calibration_chart": session_chart(drawn, "calibration"),
        "base_new_chart": base_new_chart(drawn),
        "legend": list(zip((variant.label for variant in drawn), variant_styles(drawn), strict=True)),
        "some_drawn": len(drawn) < len(experiment.variants),
        "by_session": _by_session(experiment, "Accuracy in % after each session", "accuracy"),
        "calibration": _by_session(
            experiment, "Expected calibration error in % after each session", "calibration"
        ),
        "images": _images(experiment),
        "confusions": _confusions(experiment),
        "maps": [
            (variant.label, confusion_chart(matrix, variant.label), confusions_in_words(matrix))
            for variant, matrix in matrices
        ],
        "wide_maps": any(m.kind == "class" or len(m.groups) > NUMBERED for _, m in matrices),
        "classes": _classes(experiment),
        "labels": [variant.label for variant in experiment.variants],
        "configuration": _configuration(experiment),
    }


def _left_out(results: Table, later: int) -> str:
    """Name the sessions whose A_HM the table of results does not show."""
    shown_names = {column.name for column in results.columns}
    missing = [str(number) for number in range(1, later + 1) if f"A_HM {number}" not in shown_names]
    if not missing:
        return ""
    named = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} and {missing[-1]}"
    word = "session" if len(missing) == 1 else "sessions"
    return f"Not in this table: A_HM after {word} {named}. Mean A_HM is the mean of all sessions."


def _by_session(experiment: Experiment, title: str, measure: str) -> Table:
    """Return the numbers of a chart of sessions."""
    spreads = [getattr(variant.summary, measure) for variant in experiment.variants]
    columns = [Column("method"), *(Column(str(n) if n else "base", percent=True) for n in range(len(spreads[0])))]
    pairs = zip(experiment.variants, spreads, strict=True)
    return Table(title, tuple(columns), tuple(Row((v.label, *map(Number.of, own))) for v, own in pairs))


def _images(experiment: Experiment) -> Table:
    """Return the numbers of classes and images of each session."""
    record = experiment.variants[0].records[0]
    columns = tuple(map(Column, ("session", "classes", "images to learn", "images to test")))
    rows = []
    for number, (own, counts) in enumerate(zip(record.session_classes, record.images, strict=True)):
        rows.append(Row((str(number) if number else "base", *(f"{n:,}" for n in (len(own), *counts)))))
    return Table("Images of each session", columns, tuple(rows))


def _confusions(experiment: Experiment) -> Table:
    """Return errors between base and new classes."""
    columns = [Column("method")]
    for kind in ANSWERS:
        columns += [Column(name, f"{kind} images", True) for name in ("right", "other, same kind", "other kind")]
    rows = []
    for variant in experiment.variants:
        shares = (share for kind in ANSWERS for share in variant.answers(kind))
        rows.append(Row((variant.label, *map(Number.of, shares))))
    notes = ("Shares in % of the test images of base classes, and of those of classes that came later.",)
    return Table("Taken for a class of the same kind, or of the other", tuple(columns), tuple(rows), notes)


def _classes(experiment: Experiment) -> list[tuple[str, int, list[float | None]]]:
    """Return each class with its session and its accuracy in each variant, mean over seeds."""
    first = experiment.variants[0].records[0]
    accuracies = []
    for variant in experiment.variants:
        values: dict[int, list[float]] = {}
        for label, accuracy in (pair for record in variant.records for pair in record.metrics.per_class):
            if accuracy is not None:
                values.setdefault(label, []).append(accuracy)
        accuracies.append({label: sum(found) / len(found) for label, found in values.items()})
    titles = class_titles(first.class_names)
    return [
        (titles[label], session, [known.get(label) for known in accuracies])
        for session, classes in enumerate(first.session_classes)
        for label in classes
    ]


def _configuration(experiment: Experiment) -> list[tuple[str, dict[str, str]]]:
    """Return protocol, features, heads, seeds and versions."""
    protocol = dict(experiment.variants[0].records[0].config["protocol"])
    protocol.pop("shot_seed", None)
    parts: list[tuple[str, Mapping[str, Any]]] = [
        ("Protocol", protocol),
        ("Features", flat(experiment.provenance)),
    ]
    for variant in experiment.variants:
        kind, parameters = variant.records[0].head
        head = {"class": kind, **flat(parameters)}
        for name in variant.records[0].chosen:
            head[f"{name}, chosen"] = [
                f"{record.chosen.get(name)} (seed {record.seed})" for record in variant.records
            ]
        head["seeds"] = [record.seed for record in variant.records]
        head["seconds per run"] = f"{variant.summary.seconds.mean:.2f}"
        parts.append((variant.label, head))
    versions = {key: value for v in experiment.variants for r in v.records for key, value in r.versions.items()}
    return [
        (title, {key: _words(value) for key, value in values.items()})
        for title, values in (*parts, ("Versions", versions))
    ]


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _adapter(digest: object) -> str:
    return f"adapter {str(digest)[:8]}" if digest else "no adapter"


def _number(value: float) -> str:
    # Two decimals of a drawing's unit are finer than any screen.
    return f"{value:.2f}".rstrip("0").rstrip(".")

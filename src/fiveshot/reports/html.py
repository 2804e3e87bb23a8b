"""One HTML page about finished runs, complete in itself: no network, no other file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fiveshot import __version__
from fiveshot.benchmark import RunRecord, find_runs
from fiveshot.reports.bench_table import described
from fiveshot.reports.files import write_text
from fiveshot.reports.html_sections import experiment_section
from fiveshot.reports.markup import Html, element, joined
from fiveshot.reports.variants import Experiment, experiments

STYLE, SCRIPT = (Path(__file__).with_name(name) for name in ("page.css", "page.js"))
# Whatever a name or a bug might try: the page loads nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'"


def write_report(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Write one page about all finished runs below a folder, and return its path.

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
    page = report_page(find_runs(Path(folder)))
    return write_text(Path(out), page)


def report_page(records: Sequence[RunRecord]) -> str:
    """Return the page: results, charts, confusion, classes and configuration of each experiment."""
    found = experiments(records)
    runs = sum(len(variant.records) for experiment in found for variant in experiment.variants)
    seeds = sorted({r.seed for e in found for v in e.variants for r in v.records})
    lead = f"{runs} {_plural(runs, 'run')}, {_plural(len(seeds), 'seed')} {', '.join(map(str, seeds))}."
    titles = experiment_titles(found)
    numbered = enumerate(zip(found, titles, strict=True), 1)
    sections = [experiment_section(experiment, title, number) for number, (experiment, title) in numbered]
    body = joined(
        element("a", "Skip to the results", href="#results", class_="skip"),
        element(
            "header",
            element("h1", "Few-shot class-incremental learning"),
            element("p", lead, class_="lead"),
            _contents(titles) if len(found) > 1 else None,
        ),
        element("main", *sections, id="results"),
        element("footer", element("p", f"Written by fiveshot {__version__}.")),
        element("script", Html(SCRIPT.read_text(encoding="utf-8"))),
    )
    head = joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Few-shot class-incremental learning: {', '.join(_names(found))}"),
        element("style", Html(STYLE.read_text(encoding="utf-8"))),
    )
    return f"<!doctype html>\n{element('html', element('head', head), element('body', body), lang='en')}\n"


def experiment_titles(found: Sequence[Experiment]) -> list[str]:
    """Return the name of each protocol, with what else it takes to tell experiments apart."""
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


def _adapter(digest: object) -> str:
    return f"adapter {str(digest)[:8]}" if digest else "no adapter"


def _contents(titles: Sequence[str]) -> Html:
    entries = [
        element("li", element("a", title, href=f"#experiment-{number}")) for number, title in enumerate(titles, 1)
    ]
    return element("nav", element("ul", *entries), aria_label="Protocols")


def _names(found: Sequence[Experiment]) -> list[str]:
    return list(dict.fromkeys(experiment.protocol.name for experiment in found))


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"

"""Progress of a sweep on the terminal: one bar, and each result as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fiveshot.benchmark import Job, Outcome, RunRecord, sweep
from fiveshot.cli.echo import printable


def follow(jobs: Sequence[Job], out: Path, *, workers: int, memory: int | None, fresh: bool) -> list[RunRecord]:
    """Run a sweep under a progress bar on standard error; return the records in the order of the jobs."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    found: dict[Job, RunRecord] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("running", total=len(jobs))
        for outcome in sweep(jobs, out, workers=workers, memory=memory, fresh=fresh):
            found[outcome.job] = outcome.record
            bar.advance(task)
            tell(bar.console, outcome)
    return [found[job] for job in jobs]


def tell(console: Console, outcome: Outcome) -> None:
    """Print a line about a finished run, above a bar where there is one."""
    console.print(printable(describe(outcome)), markup=False, highlight=False, soft_wrap=True)


def describe(outcome: Outcome) -> str:
    """Return one line about a finished run."""
    metrics, job = outcome.record.metrics, outcome.job
    hm = metrics.sessions[-1].a_hm
    shown = "" if hm is None else f"A_HM {100 * hm:5.1f}  "
    origin = "kept from before" if outcome.reused else f"{outcome.record.seconds:.1f} s"
    if outcome.earlier_release:
        origin += f" by release {outcome.earlier_release}; --fresh runs it again"
    for name, value in outcome.record.chosen.items():
        origin += f", chose {name} = {value}"
    return (
        f"{job.protocol.name}  {job.method:9} seed {job.protocol.shot_seed}  "
        f"{shown}A_last {100 * metrics.a_last:5.1f}  A_inc {100 * metrics.a_inc:5.1f}  ({origin})"
    )

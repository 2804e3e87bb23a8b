"""``fiveshot paper``, ``report`` and ``compare``: the paper's tables, a page about runs, two heads compared."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from fiveshot.cli import completion
from fiveshot.cli.failures import KEPT, when_stopped
from fiveshot.cli.options import (
    AsJson,
    Flavor,
    Full,
    HeadDevice,
    Projections,
    Seeds,
    head_parameters,
    refuse_unused,
)
from fiveshot.cli.output import answering, check_format, echo, print_table
from fiveshot.cli.progress import status


@when_stopped(KEPT)
def paper(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, table5, table6, figure1, figure2, figure3, ablation-..., or all.",
            autocompletion=completion.paper_targets,
        ),
    ],
    features_dir: Annotated[
        Path | None, typer.Option(help="A folder of feature files; the embedded ones are used beside it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where tables, figures and runs are written.")] = Path("paper"),
    seeds: Seeds = None,
    full: Full = False,
    workers: Annotated[int, typer.Option(help="Processes that run at the same time.")] = 1,
    flavor: Flavor = "paper",
    shot_draw: Annotated[
        Literal["random", "first"], typer.Option(help="'random', or 'first' as the published code does.")
    ] = "random",
    projections: Projections = None,
    device: HeadDevice = None,
) -> None:
    """Regenerate a table or figure of the paper; says which features are missing, and fails where all are.

    One draw of the shots, and fewer random features where they would take over a minute, unless --full is given.

    Example: fiveshot paper table1 --features-dir features
    """
    if target == "figure2":
        why = "changes nothing in figure2, which shows features and no runs; leave it out"
        unused = ("seeds", "full", "workers", "flavor", "shot_draw", "projections", "device")
        refuse_unused(ctx, why, *unused)
    if target == "ablation-M":
        refuse_unused(ctx, "is what ablation-M varies; leave it out", "projections")
    with status("loading"):
        from fiveshot.benchmark import sweep
        from fiveshot.benchmark.cost import MINUTE
        from fiveshot.cli.commands.bench import draws, followed
        from fiveshot.reports import make_paper

    made = make_paper(
        target,
        features_dir=features_dir,
        out=out,
        seeds=draws(seeds, full=full),
        flavor=flavor,
        shot_draw=shot_draw,
        parameters=head_parameters(projections, device),
        seconds=None if full else MINUTE,
        run=lambda jobs, folder: followed(partial(sweep, workers=workers), jobs, folder),
    )
    for table in made.tables:
        print_table(table, "terminal")
    for line in made.missing:
        echo(f"missing: {line}", err=True)
    for file in made.files:
        echo(file)
    if made.width is not None:
        echo(f"note: RanPAC heads with {made.width:,} random features instead of the paper's 10,000", err=True)
    if made.tables and not full and seeds is None:
        echo("for the paper's full setting (five draws, 10,000 random features) add --full", err=True)
    if not made.files:
        raise typer.Exit(1)


def report(
    folder: Annotated[Path, typer.Argument(help="The --out folder of a benchmark, or a part of it.")],
    out: Annotated[Path | None, typer.Option(help="The page; report.html in the folder unless given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML page with tables, curves and configuration of finished runs.

    Example: fiveshot report runs
    """
    with answering("report", as_json=as_json) as answer:
        with status("loading"):
            from fiveshot.reports import write_report
        with status("writing the page"):
            page = write_report(folder, out or folder / "report.html")
        answer.result = {"files": [str(page)]}
        answer.say(str(page))


def compare(
    first: Annotated[Path, typer.Argument(help="Runs of one head: a folder below the --out of a benchmark.")],
    second: Annotated[Path, typer.Argument(help="Runs of the other head, under the same protocol.")],
    output: Annotated[str, typer.Option("--format", help="terminal, markdown, latex or csv.")] = "terminal",
    as_json: AsJson = False,
) -> None:
    """Compare two heads on the same draws: the difference in each measure, its 95 % interval, and p.

    Example: fiveshot compare runs/cub200-big/teen runs/cub200-big/ncm
    """
    with answering("compare", as_json=as_json) as answer:
        check_format(output)
        with status("loading"):
            from dataclasses import asdict

            from fiveshot.benchmark import find_runs
            from fiveshot.reports import comparison_tables, paired_variants
        with status("comparing"):
            pairs = paired_variants(find_runs(first), find_runs(second))
        answer.result = {"comparisons": [{**pair.names, **asdict(pair.comparison)} for pair in pairs]}
        for table in () if as_json else comparison_tables(pairs):
            print_table(table, output)

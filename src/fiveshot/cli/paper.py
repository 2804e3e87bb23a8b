"""``fiveshot paper``: the paper's tables and figures from whatever features are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.stopping import KEPT, when_stopped


@when_stopped(KEPT)
def paper(
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
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 1,
    workers: Annotated[int, typer.Option(help="Processes that run at the same time.")] = 1,
    projections: Annotated[int | None, typer.Option(help="Random features of the RanPAC heads.")] = None,
) -> None:
    """Regenerate a table or figure of the paper; says which features are missing.

    Example: fiveshot paper table1 --features-dir features
    """
    from fiveshot.cli.progress import describe
    from fiveshot.cli.tables import print_table
    from fiveshot.reports import make_paper

    made = make_paper(
        target,
        features_dir=features_dir,
        out=out,
        seeds=seeds,
        workers=workers,
        parameters={} if projections is None else {"n_projections": projections},
        on_outcome=lambda outcome: typer.echo(describe(outcome), err=True),
    )
    for table in made.tables:
        print_table(table, "terminal")
    for line in made.missing:
        typer.echo(f"missing: {line}", err=True)
    for file in made.files:
        typer.echo(file)

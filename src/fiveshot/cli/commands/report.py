"""``fiveshot report``: one HTML page about finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fiveshot.cli.options import AsJson
from fiveshot.cli.output import answering


def report(
    folder: Annotated[Path, typer.Argument(help="The --out folder of a benchmark, or a part of it.")],
    out: Annotated[Path | None, typer.Option(help="The page; report.html in the folder unless given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML page with tables, curves and configuration of finished runs.

    Example: fiveshot report runs
    """
    from fiveshot.reports import write_report

    with answering("report", as_json=as_json) as answer:
        page = write_report(folder, out or folder / "report.html")
        answer.result = {"files": [str(page)]}
        answer.say(str(page))

"""Print a table in the format asked for."""

from __future__ import annotations

import typer
from rich.console import Console

from fiveshot.errors import unknown_name
from fiveshot.reports import Table, as_csv, as_latex, as_markdown, as_rich

TEXT_FORMATS = {"markdown": as_markdown, "latex": as_latex, "csv": as_csv}
FORMATS = ("terminal", "json", *TEXT_FORMATS)


def check_format(output: str) -> str:
    """Return a format that there is, before anything is computed for it."""
    if output not in FORMATS:
        raise unknown_name("format", output, FORMATS)
    return output


def print_table(table: Table, output: str) -> None:
    """Print a table on standard output."""
    if check_format(output) == "terminal":
        console = Console()
        # A pipe has no width of its own, and a table cut off at 80 columns helps nobody.
        Console(width=None if console.is_terminal else 200).print(as_rich(table))
    else:
        typer.echo(TEXT_FORMATS[output](table))

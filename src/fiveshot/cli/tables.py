"""Print a table in the format asked for."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from fiveshot.cli.echo import echo, printable
from fiveshot.errors import unknown_name
from fiveshot.reports import Row, Table, as_csv, as_latex, as_markdown, as_rich

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
        Console(width=None if console.is_terminal else 200).print(as_rich(_readable(table)))
    else:
        echo(TEXT_FORMATS[output](table))


def _readable(table: Table) -> Table:
    """Return the table with names that cannot command the terminal, before room is made for them."""
    return replace(
        table,
        title=printable(table.title),
        columns=tuple(
            replace(column, name=printable(column.name), group=printable(column.group)) for column in table.columns
        ),
        rows=tuple(
            Row(
                tuple(printable(cell) if isinstance(cell, str) else cell for cell in row.cells),
                printable(row.block),
            )
            for row in table.rows
        ),
        notes=tuple(map(printable, table.notes)),
    )

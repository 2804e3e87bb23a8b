"""A table for the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from fiveshot.reports.table import Cell, Column, Mark, Number, Table, by_group, marks, shown

STYLES: dict[Mark, str] = {"best": "bold", "second": "underline"}
UNLIMITED = 100_000  # columns; wider than any table


@dataclass(frozen=True)
class TerminalTable:
    """What rich prints: one table, or one per group of columns where the terminal is too narrow for all."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = rich_table(self.table)
        wanted = Measurement.get(console, options.update(max_width=UNLIMITED), whole).maximum
        yield from map(rich_table, by_group(self.table)) if wanted > options.max_width else (whole,)


def as_rich(table: Table) -> TerminalTable:
    """Return a table that ``rich.print`` and ``Console.print`` draw.

    >>> from rich import print
    >>> from fiveshot.reports import Column, Row, Table, as_rich
    >>> print(as_rich(Table("Birds", (Column("method"),), (Row(("ncm",)),))))
    Birds...
    method...
    ───────
    ncm...
    """
    return TerminalTable(table)


def as_text(table: Table, *, width: int = 120) -> str:
    """Return the terminal's table without colours, for a file.

    Where ``width`` is too little for all columns, each group of them has a table of its own.

    >>> from fiveshot.reports import Column, Number, Row, Table, as_text
    >>> columns = (Column("method"), Column("A_last", percent=True))
    >>> rows = (Row(("ncm", Number(0.7, 0.01))), Row(("teen", Number(0.75, 0.02))))
    >>> print(as_text(Table("Birds", columns, rows)))
    Birds
    method    A_last
    ─────────────────
    ncm     70.0±1.0
    teen    75.0±2.0
    """
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(as_rich(table))
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def rich_table(table: Table) -> RichTable:
    """Return the table as rich has it, with the words of headings one below the other."""
    drawn = RichTable(
        title=Text(table.title, style="bold"),
        title_justify="left",
        caption=Text("\n".join(table.notes)) if table.notes else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for position, column in enumerate(table.columns):
        numbers = any(isinstance(row.cells[position], Number) for row in table.rows)
        drawn.add_column(
            Text("\n".join(column.title.split())),
            justify="right" if numbers else "left",
            vertical="bottom",
            no_wrap=numbers,  # so that names give way first where there is little room
        )
    marked = marks(table)
    for number_of_block, (title, rows) in enumerate(table.blocks()):
        if number_of_block:
            drawn.add_section()
        if title:
            drawn.add_row(Text(title, style="italic"))
        for number, row in rows:
            drawn.add_row(
                *(
                    _text(cell, column, marked.get((number, position)))
                    for position, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True))
                )
            )
    return drawn


def _text(cell: Cell, column: Column, mark: Mark | None) -> Text:
    words = shown(cell, column, plus_minus="±") if isinstance(cell, Number) else cell or ""
    return Text(words, style=STYLES[mark] if mark else "")

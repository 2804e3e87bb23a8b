"""A table in Markdown, as GitHub reads it."""

from __future__ import annotations

import re

from fiveshot.reports.table import Cell, Column, Mark, Number, Table, marks, shown

SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
FRAMES: dict[Mark, str] = {"best": "**{}**", "second": "<u>{}</u>"}


def as_markdown(table: Table) -> str:
    """Return the table as Markdown: best values bold, second ones underlined.

    >>> from fiveshot.reports import Column, Number, Row, Table, as_markdown
    >>> rows = (Row(("ncm", Number(0.7))), Row(("teen", Number(0.75))))
    >>> print(as_markdown(Table("Birds", (Column("method"), Column("A_last", percent=True, marked=1)), rows)))
    **Birds**
    <BLANKLINE>
    | method | A_last |
    | :-- | --: |
    | ncm | 70.0 |
    | teen | **75.0** |
    """
    numeric = [any(isinstance(row.cells[p], Number) for row in table.rows) for p in range(len(table.columns))]
    lines = [
        f"**{escaped(table.title)}**",
        "",
        _line([column.title.replace("|", r"\|") for column in table.columns]),
        _line(["--:" if number else ":--" for number in numeric]),
    ]
    marked = marks(table)
    for title, rows in table.blocks():
        if title:
            lines.append(_line([f"*{escaped(title)}*", *[""] * (len(table.columns) - 1)]))
        for number, row in rows:
            cells = zip(row.cells, table.columns, strict=True)
            lines.append(_line([_cell(*pair, marked.get((number, p))) for p, pair in enumerate(cells)]))
    for note in table.notes:
        lines += ["", escaped(note)]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is.

    >>> print(escaped("RanPAC* <b>"))
    RanPAC\\* \\<b\\>
    """
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell, column: Column, mark: Mark | None) -> str:
    if isinstance(cell, Number):
        words = shown(cell, column)
        return FRAMES[mark].format(words) if mark else words
    return escaped(cell or "")

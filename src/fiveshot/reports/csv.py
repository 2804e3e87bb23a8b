"""A table as comma-separated values, for other programs: fractions and deviations in full precision."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO

from fiveshot.reports.table import Cell, Number, Table


def as_csv(table: Table) -> str:
    """Return the table with unrounded fractions; a column with deviations is followed by one that holds them.

    The first column is the block, where there are blocks. Title and notes are left out.

    >>> from fiveshot.reports import Column, Number, Row, Table, as_csv
    >>> rows = (Row(("ncm", Number(2 / 3, 0.125))),)
    >>> print(as_csv(Table("Birds", (Column("method"), Column("A_last", percent=True)), rows)), end="")
    method,A_last,A_last std
    ncm,0.6666666666666666,0.125
    """
    blocks = any(row.block for row in table.rows)
    deviating = [any(_deviates(row.cells[p]) for row in table.rows) for p in range(len(table.columns))]
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heading = ["block"] if blocks else []
    for column, has_std in zip(table.columns, deviating, strict=True):
        heading += [column.title, f"{column.title} std"] if has_std else [column.title]
    writer.writerow(heading)
    for row in table.rows:
        values = [row.block] if blocks else []
        for cell, has_std in zip(row.cells, deviating, strict=True):
            values += list(_values(cell))[: 2 if has_std else 1]
        writer.writerow(values)
    return text.getvalue()


def _deviates(cell: Cell) -> bool:
    return isinstance(cell, Number) and cell.std is not None


def _values(cell: Cell) -> Iterator[str]:
    """Yield the value and the deviation of a cell, as far as it has them."""
    if not isinstance(cell, Number):
        yield cell or ""
        yield ""
    else:
        yield repr(float(cell.value))
        yield "" if cell.std is None else repr(float(cell.std))

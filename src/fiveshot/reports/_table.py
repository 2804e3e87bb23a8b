"""A table as a value, without formatting. The module ``_formats`` turns it into text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, TypeAlias

from fiveshot.errors import InputError
from fiveshot.metrics import Spread

Mark = Literal["best", "second"]


@dataclass(frozen=True)
class Number:
    """A measured value.

    Parameters
    ----------
    value : float
        The value, or its mean over seeds.
    std : float, optional
        The standard deviation; None for a single measurement.

    Examples
    --------
    >>> from fiveshot.metrics import mean_std
    >>> from fiveshot.reports import Number
    >>> Number(0.7), Number.of(mean_std([0.5, 0.75, 1.0]))
    (Number(value=0.7, std=None), Number(value=0.75, std=0.25))
    """

    value: float
    std: float | None = None

    @classmethod
    def of(cls, spread: Spread | None) -> Number | None:
        """Return the mean and deviation over seeds, or None if it was not measured.

        >>> Number.of(Spread(0.5, 0.1, 3)), Number.of(None)
        (Number(value=0.5, std=0.1), None)
        """
        return None if spread is None else cls(spread.mean, spread.std)


Cell: TypeAlias = Number | str | None
"""What a cell of a table holds: a number, a text, or nothing."""


@dataclass(frozen=True)
class Column:
    """What a column holds, and how its numbers are shown.

    Parameters
    ----------
    name : str
        The heading.
    group : str
        Common heading of adjacent columns.
    percent : bool
        Show fractions times 100.
    decimals : int
        Digits after the point.
    spread : bool
        Show deviations next to the means.
    marked : int
        With 1 the highest value of a block is bold, with 2 the second is underlined too.
    words : str
        A longer heading, for a page that has room for it.

    Examples
    --------
    >>> from fiveshot.reports import Column, Number, Row, Table, as_markdown
    >>> columns = (Column("method"), Column("A_last", "small", percent=True, decimals=2, spread=False))
    >>> print(as_markdown(Table("Birds", columns, (Row(("ncm", Number(0.70254, 0.0031))),))))
    **Birds**
    <BLANKLINE>
    | method | small A_last |
    | :-- | --: |
    | ncm | 70.25 |
    """

    name: str
    group: str = ""
    percent: bool = False
    decimals: int = 1
    spread: bool = True
    marked: int = 0
    words: str = ""

    @property
    def title(self) -> str:
        """The group's name and the column's, for formats with one line of headings."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True)
class Row:
    """One cell per column.

    Parameters
    ----------
    cells : tuple of Cell
        What stands in each column.
    block : str
        Rows of one block stand together under its title, and are ranked among themselves.

    Examples
    --------
    >>> from fiveshot.reports import Column, Number, Row, Table, as_markdown
    >>> rows = (Row(("NCM", Number(0.5))), Row(("NCM", Number(0.75)), "paper"), Row(("TEEN", None), "paper"))
    >>> print(as_markdown(Table("Birds", (Column("method"), Column("A_last", percent=True)), rows)))
    **Birds**
    <BLANKLINE>
    | method | A_last |
    | :-- | --: |
    | NCM | 50.0 |
    | *paper* |  |
    | NCM | 75.0 |
    | TEEN |  |
    """

    cells: tuple[Cell, ...]
    block: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns, with a title and notes.

    Parameters
    ----------
    title : str
        What the table is about.
    columns : tuple of Column
        From left to right.
    rows : tuple of Row
        From top to bottom.
    notes : tuple of str
        Sentences below the table.

    Raises
    ------
    InputError
        If a row does not have one cell per column.

    Examples
    --------
    >>> from fiveshot.reports import Column, Number, Row, Table, as_csv
    >>> columns = (Column("method"), Column("A_last", percent=True, marked=1))
    >>> rows = (Row(("ncm", Number(0.7))), Row(("teen", Number(0.75, 0.01))))
    >>> print(as_csv(Table("Birds", columns, rows)), end="")
    method,A_last,A_last std
    ncm,0.7,
    teen,0.75,0.01
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse rows that do not fit the columns."""
        for number, row in enumerate(self.rows):
            if len(row.cells) != len(self.columns):
                raise InputError(
                    f"row {number} of the table {self.title!r} has {len(row.cells)} cells for "
                    f"{len(self.columns)} columns"
                )

    @property
    def numeric(self) -> tuple[bool, ...]:
        """For each column, whether it has numbers."""
        places = range(len(self.columns))
        return tuple(any(isinstance(row.cells[place], Number) for row in self.rows) for place in places)

    def blocks(self) -> Iterator[tuple[str, list[tuple[int, Row]]]]:
        """Yield each block's title with its numbered rows."""
        for title, members in groupby(enumerate(self.rows), key=lambda item: item[1].block):
            yield title, list(members)


def shown(number: Number, column: Column, *, plus_minus: str = " ± ") -> str:
    """Format a number.

    >>> shown(Number(0.70254, 0.0031), Column("A_last", percent=True))
    '70.3 ± 0.3'
    """
    parts = [number.value] if number.std is None or not column.spread else [number.value, number.std]
    scale = 100 if column.percent else 1
    return plus_minus.join(f"{scale * part:.{column.decimals}f}" for part in parts)


def marks(table: Table) -> dict[tuple[int, int], Mark]:
    """Return which cells, as (row, column), are the best and second of their block.

    Rounded values are compared, so that values that look equal get the same mark. A block with one value has no
    marks.

    >>> columns = (Column("method"), Column("A_last", percent=True, marked=1))
    >>> rows = (Row(("ncm", Number(0.7))), Row(("teen", Number(0.75, 0.01))))
    >>> marks(Table("Birds", columns, rows))
    {(1, 1): 'best'}
    """
    found: dict[tuple[int, int], Mark] = {}
    names: tuple[Mark, ...] = ("best", "second")
    for position, column in enumerate(table.columns):
        plain = replace(column, spread=False)
        for _, rows in table.blocks():
            cells = {number: row.cells[position] for number, row in rows}
            values = {n: float(shown(cell, plain)) for n, cell in cells.items() if isinstance(cell, Number)}
            ranks = sorted(set(values.values()), reverse=True)
            if len(values) < 2:
                continue
            for mark, rank in zip(names[: column.marked], ranks, strict=False):
                found |= {(number, position): mark for number, value in values.items() if value == rank}
    return found


def header_groups(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Return each run of columns of one group as its word and their number. Long headings need no group.

    >>> header_groups((Column("method"), Column("A_last", "small"), Column("A_inc", "small")))
    [('', 1), ('small', 2)]
    """
    grouped = groupby("" if column.words else column.group for column in columns)
    return [(group, len(list(members))) for group, members in grouped]


def by_group(table: Table) -> tuple[Table, ...]:
    """Return one narrower table per group of columns, each with the columns that have no group."""
    groups = dict.fromkeys(column.group for column in table.columns if column.group)
    if len(groups) < 2:
        return (table,)
    parts = []
    for group in groups:
        kept = [position for position, column in enumerate(table.columns) if column.group in ("", group)]
        rows = tuple(replace(row, cells=tuple(row.cells[p] for p in kept)) for row in table.rows)
        notes = table.notes if group == list(groups)[-1] else ()
        columns = tuple(replace(table.columns[position], group="") for position in kept)
        parts.append(Table(f"{table.title}: {group}", columns, rows, notes))
    return tuple(parts)

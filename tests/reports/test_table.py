from __future__ import annotations

import pytest

from fiveshot.errors import InputError
from fiveshot.metrics import Spread
from fiveshot.reports import Column, Number, Row, Table
from fiveshot.reports._table import by_group, header_groups, marks, shown


def one_column(values: list[float | None], *, marked: int = 2, blocks: list[str] | None = None) -> Table:
    cells = [None if value is None else Number(value) for value in values]
    titles = blocks or [""] * len(cells)
    rows = tuple(Row((cell,), title) for cell, title in zip(cells, titles, strict=True))
    return Table("t", (Column("A_last", percent=True, marked=marked),), rows)


def test_best_and_second_are_found_and_gaps_are_skipped() -> None:
    assert marks(one_column([0.1, None, 0.3, 0.2])) == {(2, 0): "best", (3, 0): "second"}
    assert marks(one_column([0.1, 0.3, 0.2], marked=1)) == {(1, 0): "best"}
    assert marks(one_column([0.1, 0.3, 0.2], marked=0)) == {}


def test_values_that_look_equal_are_marked_alike() -> None:
    found = marks(one_column([0.70001, 0.70002, 0.699, 0.5]))
    assert found == {(0, 0): "best", (1, 0): "best", (2, 0): "second"}


def test_blocks_are_ranked_among_themselves() -> None:
    found = marks(one_column([0.1, 0.2, 0.8, 0.9], blocks=["", "", "paper", "paper"]))
    assert found == {(1, 0): "best", (0, 0): "second", (3, 0): "best", (2, 0): "second"}


def test_a_lone_value_is_not_the_best_of_anything() -> None:
    assert marks(one_column([0.5, None])) == {}


@pytest.mark.parametrize("values", [[0.0, 1.0], [0.5, 0.5], [0.1234, 0.12341, 0.1229], [0.9996, 1.0, 0.2]])
def test_nothing_shown_exceeds_the_best(values: list[float]) -> None:
    table = one_column(values)
    best = {row for (row, _), mark in marks(table).items() if mark == "best"}
    texts = [float(shown(Number(value), table.columns[0])) for value in values]
    assert best == {place for place, text in enumerate(texts) if text == max(texts)}


@pytest.mark.parametrize(
    ("number", "column", "text"),
    [
        (Number(0.5), Column("x", percent=True), "50.0"),
        (Number(0.51237, 0.00451), Column("x", percent=True, decimals=2), "51.24 ± 0.45"),
        (Number(0.5, 0.1), Column("x", percent=True, spread=False), "50.0"),
        (Number(12.345), Column("seconds"), "12.3"),
        (Number.of(Spread(0.25, None, 1)), Column("x", percent=True), "25.0"),
    ],
)
def test_numbers_are_shown(number: Number, column: Column, text: str) -> None:
    assert shown(number, column) == text


def test_rows_must_fit_the_columns() -> None:
    with pytest.raises(InputError, match="row 1 of the table 'birds' has 1 cells for 2 columns"):
        Table("birds", (Column("a"), Column("b")), (Row(("x", "y")), Row(("x",))))


def test_a_wide_table_is_cut_by_groups_of_columns() -> None:
    columns = (Column("method"), Column("A", "small"), Column("B", "small"), Column("A", "big"))
    table = Table("t", columns, (Row(("ncm", Number(1), Number(2), Number(3)), "ours"),), ("a note",))
    small, big = by_group(table)
    assert [column.title for column in small.columns] == ["method", "A", "B"]
    assert small.title == "t: small"
    assert big.rows == (Row(("ncm", Number(3)), "ours"),)
    assert (small.notes, big.notes) == ((), ("a note",))
    assert header_groups(columns) == [("", 1), ("small", 2), ("big", 1)]
    assert by_group(small) == (small,)

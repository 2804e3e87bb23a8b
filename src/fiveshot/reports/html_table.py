"""A table in HTML, with captions and scopes for readers that cannot see it."""

from __future__ import annotations

from fiveshot.reports.markup import Html, element, joined
from fiveshot.reports.table import Cell, Column, Mark, Number, Row, Table, header_groups, marks, shown

TAGS: dict[Mark, str] = {"best": "strong", "second": "u"}


def as_html(table: Table) -> Html:
    """Return the table, in a frame that scrolls where it is too wide, with its notes below."""
    body = element(
        "table",
        element("caption", element("span", table.title)),
        element(
            "thead", _group_row(table), element("tr", *(_heading(table, p) for p in range(len(table.columns))))
        ),
        *_bodies(table),
    )
    notes = [element("li", note) for note in table.notes]
    return joined(scrolling(body, table.title), element("ul", *notes, class_="notes") if notes else None)


def scrolling(content: Html, label: str, class_: str = "scroll") -> Html:
    """Return a frame that scrolls, with the keyboard too."""
    return element("div", content, class_=class_, role="region", tabindex=0, aria_label=label)


def _group_row(table: Table) -> Html | None:
    groups = header_groups(table.columns)
    if not any(word for word, _ in groups):
        return None
    cells = [
        element("th", word, colspan=span, scope="colgroup") if word else element("td", colspan=span)
        for word, span in groups
    ]
    return element("tr", *cells, class_="groups")


def _heading(table: Table, position: int) -> Html:
    numbers = any(isinstance(row.cells[position], Number) for row in table.rows)
    return element("th", table.columns[position].name, scope="col", class_="number" if numbers else None)


def _bodies(table: Table) -> list[Html]:
    marked = marks(table)
    bodies = []
    for title, rows in table.blocks():
        heading = None
        if title:
            cell = element("th", title, colspan=len(table.columns), scope="rowgroup")
            heading = element("tr", cell, class_="block")
        lines = [_line(table, number, row, marked) for number, row in rows]
        bodies.append(element("tbody", heading, *lines))
    return bodies


def _line(table: Table, number: int, row: Row, marked: dict[tuple[int, int], Mark]) -> Html:
    cells = []
    for position, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
        content = _content(cell, column, marked.get((number, position)))
        if position == 0:
            cells.append(element("th", content, scope="row"))
        else:
            cells.append(element("td", content, class_="number" if isinstance(cell, Number) else None))
    return element("tr", *cells)


def _content(cell: Cell, column: Column, mark: Mark | None) -> object:
    if not isinstance(cell, Number):
        return cell
    words = shown(cell, column)
    return element(TAGS[mark], words) if mark else words

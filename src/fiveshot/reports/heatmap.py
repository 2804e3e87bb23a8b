"""A confusion matrix as a heat-map in inline SVG."""

from __future__ import annotations

import math

from fiveshot.reports.confusion import ClassGroup, ConfusionMatrix
from fiveshot.reports.markup import Html, element

SIZE, LEAST_CELL = 300, 14  # of the square, which grows with many groups until their names fit
TOP = 18
LETTER = 6.8  # width
NUMBERED = 14  # up to so many groups, cells are wide enough for a number
NAME_LENGTH = 22


def heatmap(matrix: ConfusionMatrix, label: str) -> Html:
    """Return true groups downwards, predicted ones to the right; the darker, the larger the share of the row.

    The shade grows with the square root, so that the rare confusions are seen beside the diagonal.
    """
    rows = [_row_name(matrix, number) for number in range(len(matrix.groups))]
    size = max(SIZE, LEAST_CELL * len(rows))
    left = 12 + LETTER * max(map(len, rows))
    return element(
        "svg",
        element("text", f"true {_noun(matrix)}", x=0, y=11),
        element("rect", x=left, y=TOP, width=size, height=size, class_="frame"),
        *_cells(matrix, left, size / len(rows)),
        *_names(matrix, rows, left, size),
        element("text", f"taken for {_noun(matrix)}", x=left + size / 2, y=TOP + size + 30, class_="middle"),
        viewBox=f"0 0 {left + size + 12:.0f} {size + TOP + 38}",
        role="img",
        aria_label=f"{label}: {in_words(matrix)}",
        class_="heat",
    )


def in_words(matrix: ConfusionMatrix) -> str:
    """Say the largest confusions between different groups.

    >>> import numpy as np
    >>> groups = (ClassGroup("base", (0,)), ClassGroup("1", (1,)))
    >>> in_words(ConfusionMatrix("session", groups, np.array([[0.9, 0.1], [0.25, 0.75]])))
    'largest confusions: session 1 taken for base in 25.0 %, base taken for session 1 in 10.0 %'
    """
    found = [
        (float(share), _said(matrix, true), _said(matrix, predicted))
        for i, true in enumerate(matrix.groups)
        for j, predicted in enumerate(matrix.groups)
        if i != j and (share := matrix.shares[i, j]) > 0
    ]
    worst = sorted(found, key=lambda entry: -entry[0])[:3]
    if not worst:
        return "no confusion"
    said = (f"{true} taken for {other} in {100 * share:.1f} %" for share, true, other in worst)
    return f"largest confusions: {', '.join(said)}"


def _names(matrix: ConfusionMatrix, rows: list[str], left: float, size: float) -> list[Html]:
    cell = size / len(rows)
    columns = [str(n + 1) if matrix.kind == "class" else group.name for n, group in enumerate(matrix.groups)]
    step = math.ceil((2 + LETTER * max(map(len, columns[1:] or columns))) / cell)
    small = "small" if cell < 18 else ""
    drawn = []
    for number, (row, column) in enumerate(zip(rows, columns, strict=True)):
        middle = (number + 0.5) * cell
        drawn.append(element("text", row, x=left - 5, y=TOP + middle + 4, class_=f"end {small}"))
        if number % step == 0:
            drawn.append(element("text", column, x=left + middle, y=TOP + size + 14, class_=f"middle {small}"))
    return drawn


def _cells(matrix: ConfusionMatrix, left: float, cell: float) -> list[Html]:
    numbered = len(matrix.groups) <= NUMBERED
    drawn = []
    for i, true in enumerate(matrix.groups):
        for j, predicted in enumerate(matrix.groups):
            share = float(matrix.shares[i, j])
            if not share > 0:  # nothing, or not known
                continue
            x, y = left + j * cell, TOP + i * cell
            said = f"{_said(matrix, true)} taken for {_said(matrix, predicted)}: {100 * share:.1f} %"
            square = element(
                "rect", element("title", said), x=x, y=y, width=cell, height=cell, fill_opacity=math.sqrt(share)
            )
            drawn.append(square)
            if numbered and share >= 0.005:
                tone = "middle small " + _shade(share)
                drawn.append(
                    element("text", f"{100 * share:.0f}", x=x + cell / 2, y=y + cell / 2 + 3.5, class_=tone)
                )
    return drawn


def _shade(share: float) -> str:
    """Return whether a cell is so strong that its number must change colour: by day and night, or by night."""
    return "deep" if share > 0.8 else "mid" if share > 0.42 else ""


def _said(matrix: ConfusionMatrix, group: ClassGroup) -> str:
    return group.name if matrix.kind == "class" or group.name == "base" else f"{matrix.kind} {group.name}"


def _noun(matrix: ConfusionMatrix) -> str:
    return "class" if matrix.kind == "class" else "session"


def _row_name(matrix: ConfusionMatrix, number: int) -> str:
    name = matrix.groups[number].name
    if matrix.kind != "class":
        return name
    short = name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"
    return f"{short} {number + 1}"

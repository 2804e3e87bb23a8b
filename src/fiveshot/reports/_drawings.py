"""Charts as lists of shapes, in screen units. The page and the paper's figures paint them.

The page's template turns the shapes into inline SVG, which supports dark screens and needs no library.
``_paper_figures`` paints the same shapes with matplotlib into files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fiveshot.benchmark import RunRecord
from fiveshot.metrics import Spread
from fiveshot.reports._styles import Style, styles
from fiveshot.reports._variants import Variant, class_titles

WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 38, 12, 12, 38
BAR, PAIR = 13, 40  # heights of a bar, and of a method's two bars with their gap
MOST_GROUPS = 40  # rows of a confusion matrix
HEAT_SIZE, LEAST_CELL, HEAT_TOP = 300, 14, 18  # the square grows with many groups until their names fit
LETTER = 6.8  # width
NUMBERED = 14  # up to this many groups, cells are wide enough for a number
NAME_LENGTH = 22
# Measures of a summary after every session.
BY_SESSION = {"accuracy": "Accuracy on all classes seen so far", "calibration": "Expected calibration error"}
# Matplotlib's markers as polygons: the radii of their corners, and the direction of the first in degrees.
MARKERS: dict[str, tuple[tuple[float, ...], float]] = {
    "s": ((1.25,) * 4, 45),
    "D": ((1.25,) * 4, 0),
    "^": ((1.25,) * 3, -90),
    "v": ((1.25,) * 3, 90),
    "<": ((1.25,) * 3, 180),
    ">": ((1.25,) * 3, 0),
    "p": ((1.25,) * 5, -90),
    "h": ((1.15,) * 6, 0),
    "P": ((1.4, 0.5) * 4, 0),
    "X": ((1.4, 0.5) * 4, 45),
    "*": ((1.5, 0.6) * 5, -90),
}

Point = tuple[float, float]  # to the right, and down


@dataclass(frozen=True)
class Shape:
    """One mark of a chart. ``role`` is its class in the page's style sheet."""

    kind: Literal["line", "area", "box", "marker", "text"]
    points: tuple[Point, ...]  # of a box, two opposite corners; of a marker and a text, one point
    role: str = ""
    words: str = ""  # the content of a text; for other shapes, the tooltip
    style: Style | None = None  # the method that it shows
    strength: float = 1.0  # opacity of a cell


@dataclass(frozen=True)
class Drawing:
    """Shapes on an area of this size, and a description in words."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    words: str


@dataclass(frozen=True)
class ClassGroup:
    """Classes that share a row and a column of a confusion matrix."""

    name: str
    classes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """The share of a group's images that was predicted as each group; every row sums to 1."""

    kind: Literal["class", "session", "sessions"]
    groups: tuple[ClassGroup, ...]
    shares: NDArray[np.float64]  # (n_groups, n_groups), true by predicted; NaN without test images

    def said(self, place: int) -> str:
        """Return the name of a group for use in a sentence."""
        name = self.groups[place].name
        return name if self.kind == "class" or name == "base" else f"{self.kind} {name}"


def trade_off_chart(variants: Sequence[Variant]) -> Drawing | None:
    """Plot accuracy on base classes against that on new ones, as the scores of new classes are raised or lowered.

    A curve is the mean over seeds; its marker shows the unchanged head.
    """
    curves = []
    for variant in variants:
        own = [record.trade_off for record in variant.records if record.trade_off is not None]
        if len(own) < len(variant.records):
            return None
        curves.append([np.mean([getattr(curve, kind) for curve in own], axis=0) for kind in ("base", "new")])
    # Whole tens of percent to the right of, and above, all curves.
    ends = [float(max(curve[axis].max() for curve in curves)) for axis in (0, 1)]
    right, top = (max(10, 10 * math.ceil(10 * end)) for end in ends)

    def x(percent: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * percent / right

    def y(percent: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * percent / top

    shapes = _axes(x, range(0, right + 1, 10), y, range(0, top + 1, 10), "base classes")
    for variant, curve, style in zip(variants, curves, variant_styles(variants), strict=True):
        line = tuple((x(100 * base), y(100 * new)) for base, new in zip(*curve, strict=True))
        shapes.append(Shape("line", line, "line dashed" if style.dashed else "line", style=style))
        base, new = (100 * spread.mean for spread in variant.base_new if spread is not None)
        words = f"{variant.label}: area {percent(variant.summary.area)}"
        shapes.append(Shape("marker", ((x(base), y(new)),), "marker", words, style))
    said = "; ".join(f"{variant.label}: {percent(variant.summary.area)}" for variant in variants)
    words = f"Accuracy on new classes against base classes. Area under the curve: {said}."
    return Drawing(WIDTH, HEIGHT, tuple(shapes), words)


def session_chart(variants: Sequence[Variant], measure: str = "accuracy") -> Drawing:
    """Return a measure of ``BY_SESSION`` as one line per variant, with bands for the spread over seeds."""
    values: list[Sequence[Spread]] = [getattr(variant.summary, measure) for variant in variants]
    low, high = _range([spread for own in values for spread in own])
    last = len(values[0]) - 1

    def x(session: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (session / last if last else 0.5)

    def y(percent: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (percent - low) / (high - low)

    step = 10 if high - low <= 60 else 20
    numbers = range(0, last + 1, max(1, math.ceil((last + 1) / 12)))
    shapes = _axes(x, numbers, y, range(math.ceil(low / step) * step, int(high) + 1, step), "session")
    for variant, own, style in zip(variants, values, variant_styles(variants), strict=True):
        shapes += _curve(variant.label, own, style, x, y)
    ends = [
        f"{v.label} from {percent(own[0])} to {percent(own[-1])}" for v, own in zip(variants, values, strict=True)
    ]
    said = f"{BY_SESSION[measure]}, from the base session to the last"
    return Drawing(WIDTH, HEIGHT, tuple(shapes), f"{said}: {'; '.join(ends)}.")


def base_new_chart(variants: Sequence[Variant]) -> Drawing:
    """Return a pair of bars per variant: accuracy after the last session on base and on new classes."""
    left = min(170, 16 + max(len(variant.label) for variant in variants) * 7)
    height = len(variants) * PAIR + 26

    def x(percent: float) -> float:
        return left + (WIDTH - left - 62) * percent / 100

    shapes: list[Shape] = []
    for tick in range(0, 101, 25):
        shapes.append(Shape("line", ((x(tick), 2), (x(tick), height - 22)), "grid"))
        shapes.append(Shape("text", ((x(tick), height - 6),), "middle", str(tick)))
    for place, (variant, style) in enumerate(zip(variants, variant_styles(variants), strict=True)):
        top = place * PAIR + 6
        shapes.append(
            Shape("text", ((left - 8, top + BAR + 4),), "end", _cut(variant.label, int((left - 10) / 6.6)))
        )
        for shift, spread, kind in ((0, variant.base_new[0], "base"), (BAR + 2, variant.base_new[1], "new")):
            if spread is not None:
                words = f"{variant.label}, {kind} classes: {percent(spread)}"
                shapes += _bar(x, top + shift, spread, f"bar {kind}", words, style)
    said = "; ".join(f"{v.label}: base {percent(v.base_new[0])}, new {percent(v.base_new[1])}" for v in variants)
    words = f"Accuracy after the last session on base and on new classes. {said}."
    return Drawing(WIDTH, height, tuple(shapes), words)


def confusion_chart(matrix: ConfusionMatrix, label: str) -> Drawing:
    """Return a heat-map: true groups downwards, predicted ones to the right, darker for a larger share of the row.

    The shade grows with the square root, so that rare confusions are visible next to the diagonal.
    """
    rows = [_row_name(matrix, number) for number in range(len(matrix.groups))]
    size = max(HEAT_SIZE, LEAST_CELL * len(rows))
    left = 12 + LETTER * max(map(len, rows))
    noun = "class" if matrix.kind == "class" else "session"
    bottom = HEAT_TOP + size
    shapes = (
        Shape("text", ((0, 11),), "", f"true {noun}"),
        Shape("box", ((left, HEAT_TOP), (left + size, bottom)), "frame"),
        *_cells(matrix, left, size / len(rows)),
        *_group_names(matrix, rows, left, size),
        Shape("text", ((left + size / 2, bottom + 30),), "middle", f"taken for {noun}"),
    )
    return Drawing(left + size + 12, bottom + 38, shapes, f"{label}: {confusions_in_words(matrix)}")


def confusion_matrix(records: Sequence[RunRecord]) -> ConfusionMatrix:
    """Return the confusion after the last session, over all runs together (they differ in their seed)."""
    first = records[0]
    kind, groups = class_groups(first.session_classes, class_titles(first.class_names))
    place = np.full(len(first.class_names), -1)
    for number, group in enumerate(groups):
        place[list(group.classes)] = number
    counts = np.zeros((len(groups), len(groups)))
    for record in records:
        last = record.predictions[-1]
        tested = last >= 0
        np.add.at(counts, (place[record.y_true[tested]], place[last[tested]]), 1)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)
    return ConfusionMatrix(kind, groups, shares)


def class_groups(
    session_classes: Sequence[Sequence[int]], class_names: Sequence[str], most: int = MOST_GROUPS
) -> tuple[Literal["class", "session", "sessions"], tuple[ClassGroup, ...]]:
    """Group by classes, sessions or ranges of sessions: the finest with at most ``most`` groups.

    >>> kind, groups = class_groups([[2, 0], [1]], ["ani", "rook", "wren"], most=2)
    >>> kind, [(group.name, group.classes) for group in groups]
    ('session', [('base', (2, 0)), ('1', (1,))])
    """

    def group(first: int, last: int) -> ClassGroup:
        classes = tuple(label for part in session_classes[first : last + 1] for label in part)
        return ClassGroup("base" if last == 0 else str(first) if first == last else f"{first}–{last}", classes)

    if sum(map(len, session_classes)) <= most:
        ordered = [label for classes in session_classes for label in classes]
        return "class", tuple(ClassGroup(class_names[label], (label,)) for label in ordered)
    if len(session_classes) <= most:
        return "session", tuple(group(n, n) for n in range(len(session_classes)))
    edges = np.linspace(1, len(session_classes), most).round().astype(int).tolist()
    return "sessions", (group(0, 0), *(group(a, b - 1) for a, b in pairwise(edges)))


def confusions_in_words(matrix: ConfusionMatrix) -> str:
    """Describe the largest confusions between different groups.

    >>> import numpy as np
    >>> groups = (ClassGroup("base", (0,)), ClassGroup("1", (1,)))
    >>> confusions_in_words(ConfusionMatrix("session", groups, np.array([[0.9, 0.1], [0.25, 0.75]])))
    'largest confusions: session 1 taken for base in 25.0 %, base taken for session 1 in 10.0 %'
    """
    places = range(len(matrix.groups))
    found = [(float(matrix.shares[i, j]), i, j) for i in places for j in places if i != j]
    worst = sorted((entry for entry in found if entry[0] > 0), key=lambda entry: -entry[0])[:3]
    if not worst:
        return "no confusion"
    said = (f"{matrix.said(i)} taken for {matrix.said(j)} in {100 * share:.1f} %" for share, i, j in worst)
    return f"largest confusions: {', '.join(said)}"


def marker_path(kind: str, x: float, y: float, size: float = 4) -> str:
    """Return the SVG path of a marker around a point."""
    if kind == "o":
        return f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size} 0a{size} {size} 0 1 0 -{2 * size} 0z"
    radii, turn = MARKERS[kind]
    step = 360 / len(radii)
    angles = [math.radians(turn + step * number) for number in range(len(radii))]
    points = [(x + size * r * math.cos(a), y + size * r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]
    return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points) + "z"


def variant_styles(variants: Sequence[Variant]) -> list[Style]:
    """Return the look of each variant."""
    return styles([variant.summary.method for variant in variants])


def percent(spread: Spread | None) -> str:
    """Return a fraction with its spread in words.

    >>> percent(Spread(0.5, 0.012, 3)), percent(None)
    ('50.0 ± 1.2 %', 'none')
    """
    if spread is None:
        return "none"
    return f"{100 * spread.mean:.1f}" + ("" if spread.std is None else f" ± {100 * spread.std:.1f}") + " %"


def _axes(
    x: Callable[[float], float], across: range, y: Callable[[float], float], up: range, words: str
) -> list[Shape]:
    """Return the grid with its numbers, and the label of the horizontal axis."""
    shapes: list[Shape] = []
    for tick in up:
        shapes.append(Shape("line", ((LEFT, y(tick)), (WIDTH - RIGHT, y(tick))), "grid"))
        shapes.append(Shape("text", ((LEFT - 6, y(tick) + 4),), "end", str(tick)))
    for tick in across:
        shapes.append(Shape("text", ((x(tick), HEIGHT - BOTTOM + 16),), "middle", str(tick)))
    return [*shapes, Shape("text", (((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6),), "middle", words)]


def _curve(
    label: str, values: Sequence[Spread], style: Style, x: Callable[[float], float], y: Callable[[float], float]
) -> Iterator[Shape]:
    """Yield a variant's band, its line, and a marker for each session."""
    spreads = list(enumerate(values))
    if any(spread.std for _, spread in spreads):
        upper = [(x(n), y(100 * (s.mean + (s.std or 0)))) for n, s in spreads]
        lower = [(x(n), y(100 * (s.mean - (s.std or 0)))) for n, s in reversed(spreads)]
        yield Shape("area", (*upper, *lower), "band", style=style)
    line = tuple((x(n), y(100 * s.mean)) for n, s in spreads)
    yield Shape("line", line, "line dashed" if style.dashed else "line", style=style)
    for (number, spread), point in zip(spreads, line, strict=True):
        yield Shape("marker", (point,), "marker", f"{label}, session {number}: {percent(spread)}", style)


def _bar(
    x: Callable[[float], float], top: float, spread: Spread, role: str, words: str, style: Style
) -> Iterator[Shape]:
    """Yield a bar, a whisker for the spread over seeds, and its number."""
    value, std = 100 * spread.mean, 100 * (spread.std or 0)
    yield Shape("box", ((x(0), top), (x(value), top + BAR)), role, words, style)
    if std:
        middle = top + BAR / 2
        yield Shape("line", ((x(value - std), middle), (x(value + std), middle)), "whisker")
    yield Shape("text", ((x(value + std) + 5, top + BAR - 2.5),), "", f"{value:.1f}")


def _cells(matrix: ConfusionMatrix, left: float, cell: float) -> Iterator[Shape]:
    """Yield a square for each share, with its number if there is room."""
    for (i, j), share in np.ndenumerate(matrix.shares):
        if not share > 0:  # nothing, or not known
            continue
        x, y = left + j * cell, HEAT_TOP + i * cell
        words = f"{matrix.said(i)} taken for {matrix.said(j)}: {100 * share:.1f} %"
        yield Shape("box", ((x, y), (x + cell, y + cell)), "cell", words, strength=math.sqrt(share))
        if len(matrix.groups) <= NUMBERED and share >= 0.005:
            # A number on a strong cell changes its color: in light and dark mode, or only in dark mode.
            shade = " deep" if share > 0.8 else " mid" if share > 0.42 else ""
            place = (x + cell / 2, y + cell / 2 + 3.5)
            yield Shape("text", (place,), f"middle small{shade}", f"{100 * share:.0f}")


def _group_names(matrix: ConfusionMatrix, rows: list[str], left: float, size: float) -> Iterator[Shape]:
    """Yield the names of the rows, and of the columns that have room."""
    cell = size / len(rows)
    columns = [str(n + 1) if matrix.kind == "class" else group.name for n, group in enumerate(matrix.groups)]
    step = math.ceil((2 + LETTER * max(map(len, columns[1:] or columns))) / cell)
    small = " small" if cell < 18 else ""
    for number, (row, column) in enumerate(zip(rows, columns, strict=True)):
        middle = (number + 0.5) * cell
        yield Shape("text", ((left - 5, HEAT_TOP + middle + 4),), f"end{small}", row)
        if number % step == 0:
            yield Shape("text", ((left + middle, HEAT_TOP + size + 14),), f"middle{small}", column)


def _row_name(matrix: ConfusionMatrix, number: int) -> str:
    """Return the name of a row; a class also has its number, because columns show only the number."""
    name = matrix.groups[number].name
    return f"{_cut(name, NAME_LENGTH)} {number + 1}" if matrix.kind == "class" else name


def _range(spreads: Sequence[Spread]) -> tuple[float, float]:
    """Return whole tens of percent below and above all values and their spread."""
    lows = [100 * (s.mean - (s.std or 0)) for s in spreads]
    highs = [100 * (s.mean + (s.std or 0)) for s in spreads]
    low, high = max(0, math.floor(min(lows) / 10) * 10), min(100, math.ceil(max(highs) / 10) * 10)
    return (low, high) if high > low else (max(0, high - 10), max(10, high))


def _cut(label: str, most: int) -> str:
    """Return at most ``most`` letters of a label."""
    return label if len(label) <= most else label[: most - 1] + "…"

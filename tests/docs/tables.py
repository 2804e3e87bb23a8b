"""Tables of measured numbers in a page, and whether the committed outputs of benchmarks say the same.

A table belongs to the outputs (``benchmarks/results/``) that its section links to. A page may leave columns out,
call rows otherwise and round; numbers of a row must then still follow each other in one line of an output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pages import HEADING, LINK, ROOT, Page

RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"(?<![\w.-])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
MEASURED = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[\d\s.,/()±+%-]|[kKMGT]?i?B\b|ms\b|s\b|x\b)*")
DASHES = re.compile(r"[\s|:-]+")


@dataclass(frozen=True)
class Table:
    """The rows of a table below its headings, with the section it is in and the outputs linked there."""

    section: str
    line: int
    rows: tuple[tuple[str, ...], ...]
    outputs: tuple[Path, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether two rows hold two numbers at least, not all of them whole."""
        full = [row for row in self.rows if sum(bool(MEASURED.fullmatch(cell)) for cell in row) >= 2]
        return len(full) >= 2 and any("." in number for row in full for number in NUMBER.findall(" ".join(row)))


def tables(page: Page) -> list[Table]:
    """Return the tables of a page."""
    found: list[Table] = []
    for lines in _sections(page.prose):
        heading = HEADING.match(lines[0][1])
        text = "\n".join(line for _, line in lines)
        linked = ((page.path.parent / path).resolve() for path, _ in LINK.findall(text) if path)
        outputs = tuple(dict.fromkeys(path for path in linked if path.parent == RESULTS))
        for group in _groups(lines):
            rows = tuple(cells(line) for _, line in group[2:])
            found.append(Table(heading[1] if heading else "", group[0][0], rows, outputs))
    return found


def _sections(prose: Sequence[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    starts = [place for place, (_, line) in enumerate(prose) if HEADING.match(line)]
    return [list(prose[a:b]) for a, b in pairwise(dict.fromkeys([0, *starts, len(prose)]))]


def _groups(lines: Iterable[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """Return lines that form tables: headings, dashes and rows without a gap."""
    groups: list[list[tuple[int, str]]] = [[]]
    for number, line in lines:
        if not line.startswith("|"):
            groups.append([])
        else:
            groups[-1].append((number, line))
    return [group for group in groups if len(group) > 1 and DASHES.fullmatch(group[1][1])]


def cells(line: str) -> tuple[str, ...]:
    """Return the cells of a row of Markdown, or the columns of plain text, without emphasis."""
    parts = line.strip().strip("|").split("|") if line.startswith("|") else re.split(r"\s{2,}", line.strip())
    return tuple(part.replace("**", "").strip().strip("*").strip() for part in parts)


def missing_rows(table: Table, output: str) -> list[str]:
    """Return the rows whose numbers are in no line of an output; a line serves one row."""
    lines = [line for line in output.splitlines() if line.strip()]
    missing: list[str] = []
    for row in table.rows:
        label, numbers = _label(row), _row_numbers(row)
        named = [line for line in lines if label and NUMBER.search(line) and _label(cells(line)) == label]
        line = next((line for line in named or lines if _follow(numbers, NUMBER.findall(line))), None)
        if line is not None and numbers:
            lines.remove(line)
        elif line is None:
            missing.append(" | ".join(row))
    return missing


def missing_cells(table: Table, output: str) -> list[str]:
    """Return the cells whose numbers are nowhere side by side in an output.

    If lines have the name of the row, only these count.
    """
    lines = [(_label(cells(line)), NUMBER.findall(line)) for line in output.splitlines()]
    missing: list[str] = []
    for row in table.rows:
        named = [numbers for label, numbers in lines if label.startswith(_label(row))]
        among = named or [numbers for _, numbers in lines]
        measured = [cell for cell in row if MEASURED.fullmatch(cell)]
        missing += [cell for cell in measured if not any(_adjoin(NUMBER.findall(cell), line) for line in among)]
    return missing


def _label(row: Sequence[str]) -> str:
    return row[0].partition(",")[0].lower() if row else ""


def _row_numbers(row: Sequence[str]) -> list[str]:
    """Return the numbers of a row; those in its name, such as a size of batches, only where it is a number."""
    named = row[0] if MEASURED.match(row[0]) else ""
    return NUMBER.findall(" | ".join([named, *row[1:]]))


def _follow(numbers: Sequence[str], among: Sequence[str]) -> bool:
    """Tell whether numbers come in this order among others, with others between them."""
    rest = iter(among)
    return all(any(agrees(number, other) for other in rest) for number in numbers)


def _adjoin(numbers: Sequence[str], among: Sequence[str]) -> bool:
    size = len(numbers)
    places = (among[place : place + size] for place in range(len(among) - size + 1))
    return any(all(map(agrees, numbers, place)) for place in places)


def agrees(shown: str, measured: str) -> bool:
    """Tell whether a number is another one, rounded to the digits that it is shown with.

    >>> agrees("1,031", "1031.2"), agrees("0.37", "0.367"), agrees("0.4", "0.367"), agrees("0.37", "0.4")
    (True, True, True, False)
    """
    decimals = len(shown.partition(".")[2])
    if decimals > len(measured.partition(".")[2]):
        return False
    difference = float(shown.replace(",", "")) - float(measured.replace(",", ""))
    return abs(difference) <= 0.5 * 10**-decimals + 1e-9

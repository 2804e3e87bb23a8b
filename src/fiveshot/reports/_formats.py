"""A table as text: for the terminal, in Markdown, LaTeX and CSV, and as files."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from fiveshot.reports._table import Cell, Column, Mark, Number, Table, by_group, header_groups, marks, shown
from fiveshot.storage import atomic_path

UNLIMITED = 100_000  # columns; wider than any table
RICH_STYLES: dict[Mark | None, str] = {None: "", "best": "bold", "second": "underline"}
MARKDOWN_FRAMES: dict[Mark | None, str] = {None: "%s", "best": "**%s**", "second": "<u>%s</u>"}
MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
LATEX_FRAMES: dict[Mark | None, str] = {None: "%s", "best": r"\textbf{%s}", "second": r"\underline{%s}"}
LATEX_CHARACTERS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "±": r"$\pm$",
    "×": r"$\times$",
    "✓": r"$\checkmark$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "τ": r"$\tau$",
    "μ": r"$\mu$",
    "Σ": r"$\Sigma$",
}
MEASURE = re.compile(r"\bA_(HM|last|inc)\b")
Made = TypeVar("Made")


@dataclass(frozen=True)
class TerminalTable:
    """A table for rich: one table, or one per group of columns if the terminal is too narrow."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = _rich_table(self.table)
        wanted = Measurement.get(console, options.update(max_width=UNLIMITED), whole).maximum
        yield from map(_rich_table, by_group(self.table)) if wanted > options.max_width else (whole,)


def as_rich(table: Table) -> TerminalTable:
    """Return a table for ``rich.print`` and ``Console.print``.

    Parameters
    ----------
    table : Table
        What to show.

    Returns
    -------
    TerminalTable
        It is split into several tables if the terminal is narrow.

    Examples
    --------
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
    """Return the terminal's table without colors, for a file.

    Parameters
    ----------
    table : Table
        What to show.
    width : int
        Characters in a line. If they are too few for all columns, each group of columns has its own table.

    Returns
    -------
    str
        The text.

    Examples
    --------
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


def as_markdown(table: Table) -> str:
    """Return the table as GitHub's Markdown: best values bold, second ones underlined.

    Parameters
    ----------
    table : Table
        What to show.

    Returns
    -------
    str
        The text.

    Examples
    --------
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

    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    lines = [
        f"**{markdown_text(table.title)}**",
        "",
        line([column.title.replace("|", r"\|") for column in table.columns]),
        line(["--:" if number else ":--" for number in table.numeric]),
    ]
    for title, rows in _rendered(table, lambda words, mark: MARKDOWN_FRAMES[mark] % markdown_text(words)):
        if title:
            lines.append(line([f"*{markdown_text(title)}*", *[""] * (len(table.columns) - 1)]))
        lines += map(line, rows)
    for note in table.notes:
        lines += ["", markdown_text(note)]
    return "\n".join(lines)


def as_latex(table: Table) -> str:
    """Return a ``table`` environment; it needs the packages booktabs and, for check marks, amssymb.

    Parameters
    ----------
    table : Table
        What to show.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> from fiveshot.reports import Column, Row, Table, as_latex
    >>> print(as_latex(Table("Birds", (Column("method"),), (Row(("R&D",)),))))
    % needs booktabs and amssymb
    \\begin{table}
    \\centering
    \\caption{Birds}
    \\begin{tabular}{l}
    \\toprule
    method \\\\
    \\midrule
    R\\&D \\\\
    \\bottomrule
    \\end{tabular}
    \\end{table}
    """

    body = []
    for title, rows in _rendered(table, lambda words, mark: LATEX_FRAMES[mark] % latex_text(words)):
        body.append(r"\midrule")
        if title:
            body.append(rf"\multicolumn{{{len(table.columns)}}}{{l}}{{\textit{{{latex_text(title)}}}}} \\")
        body += map(_latex_line, rows)
    return "\n".join(
        [
            "% needs booktabs and amssymb",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_text(table.title)}}}",
            rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in table.numeric)}}}",
            r"\toprule",
            *_latex_headings(table.columns),
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {latex_text(note)}" for note in table.notes),
            r"\end{table}",
        ]
    )


def as_csv(table: Table) -> str:
    """Return comma-separated values for other programs: unrounded fractions, without title and notes.

    A column with deviations is followed by a column of the deviations. If there are blocks, the first column is
    the block.

    Parameters
    ----------
    table : Table
        What to show.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> from fiveshot.reports import Column, Number, Row, Table, as_csv
    >>> rows = (Row(("ncm", Number(2 / 3, 0.125))),)
    >>> print(as_csv(Table("Birds", (Column("method"), Column("A_last", percent=True)), rows)), end="")
    method,A_last,A_last std
    ncm,0.6666666666666666,0.125
    """
    columns = [["block", *(row.block for row in table.rows)]] if any(row.block for row in table.rows) else []
    for place, column in enumerate(table.columns):
        cells = [row.cells[place] for row in table.rows]
        columns.append([column.title, *(_csv_value(c.value if isinstance(c, Number) else c) for c in cells)])
        deviations = [cell.std if isinstance(cell, Number) else None for cell in cells]
        if any(std is not None for std in deviations):
            columns.append([f"{column.title} std", *map(_csv_value, deviations)])
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
    return text.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"txt": as_text, "md": as_markdown, "tex": as_latex, "csv": as_csv}


def write_table(table: Table, stem: Path) -> tuple[Path, ...]:
    """Write ``stem.txt``, ``stem.md``, ``stem.tex`` and ``stem.csv``.

    Parameters
    ----------
    table : Table
        What to write.
    stem : Path
        The files without their endings.

    Returns
    -------
    tuple of Path
        The files.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.reports import Column, Row, Table, write_table
    >>> table = Table("Birds", (Column("method"),), (Row(("ncm",)),))
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in write_table(table, Path(folder) / "birds")]
    ['birds.txt', 'birds.md', 'birds.tex', 'birds.csv']
    """
    return tuple(
        write_text(stem.with_name(f"{stem.name}.{ending}"), render(table).rstrip("\n") + "\n")
        for ending, render in FORMATS.items()
    )


def write_text(target: Path, text: str) -> Path:
    """Write a text file, completely or not at all, and return its path."""
    with atomic_path(target) as path:
        # Names of folders need not be valid Unicode; they are shown escaped.
        path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return target


def markdown_text(text: str) -> str:
    """Escape text for Markdown.

    >>> print(markdown_text("RanPAC* <b>"))
    RanPAC\\* \\<b\\>
    """
    return MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(text.split()))


def latex_text(text: str) -> str:
    r"""Escape text for LaTeX, and write the measures' names as in the paper.

    >>> print(latex_text("A_HM of 5% ± 1"))
    $A_{\mathrm{HM}}$ of 5\% $\pm$ 1
    """
    parts = MEASURE.split(text)  # plain, name, plain, name, ...
    plain = ("".join(LATEX_CHARACTERS.get(character, character) for character in part) for part in parts[::2])
    names = [rf"$A_{{\mathrm{{{name}}}}}$" for name in parts[1::2]] + [""]
    return "".join(a + b for a, b in zip(plain, names, strict=True))


def _rendered(
    table: Table, made: Callable[[str, Mark | None], Made], *, plus_minus: str = " ± "
) -> Iterator[tuple[str, list[list[Made]]]]:
    """Yield each block's title with its rows, each cell made of its words and its mark."""
    marked = marks(table)

    def cell(value: Cell, number: int, place: int) -> Made:
        mark = marked.get((number, place))
        if isinstance(value, Number):
            return made(shown(value, table.columns[place], plus_minus=plus_minus), mark)
        return made(value or "", mark)

    for title, rows in table.blocks():
        yield title, [[cell(value, n, place) for place, value in enumerate(row.cells)] for n, row in rows]


def _rich_table(table: Table) -> RichTable:
    """Return a rich table, with the words of headings one below the other."""
    drawn = RichTable(
        title=Text(table.title, style="bold"),
        title_justify="left",
        caption=Text("\n".join(table.notes)) if table.notes else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column, numbers in zip(table.columns, table.numeric, strict=True):
        drawn.add_column(
            Text("\n".join(column.title.split())),
            justify="right" if numbers else "left",
            vertical="bottom",
            no_wrap=numbers,  # so that names are shortened first if there is little room
        )

    def cell(words: str, mark: Mark | None) -> Text:  # square brackets mean nothing in it
        return Text(words, style=RICH_STYLES[mark])

    for place, (title, rows) in enumerate(_rendered(table, cell, plus_minus="±")):
        if place:
            drawn.add_section()
        if title:
            drawn.add_row(Text(title, style="italic"))
        for row in rows:
            drawn.add_row(*row)
    return drawn


def _latex_headings(columns: tuple[Column, ...]) -> list[str]:
    """Return the names of the columns, below those of their groups if there are groups."""
    names = _latex_line([latex_text(column.name) for column in columns])
    if not any(column.group for column in columns):
        return [names]
    words, rules, position = [], [], 1
    for group, span in header_groups(columns):
        words.append(rf"\multicolumn{{{span}}}{{c}}{{{latex_text(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
        position += span
    return [_latex_line(words), " ".join(rules), names]


def _latex_line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _csv_value(value: float | str | None) -> str:
    return value or "" if isinstance(value, str | None) else repr(float(value))

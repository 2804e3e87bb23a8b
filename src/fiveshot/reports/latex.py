"""A table in LaTeX, with the rules of the booktabs package."""

from __future__ import annotations

import re

from fiveshot.reports.table import Cell, Column, Mark, Number, Table, header_groups, marks, shown

FRAMES: dict[Mark, str] = {"best": r"\textbf{%s}", "second": r"\underline{%s}"}
CHARACTERS = {
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


def as_latex(table: Table) -> str:
    """Return a ``table`` environment; it needs the packages booktabs and, for check marks, amssymb.

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
    numeric = [any(isinstance(row.cells[p], Number) for row in table.rows) for p in range(len(table.columns))]
    return "\n".join(
        [
            "% needs booktabs and amssymb",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(table.title)}}}",
            rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numeric)}}}",
            r"\toprule",
            *_headings(table.columns),
            *_body(table),
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {escaped(note)}" for note in table.notes),
            r"\end{table}",
        ]
    )


def escaped(text: str) -> str:
    r"""Return text that LaTeX sets as it is, and the measures' names as the paper does.

    >>> print(escaped("A_HM of 5% ± 1"))
    $A_{\mathrm{HM}}$ of 5\% $\pm$ 1
    """
    parts = MEASURE.split(text)  # plain, name, plain, name, ...
    plain = ("".join(CHARACTERS.get(character, character) for character in part) for part in parts[::2])
    names = [rf"$A_{{\mathrm{{{name}}}}}$" for name in parts[1::2]] + [""]
    return "".join(a + b for a, b in zip(plain, names, strict=True))


def _headings(columns: tuple[Column, ...]) -> list[str]:
    names = _line([escaped(column.name) for column in columns])
    if not any(column.group for column in columns):
        return [names]
    words, rules, position = [], [], 1
    for group, span in header_groups(columns):
        words.append(rf"\multicolumn{{{span}}}{{c}}{{{escaped(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
        position += span
    return [_line(words), " ".join(rules), names]


def _body(table: Table) -> list[str]:
    lines = []
    marked = marks(table)
    for title, rows in table.blocks():
        lines.append(r"\midrule")
        if title:
            lines.append(rf"\multicolumn{{{len(table.columns)}}}{{l}}{{\textit{{{escaped(title)}}}}} \\")
        for number, row in rows:
            cells = zip(row.cells, table.columns, strict=True)
            lines.append(_line([_cell(*pair, marked.get((number, p))) for p, pair in enumerate(cells)]))
    return lines


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: Cell, column: Column, mark: Mark | None) -> str:
    if isinstance(cell, Number):
        words = escaped(shown(cell, column))
        return FRAMES[mark] % words if mark else words
    return escaped(cell or "")

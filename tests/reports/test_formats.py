from __future__ import annotations

import csv as standard_csv
import re
from io import StringIO

import pytest
from rich.console import Console

from fiveshot.reports import Column, Number, Row, Table, as_csv, as_latex, as_markdown, as_rich, as_text
from fiveshot.reports.page import templates

NASTY = r"[red]a|b*_<i>&%$#{}~^\\[/]"
COLUMNS = (
    Column("method"),
    Column("A_HM 1", "small", percent=True, marked=2, spread=False),
    Column("A_last", "small", percent=True, marked=2),
    Column("A_last", "big", percent=True, decimals=2),
)
TABLE = Table(
    "Birds & beaks",
    COLUMNS,
    (
        Row(("NCM", Number(0.5, 0.01), Number(1 / 3, 0.02), Number(0.1))),
        Row((NASTY, Number(0.25), Number(2 / 3, 0.03), None)),
        Row(("C-FeCAM", Number(0.9), Number(0.8), Number(0.7)), "paper, ViT-B/16"),
    ),
    ("A_HM is in %.",),
)


def rendered(table: Table, width: int, *, color: bool = False) -> str:
    console = Console(
        file=StringIO(), width=width, force_terminal=color, color_system="standard" if color else None
    )
    with console.capture() as capture:
        console.print(as_rich(table))
    return capture.get()


def test_terminal_shows_everything_literally() -> None:
    text = rendered(TABLE, 120)
    for expected in (
        NASTY,
        "50.0",
        "33.3±2.0",
        "66.7±3.0",
        "10.00",
        "paper, ViT-B/16",
        "A_HM is in %.",
        TABLE.title,
    ):
        assert expected in text
    assert "50.0±" not in text  # a column whose deviations are not asked for


def test_terminal_marks_best_and_second() -> None:
    text = rendered(TABLE, 120, color=True)
    assert re.search(r"\x1b\[1m66\.7±3\.0", text)
    assert re.search(r"\x1b\[4m33\.3±2\.0", text)
    assert "\x1b" not in as_text(TABLE)


@pytest.mark.parametrize("width", [40, 50])
def test_a_narrow_terminal_gets_a_table_per_group_and_no_number_is_cut(width: int) -> None:
    text = rendered(TABLE, width)
    assert "Birds & beaks: small" in text
    assert "Birds & beaks: big" in text
    assert max(map(len, text.splitlines())) <= width
    for number in ("50.0", "33.3±2.0", "66.7±3.0", "10.00", "70.00"):
        assert number in text


def test_markdown_has_one_cell_per_column_in_every_line() -> None:
    lines = [line for line in as_markdown(TABLE).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 3 + 1  # headings, rows, the title of a block
    for line in lines:
        assert len(re.split(r"(?<!\\)\|", line)) == len(COLUMNS) + 2
    assert "**66.7 ± 3.0**" in lines[3]
    assert "<u>33.3 ± 2.0</u>" in lines[2]
    assert r"\[red\]a\|b\*\_\<i\>" in lines[3]


def test_markdown_of_text_without_numbers_is_aligned_left() -> None:
    assert "| :-- | --: | --: | --: |" in as_markdown(TABLE)


def test_latex_escapes_and_balances() -> None:
    text = as_latex(TABLE)
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    cells = [len(re.split(r"(?<!\\)&", line)) for line in rows]
    assert cells == [3, 4, 4, 4, 1, 4]  # groups, names, two rows, the title of a block, a row
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in body
    assert r"\textbf{66.7 $\pm$ 3.0}" in body
    assert r"\underline{33.3 $\pm$ 2.0}" in body
    assert r"$A_{\mathrm{HM}}$ 1" in body
    assert r"\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in body
    assert r"\caption{Birds \& beaks}" in text
    unescaped = re.sub(r"\\.", "", text)
    assert unescaped.count("{") == unescaped.count("}")
    assert unescaped.count("$") % 2 == 0


def test_latex_without_groups_has_one_line_of_headings() -> None:
    table = Table("t", (Column("β"), Column("Σ")), (Row(("0.5", "✓")),))
    assert "\\toprule\n$\\beta$ & $\\Sigma$ \\\\\n\\midrule\n0.5 & $\\checkmark$ \\\\\n\\bottomrule" in as_latex(
        table
    )


def test_csv_gives_back_every_bit() -> None:
    rows = list(standard_csv.DictReader(StringIO(as_csv(TABLE))))
    assert list(rows[0]) == [
        "block",
        "method",
        "small A_HM 1",
        "small A_HM 1 std",
        "small A_last",
        "small A_last std",
        "big A_last",
    ]
    assert float(rows[0]["small A_last"]) == 1 / 3
    assert float(rows[1]["small A_last"]) == 2 / 3
    assert float(rows[0]["small A_HM 1 std"]) == 0.01
    assert (rows[1]["method"], rows[1]["big A_last"], rows[1]["small A_HM 1 std"]) == (NASTY, "", "")
    assert [row["block"] for row in rows] == ["", "", "paper, ViT-B/16"]


def test_html_escapes_and_marks() -> None:
    text = templates().get_template("parts.html").module.table(TABLE)
    assert "<i>" not in text
    assert "[red]a|b*_&lt;i&gt;&amp;%" in text
    assert "<strong>66.7 ± 3.0</strong>" in text
    assert "<u>33.3 ± 2.0</u>" in text
    assert text.count("<tbody>") == 2
    assert '<th colspan="2" scope="colgroup">small</th>' in text

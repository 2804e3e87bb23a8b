"""Tables of measured numbers say what the committed outputs of benchmarks say, or are listed with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from pages import Page, all_pages, parse
from tables import NUMBER, RESULTS, Table, agrees, missing_cells, missing_rows, tables

PAGES = all_pages()
MEASURED = [(page, table) for page in PAGES for table in tables(page) if table.is_measured]


@dataclass(frozen=True)
class Exempt:
    """Tables of a section that are not compared, or not row by row, and why."""

    page: str
    section: str
    reason: str

    def covers(self, page: Page, table: Table) -> bool:
        """Tell whether a table is meant."""
        return (page.name, table.section) == (self.page, self.section)


GATHERED = (
    Exempt("docs/how-to/backbone.md", "How the recipe was chosen", "a row is of two lines"),
    Exempt("docs/explanation/heads.md", "Beside the default head", "a row is of four tables"),
    Exempt("docs/how-to/reproduce.md", "Tables 1 and 3", "a row is of two tables, ours beside the paper's"),
    Exempt("docs/how-to/reproduce.md", "Tables 5 and 6", "rows of two tables that begin alike"),
    Exempt("docs/how-to/reproduce.md", "With ViT-Ti/16", "a row is of two tables"),
    Exempt("README.md", "Use it for research", "a row is ours beside the paper's"),
    Exempt("docs/how-to/reproduce.md", "Text or code, and which five photographs", "a row is of three outputs"),
)
WITHOUT_OUTPUT = (
    Exempt("docs/how-to/reproduce.md", "Datasets", "sizes that the datasets' authors state"),
    Exempt("src/fiveshot/backbones/weights/MODEL_CARD.md", "Figures", "measured once on a GPU, output not kept"),
)


def name(value: Page | Table | Exempt) -> str:
    if isinstance(value, Table):
        return str(value.line)
    return value.name if isinstance(value, Page) else f"{value.page}: {value.section}"


@pytest.mark.parametrize(("page", "table"), MEASURED, ids=name)
def test_a_table_says_what_its_output_says(page: Page, table: Table) -> None:
    if any(entry.covers(page, table) for entry in WITHOUT_OUTPUT):
        assert table.outputs == ()
        return
    assert table.outputs, f"{page.name}:{table.line}: its section links to no output in benchmarks/results"
    output = "\n".join(path.read_text(encoding="utf-8") for path in table.outputs)
    gathered = any(entry.covers(page, table) for entry in GATHERED)
    assert (missing_cells if gathered else missing_rows)(table, output) == []


def test_no_exemption_outlives_its_table() -> None:
    used = [
        entry for entry in (*GATHERED, *WITHOUT_OUTPUT) for page, table in MEASURED if entry.covers(page, table)
    ]
    assert {*GATHERED, *WITHOUT_OUTPUT} == set(used)


def test_the_readme_says_time_memory_and_disk() -> None:
    said = (RESULTS.parents[1] / "README.md").read_text(encoding="utf-8")
    paragraph = said.partition("**Time, memory and disk**")[2].partition("\n\n")[0]
    numbers = re.findall(r"([\d.]+) (?:s|MB)\b", paragraph)
    measured = NUMBER.findall((RESULTS / "weight.md").read_text(encoding="utf-8"))
    assert len(numbers) == 4
    assert [number for number in numbers if not any(agrees(number, other) for other in measured)] == []


def test_every_output_is_shown_on_a_page() -> None:
    texts = [page.path.read_text(encoding="utf-8") for page in PAGES]
    outputs = [f"benchmarks/results/{output.name}" for output in sorted(RESULTS.iterdir())]
    assert [output for output in outputs if not any(output in text for text in texts)] == []


PAGE = """# Birds

| | wings |
|---|---|
| wren | 2 |

## Weights

[output](../benchmarks/results/heads.md), in g:

| bird | heaviest | mean |
|---|---|---|
| **Wren**, small | **1,250** | 9.4 ± 0.3 |
| Owl | 500 | 8.8 ± 0.1 |
"""
OUTPUT = """| bird | heaviest | lightest | mean |
|---|---|---|---|
| owl | 499.7 | 3.1 | 8.8 ± 0.1 |
| wren | 1250.2 | 3.0 | 9.4 ± 0.3 |
"""


@pytest.fixture
def weights() -> Table:
    counted, measured = tables(parse(RESULTS.parents[1] / "docs" / "birds.md", PAGE))
    assert (counted.is_measured, counted.outputs) == (False, ())
    assert measured.is_measured
    assert (measured.section, measured.outputs) == ("Weights", (RESULTS / "heads.md",))
    return measured


def test_columns_may_be_left_out_and_numbers_rounded(weights: Table) -> None:
    assert missing_rows(weights, OUTPUT) == []
    assert missing_cells(weights, OUTPUT) == []


@pytest.mark.parametrize(
    ("there", "instead", "missing"),
    [
        ("9.4 ± 0.3", "9.4 ± 0.2", "Wren, small | 1,250 | 9.4 ± 0.3"),
        ("499.7", "499.4", "Owl | 500 | 8.8 ± 0.1"),
        ("499.7", "1250.2", "Owl | 500 | 8.8 ± 0.1"),
    ],
)
def test_another_number_is_noticed(weights: Table, there: str, instead: str, missing: str) -> None:
    assert missing_rows(weights, OUTPUT.replace(there, instead)) == [missing]
    assert missing_cells(weights, OUTPUT.replace(there, instead))[0] in missing


def test_cells_of_another_row_do_not_count(weights: Table) -> None:
    exchanged = OUTPUT.replace("owl", "kite").replace("wren", "owl").replace("kite", "wren")
    assert missing_cells(weights, exchanged) == ["1,250", "9.4 ± 0.3", "500", "8.8 ± 0.1"]

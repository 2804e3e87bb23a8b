"""The notebook that readers run anywhere: executed as Jupyter does, cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parents[2] / "docs" / "start" / "notebook.ipynb"


@pytest.mark.pages
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own packages
def test_the_notebook_answers_and_makes_the_papers_table(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert [cell.id for cell in notebook.cells if cell.get("outputs")] == []  # made when it is run
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    shown = {cell.id: output(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert shown["install"] == ""  # the package is here already
    assert shown["ask"].splitlines()[0].startswith("fish ")
    assert shown["ask"].splitlines()[1].startswith("unknown, most like ")
    table = shown["table"]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert rows.count("NCM") == rows.count("C-RanPAC") == 2  # ours, and the paper's
    assert "78.23" in table  # a figure of the paper
    assert "Made by fiveshot" in table


def output(cell: object) -> str:
    """Return the text that a cell printed or showed."""
    parts = []
    for one in cell.outputs:
        parts.append(one.text if one.output_type == "stream" else one.data.get("text/markdown", ""))
    return "".join(parts)

"""How to cite: the file that GitHub and reference managers read, and the README, say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fiveshot

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
CITED = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
BIBTEX = (ROOT / "README.md").read_text(encoding="utf-8").partition("```bibtex")[2].partition("```")[0]


def test_both_have_the_version_of_the_package() -> None:
    assert str(CITED["version"]) == fiveshot.__version__
    assert re.findall(r"version = \{(.+?)\}", BIBTEX) == [fiveshot.__version__]


def test_the_file_has_what_its_format_requires() -> None:
    assert {"cff-version", "message", "title", "authors"} <= set(CITED)
    (paper,) = CITED["references"]
    assert {"type", "title", "authors", "year"} <= set(paper)


def test_the_readme_cites_the_same_paper() -> None:
    (paper,) = CITED["references"]
    assert re.findall(r" title = \{(.+?)\},", BIBTEX) == [CITED["title"], paper["title"]]
    for author in paper["authors"]:
        assert author["family-names"] in BIBTEX
    assert f"year = {{{paper['year']}}}" in BIBTEX

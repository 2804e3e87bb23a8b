"""What the site's own hooks do to pages; that the whole site builds is what ``make docs`` tells."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import doctest_blocks
import equations
import mounted_pages
import nothing_from_elsewhere
import pytest
import reference_pages

ROOT = Path(__file__).parents[2]


def page(uri: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=uri))


@pytest.mark.parametrize(
    ("where", "written", "pointed"),
    [
        (
            "index.md",
            "[card](../src/fiveshot/backbones/weights/MODEL_CARD.md)",
            "[card](reference/cards/model.md)",
        ),
        ("how-to/reproduce.md", "[r](../../benchmarks/results/heads.md#a)", "[r](../results/heads.md#a)"),
        ("how-to/reproduce.md", "[h](../explanation/heads.md#ncm)", "[h](../explanation/heads.md#ncm)"),
        ("reference/contributing.md", "[t](docs/how-to/extend.md)", "[t](../how-to/extend.md)"),
        ("index.md", "[code](../src/fiveshot/errors.py)", "code"),
        ("index.md", "![picture](images/idea.svg)", "![picture](images/idea.svg)"),
    ],
)
def test_links_out_of_the_documentation_are_pointed_at_pages(where: str, written: str, pointed: str) -> None:
    assert mounted_pages.on_page_markdown(written, page(where), None, None) == pointed


def test_every_card_and_result_is_a_page() -> None:
    pages = mounted_pages.PAGES
    cards = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*_CARD.md")}
    results = {f"benchmarks/results/{path.name}" for path in (ROOT / "benchmarks" / "results").iterdir()}
    assert cards | results <= set(pages)
    assert len(set(pages.values())) == len(pages)


def test_equations_become_mathml() -> None:
    text = equations.mathml("\\hat\\mu = \\alpha \\mu\n\n\\Sigma^{-1}")
    roots = [ET.fromstring(part) for part in re.findall(r"<math.*?</math>", text, re.DOTALL)]
    assert len(roots) == 2
    assert "μ" in "".join(roots[0].itertext())


def test_examples_are_fenced_and_fences_left_alone() -> None:
    fenced = doctest_blocks.fenced_examples
    assert fenced(["", ">>> 1", "1"]) == ["", "```pycon", ">>> 1", "1", "```"]
    inside = ["```python", ">>> 1", "```"]
    assert fenced(inside) == inside


def test_the_reference_names_what_a_package_exports() -> None:
    made = reference_pages.module_page("heads", ROOT / "src" / "fiveshot" / "heads" / "__init__.py")
    assert "::: fiveshot.heads" in made
    assert "- make_head\n" in made
    errors = reference_pages.module_page("errors", ROOT / "src" / "fiveshot" / "errors.py")
    assert "- FiveshotError\n" in errors
    assert "_rebuilt" not in errors
    face = reference_pages.module_page("", ROOT / "src" / "fiveshot" / "__init__.py")
    assert "::: fiveshot\n" in face
    assert "- Recognizer\n" in face
    assert "__version__" not in face


@pytest.mark.parametrize(
    "loaded", ['<script src="https://a.example/x.js"></script>', '<img alt="" src="http://a.example/x.png">']
)
def test_a_page_that_loads_something_from_elsewhere_fails(loaded: str) -> None:
    from mkdocs.exceptions import PluginError

    checked = nothing_from_elsewhere.on_post_page
    assert checked('<a href="https://a.example">there</a>', page=page("index.md"))
    with pytest.raises(PluginError, match="elsewhere"):
        checked(loaded, page=page("index.md"))
    assert "import" not in checked(
        '<script type="module">import("https://a.example/x")</script>', page=page("index.md")
    )

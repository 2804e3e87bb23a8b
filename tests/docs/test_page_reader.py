"""Who follows a page notices what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pages import parse
from reader import Reader

Follow = Callable[[str], None]
pytestmark = pytest.mark.pages  # what it starts takes longer than these tests, and following pages needs it, too


@pytest.fixture
def follow(tmp_path: Path, reader: Callable[[Path], Reader]) -> Follow:
    """Follow a text as a page."""
    return lambda text: reader(tmp_path).follow(parse(tmp_path / "page.md", text))


def test_state_carries_on_from_block_to_block(follow: Follow, tmp_path: Path) -> None:
    follow(
        "```python\n# greeting.py\nTEXT = 'good day'\n```\n"
        "```python\nimport greeting\nopen('said', 'w').write(greeting.TEXT)\n```\n"
        "```sh\nexport WHO=$(cat said)\n```\n"
        "```console\n$ echo $WHO, birds | tr a-z A-Z\nGOOD DAY, BIRDS\n```\n"
        "```sh\nOTHER=yes python greeting.py\npython greeting.py > nothing\n```\n"
    )
    assert (tmp_path / "nothing").read_text() == ""


def test_an_error_that_a_page_shows_is_expected(follow: Follow) -> None:
    follow("```console\n$ fiveshot show nowhere\nerror: ...\n```\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```console\n$ echo wren\nowl\n```\n", r"page.md:2: echo wren answered\nwren"),
        ("```sh\nfiveshot show nowhere\n```\n", r"page.md:2: fiveshot show nowhere ended with 1\nerror: "),
        ("```console\n$ fiveshot --version\nerror: no such option\n```\n", r"ended with 0"),
        ("```sh\ncat nothing | sort\n```\n", r"ended with 1"),
        ("```python\n1 / 0\n```\n", r"page.md:1 ended with 1\n(.*\n)*ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_is_noticed(follow: Follow, text: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        follow(text)

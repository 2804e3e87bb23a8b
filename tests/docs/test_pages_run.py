"""Every page is followed from top to bottom, as a reader would, and must answer what it says, numbers aside."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from material import furnish
from pages import Command, Page, all_pages
from reader import Reader
from scaling import NOT_RUN, SMALLER, exemption, is_benchmark, left_out, smaller


def typed(page: Page) -> str:
    """Return all that is run for a page."""
    commands = [smaller(one.text) for one in page.commands if left_out(one.text, page.name) is None]
    return "\n".join([*commands, *(block.text for block in page.blocks if block.language == "python")])


PAGES = [page for page in all_pages() if typed(page)]
FENCED = [command.text for page in all_pages() for command in page.commands]
PROGRAMS = [block.text for page in all_pages() for block in page.blocks if block.language == "python"]
MENTIONED = [code for page in all_pages() for code in page.mentioned if is_benchmark(code)]


@pytest.mark.pages
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_does_what_it_says(
    page: Page, tmp_path: Path, photos: Path, reader: Callable[[Path], Reader]
) -> None:
    furnish(tmp_path, photos, typed(page))
    following = reader(tmp_path)
    for _ in range(2 if page.name == "README.md" else 1):  # what people paste first, they paste again
        following.follow(page)
    if "sub_label" in typed(page):  # a program that fails is only a note of the watch that calls it
        assert following.stand_ins.posted == ["/api/events/1718987129.308396-fqk5ka/sub_label"]


@pytest.mark.pages
@pytest.mark.parametrize("text", sorted({*map(smaller, MENTIONED)} - {*map(smaller, FENCED)}))
def test_a_benchmark_that_is_only_mentioned_runs(
    text: str, tmp_path: Path, reader: Callable[[Path], Reader]
) -> None:
    if exemption(text) is None:
        furnish(tmp_path, None, text)
        reader(tmp_path).type(Command(text, 0), text)


def test_no_exception_outlives_its_command() -> None:
    commands = FENCED + MENTIONED + PROGRAMS
    small = [smaller(text) for text in commands]
    unused = [rule.pattern for rule in SMALLER if not any(re.search(rule.pattern, text) for text in commands)]
    unused += [rule.pattern for rule in NOT_RUN if not any(re.search(rule.pattern, text) for text in small)]
    assert unused == []

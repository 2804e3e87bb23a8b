"""The tools that follow pages: blocks and commands are found, answers compared, wrong commands noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from answers import expects_failure, fits
from existing import complaints
from pages import commands_of, parse, repository_anchors, site_anchors
from scaling import exemption, smaller

PAGE = """# A page's `title`

Text with `fiveshot show
birds` and a [link](other.md#part).

```console
$ fiveshot new birds \\
    --json   # a model
{}
...
$ fiveshot show birds
```

    python forgotten.py

## Part
## Part
## RanPAC*, ÄB

- in a list

  ```sh
  # nothing to do
  echo 'a # b'  # said
  ```
"""


def test_a_page_is_parted_into_commands_and_prose() -> None:
    page = parse(Path("page.md"), PAGE)
    answered, plain = page.blocks
    assert [(one.text, one.line, one.shown) for one in commands_of(answered)] == [
        ("fiveshot new birds --json", 7, ("{}", "...")),
        ("fiveshot show birds", 11, ()),
    ]
    assert [(one.text, one.line, one.shown) for one in commands_of(plain)] == [("echo 'a # b'", 24, None)]
    assert page.indented_commands == ["page.md:14: python forgotten.py"]
    assert page.mentioned == ["title", "fiveshot show birds"]
    assert page.links == [("other.md", "part")]
    assert site_anchors(page) == {"a-pages-title", "part", "part_1", "ranpac-ab"}
    assert repository_anchors(page) == {"a-pages-title", "part", "part-1", "ranpac-äb"}


def test_a_block_that_is_not_closed_is_noticed() -> None:
    with pytest.raises(ValueError, match=r"page.md:2: this block is not closed"):
        parse(Path("page.md"), "text\n```sh\nls\n")


@pytest.mark.parametrize(
    ("answer", "shown", "same"),
    [
        ("a 1\nb\n", ["a 2.5", "b"], True),
        ("a 1\nb\n", ["a 2", "c"], False),
        ("a\nb\nc\nd\n", ["a", "...", "d"], True),
        ("a\nb\n", ["a"], False),
        ("a", ["a"], True),
        ("a 1 b\n", ["a 2 ..."], True),
        ("b\n", ["a ..."], False),
        ("", ["..."], True),
    ],
)
def test_answers_are_compared(answer: str, shown: list[str], same: bool) -> None:
    assert fits(answer, shown) is same


def test_an_error_that_is_shown_is_expected() -> None:
    assert expects_failure(["error: no such file"])
    assert expects_failure(['{"error":{"code":"no_token"}}'])
    assert not expects_failure(["found no error: all is well"])
    assert not expects_failure(None)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("fiveshot learn birds wren photos --add", []),
        ("fiveshot data samples --seed=1 folder", []),
        ("fiveshot --version", []),
        ("fiveshot export -- -birds file", []),
        ("fiveshot lern birds", ["no command lern"]),
        ("fiveshot --lern birds", ["no option --lern"]),
        ("fiveshot learn birds --ad", ["no option --ad"]),
        ("fiveshot data sample folder", ["no command sample"]),
        ("python benchmarks/heads.py --heads ncm", []),
        ("python benchmarks/heads.py --head ncm", ["benchmarks/heads.py has no option --head"]),
        ("python benchmarks/nothing.py", ["no such script: benchmarks/nothing.py"]),
        ("python -m pytest tests/nothing", ["no such tests: tests/nothing"]),
        ("make test", []),
        ("make tests", ["no target tests"]),
        ("pip install fiveshot[torch,serves]", ["no extra serves"]),
        ("no-such-program", ["there is no program no-such-program"]),
    ],
)
def test_what_does_not_exist_is_noticed(command: str, said: list[str]) -> None:
    assert complaints(command.split()) == said


def test_commands_are_made_smaller_or_left_out() -> None:
    assert smaller("fiveshot bench cub200/big --methods ncm --seeds 20").endswith("--methods ncm --seeds 1")
    assert smaller("fiveshot show birds") == "fiveshot show birds"
    assert exemption("make test").reason == "is what runs this test"
    assert exemption("fiveshot show birds") is None

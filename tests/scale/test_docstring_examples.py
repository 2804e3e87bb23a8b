"""Examples that need a cluster: plain doctests skip them, so they run here, on the cluster all tests share."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

from fiveshot import scale

MARK = "# doctest: +SKIP"


def marked(test: doctest.DocTest) -> int:
    return sum(MARK in line.source for line in test.examples)


def examples_on_a_cluster() -> list[doctest.DocTest]:
    """Return the public names' examples with lines that are skipped elsewhere, and nothing skipped."""
    finder = doctest.DocTestFinder(parser=doctest.DocTestParser())
    # No globals: an example has to import all that it uses, so that it can be copied.
    tests = [test for name in scale.__all__ for test in finder.find(getattr(scale, name), name, False, {})]
    for test in tests:
        for line in test.examples:
            line.options.pop(doctest.SKIP, None)
    return [test for test in tests if marked(test)]


EXAMPLES = examples_on_a_cluster()
# A function and the class of what it returns may show the same example; once is enough.
DISTINCT = list({tuple((line.source, line.want) for line in test.examples): test for test in EXAMPLES}.values())


class WithoutTheClustersOwn(doctest.OutputChecker):
    """The cluster's own threads may print a warning at any time, and doctest takes it for the example's."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        own = [line for line in got.splitlines(keepends=True) if "(raylet)" not in line]
        return super().check_output(want, "".join(own) if "".join(own).strip() else "", optionflags)


def test_only_what_the_cluster_says_is_overlooked() -> None:
    checker = WithoutTheClustersOwn()
    assert checker.check_output("3\n", "\x1b[33m(raylet)\x1b[0m WARNING: many workers\n3\n", 0)
    assert checker.check_output("", "\x1b[33m(raylet)\x1b[0m WARNING: many workers\n\n", 0)
    assert not checker.check_output("", "WARNING: many workers\n", 0)


@pytest.mark.parametrize("example", DISTINCT, ids=lambda example: example.name)
def test_the_example_runs(example: doctest.DocTest, cluster: Any) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(WithoutTheClustersOwn(), verbose=False, optionflags=doctest.ELLIPSIS)
    assert runner.run(example, out=said.append).failed == 0, "".join(said)


def test_no_skipped_line_is_left_out() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(scale.__file__).parent.rglob("*.py")]
    assert sum(source.count(MARK) for source in sources) == sum(map(marked, EXAMPLES)) > 0


def test_every_public_name_has_an_example() -> None:
    assert [name for name in scale.__all__ if ">>>" not in (getattr(scale, name).__doc__ or "")] == []

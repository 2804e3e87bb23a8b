"""Measured figures and their limits: one table and one exit status for all benchmarks.

A benchmark makes rows; with ``--check`` it fails if a figure misses its limit:

    add_check(parser)
    ...
    sys.exit(report([Ratio("C-FeCAM against the published code", now=21.5, must=20)], check=arguments.check))
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """A figure with a limit: at least ``must``, or at most if less is better."""

    work: str
    now: float
    must: float
    unit: str = "x"
    at_most: bool = False

    @property
    def holds(self) -> bool:
        return self.now <= self.must if self.at_most else self.now >= self.must

    def row(self) -> str:
        bound = "at most" if self.at_most else "at least"
        verdict = "holds" if self.holds else "**missed**"
        return f"| {self.work} | {self.now:.4g} {self.unit} | {bound} {self.must:.4g} {self.unit} | {verdict} |"


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--check``."""
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure misses its limit")


def report(rows: Sequence[Ratio], *, check: bool) -> int:
    """Print the rows as a Markdown table; return the exit status, which is 0 without ``check``."""
    print("\n| work | now | must | |\n|---|---|---|---|")
    for row in rows:
        print(row.row(), flush=True)
    return int(check and not all(row.holds for row in rows))

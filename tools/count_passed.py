"""Fail unless enough tests of a run have passed: a job that skips everything must not look like success.

python tools/count_passed.py REPORT.xml --at-least 1000
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from xml.etree import ElementTree as ET


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("report", type=Path, help="JUnit XML of pytest")
    parser.add_argument("--at-least", type=int, required=True, help="number of tests that must have passed")
    given = parser.parse_args()
    passed = sum(len(case) == 0 for case in ET.parse(given.report).iter("testcase"))
    if passed < given.at_least:
        sys.exit(f"only {passed} tests passed in {given.report}; at least {given.at_least} should")
    print(f"{passed} tests passed")


if __name__ == "__main__":
    main()

"""Run the whole test suite several times and list every test that did not behave the same each time.

python tools/repeat.py --runs 10 --busy 5 [-- arguments of pytest]

The last ``--busy`` of the runs have two busy loops beside them, the others run alone. Reports (JUnit XML) and what
pytest printed are kept in ``--out``. It ends with status 1 if a test failed or behaved differently.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
BUSY_LOOPS = 2
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as in the Makefile
SUITE = ("-n", "2", "--dist", "worksteal", "-m", "not pages")
ENDED, FAILED = (0, 1), ("failed", "error")  # statuses of pytest: all passed, some failed
MISSING = "not run"
Outcomes = dict[str, str]  # what happened, by test


def read_outcomes(report: Path) -> Outcomes:
    """Return what happened to each test of a run; a test that is reported twice has its worst outcome."""
    outcomes: Outcomes = {}
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        found = {child.tag for child in case}
        if "error" in found:
            outcome = "error"
        elif "failure" in found:
            outcome = "failed"
        else:
            outcome = "skipped" if "skipped" in found else "passed"
        if outcomes.get(name) not in FAILED:
            outcomes[name] = outcome
    return outcomes


def unlike(runs: Sequence[Outcomes]) -> dict[str, Counter[str]]:
    """Return the tests that did not behave the same in all runs, and how often each outcome occurred."""
    names = sorted({name for run in runs for name in run})
    counts = {name: Counter(run.get(name, MISSING) for run in runs) for name in names}
    return {name: counted for name, counted in counts.items() if len(counted) > 1}


def always_failed(runs: Sequence[Outcomes]) -> list[str]:
    """Return the tests that failed in every run."""
    return sorted(name for name in runs[0] if all(run.get(name) in FAILED for run in runs))


def summary(runs: Sequence[Outcomes]) -> str:
    """Return the lines that tell what was found."""
    lines = [f"{len(runs)} runs of {len({name for run in runs for name in run})} tests"]
    for name, counted in unlike(runs).items():
        times = [f"{count} x {outcome}" for outcome, count in sorted(counted.items())]
        lines.append(f"  {name}: {', '.join(times)}")
    lines += [f"  {name}: failed every time" for name in always_failed(runs)]
    if len(lines) == 1:
        lines.append("every test behaved the same each time, and none failed")
    return "\n".join(lines)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep so many cores busy."""
    with ExitStack() as running:
        for _ in range(count):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            running.callback(loop.wait)
            running.callback(loop.kill)
        yield


def run_once(folder: Path, out: Path, number: int, arguments: Sequence[str]) -> Outcomes:
    """Run the tests of a folder, and return what happened to each."""
    report, log = out / f"run-{number}.xml", out / f"run-{number}.log"
    command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *arguments]
    with log.open("w") as printed:
        environment = os.environ | ONE_THREAD
        ended = subprocess.run(command, cwd=folder, env=environment, stdout=printed, stderr=subprocess.STDOUT)
    if ended.returncode not in ENDED:
        sys.exit(f"run {number} did not come to its end (status {ended.returncode}); see {log}")
    return read_outcomes(report)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=10, help="number of runs, at least 2")
    parser.add_argument("--busy", type=int, default=0, help="how many of them run beside busy loops")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "repeat", help="folder of the reports")
    parser.add_argument("--folder", type=Path, default=ROOT, help="folder that pytest runs in")
    parser.add_argument("arguments", nargs="*", default=SUITE, help="arguments of pytest, after --")
    given = parser.parse_args()
    if given.runs < 2 or not 0 <= given.busy <= given.runs:
        parser.error("give at least 2 runs, and at most as many busy ones as runs")
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    runs = []
    for number in range(given.runs):
        busy = number >= given.runs - given.busy
        with busy_loops(BUSY_LOOPS if busy else 0):
            runs.append(run_once(given.folder, out, number + 1, given.arguments))
        failed = sum(outcome in FAILED for outcome in runs[-1].values())
        print(f"run {number + 1}{', busy' if busy else ''}: {len(runs[-1])} tests, {failed} failed", flush=True)
    print(summary(runs))
    sys.exit(1 if unlike(runs) or always_failed(runs) else 0)


if __name__ == "__main__":
    main()

"""The default head with many classes: 1,000 base classes, then 1,000 new ones with five samples each, 768 values.

Prints seconds and memory of the base session, of each of ten sessions of 100 classes, and of a prediction.
Each number of samples per base class (``--samples``) runs in its own process. With ``kept="sums"`` memory must not
grow with the samples. With ``kept="classes"``, the default, it may grow only with what is kept of a class: as many
rows as samples, so that the class can be forgotten exactly.

    python benchmarks/many_classes.py
    python benchmarks/many_classes.py --samples 25 50 100 --check
    python benchmarks/many_classes.py --one-thread    # processor seconds: for a busy machine
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ratios import Ratio, add_check, report

from fiveshot.heads import make_head
from fiveshot.work import one_thread

WIDTH, SESSIONS, SHOTS = 768, 10, 5
SECONDS = 5.0  # limit for a session of new classes
GROWTH = 3.5  # limit of peak memory relative to what is kept of the classes, with kept="classes"
FLAT = 1.2  # limit of peak memory with the most samples relative to the fewest, with kept="sums"


def drawn(rng: np.random.Generator, means: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    noise = rng.standard_normal((len(means) * count, means.shape[1]), dtype=np.float32)
    noise += np.repeat(means, count, axis=0)
    return noise, np.repeat(np.arange(len(means)), count)


def held(entry: str) -> float:
    """Return the memory of this process in MiB: now (VmRSS), or the peak since the last reset (VmHWM)."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(entry))
    return int(line.split()[1]) / 1024


def measure(samples: int, classes: int, kept: str, clock: Callable[[], float]) -> dict[str, float]:
    """Learn everything in this process, and return its cost."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((2 * classes, WIDTH), dtype=np.float32)
    X, y = drawn(rng, means[:classes], samples)
    Path("/proc/self/clear_refs").write_text("5")  # making the samples does not count
    before, given = held("VmRSS"), X.nbytes / 2**20
    head = make_head("unbiased-lda", kept=kept)
    start = clock()
    head.partial_fit(X, y)
    base_seconds = clock() - start
    del X
    sessions = []
    step = classes // SESSIONS
    for first in range(classes, 2 * classes, step):
        shots, own = drawn(rng, means[first : first + step], SHOTS)
        start = clock()
        head.partial_fit(shots, own + first)
        sessions.append(clock() - start)
    asked, truth = drawn(rng, means, 1)
    start = clock()
    answers = head.predict(asked)
    return {
        "base_seconds": base_seconds,
        "session_seconds": max(sessions),
        "answer_ms": (clock() - start) / len(asked) * 1e3,
        "samples_mb": given,
        "kept_mb": head.memory_.statistics.nbytes / 2**20,
        "grown_mb": held("VmHWM") - before,
        "right": float((answers == truth).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[25, 50, 100], help="of each base class")
    parser.add_argument("--classes", type=int, default=1000, help="in the base session, and as many new ones")
    parser.add_argument("--kept", nargs="+", default=["sums", "classes"], choices=["sums", "classes"])
    parser.add_argument("--one-thread", action="store_true", help="count processor seconds of one thread")
    add_check(parser)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        clock = time.process_time if arguments.one_thread else time.perf_counter
        with one_thread() if arguments.one_thread else contextlib.nullcontext():
            print(json.dumps(measure(arguments.child, arguments.classes, arguments.kept[0], clock)))
        return
    print(
        "| kept | samples a class | base session | a session of a tenth | an answer | samples | kept | grown by |"
    )
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for kept in arguments.kept:
        found = [child(samples, kept, arguments) for samples in arguments.samples]
        work = (
            f"default head, kept={kept!r}, {arguments.classes:,} base classes, then as many x {SHOTS}, d = {WIDTH}"
        )
        slowest = max(one["session_seconds"] for one in found)
        rows.append(Ratio(f"{work}: a session", slowest, SECONDS, unit="s", at_most=True))
        grown = [one["grown_mb"] for one in found]
        if kept == "sums":
            what = (
                f"{work}: peak memory with {arguments.samples[-1]} samples over that with {arguments.samples[0]}"
            )
            rows.append(Ratio(what, grown[-1] / grown[0], FLAT, at_most=True))
        else:
            share = max(one["grown_mb"] / one["kept_mb"] for one in found)
            rows.append(Ratio(f"{work}: peak memory over what is kept", share, GROWTH, at_most=True))
    sys.exit(report(rows, check=arguments.check))


def child(samples: int, kept: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Measure in a child process, and print the line."""
    command = [sys.executable, __file__, "--child", str(samples), "--kept", kept]
    command += ["--classes", str(arguments.classes)] + ["--one-thread"] * arguments.one_thread
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    print(
        f"| {kept} | {samples} | {found['base_seconds']:.1f} s | {found['session_seconds']:.2f} s | "
        f"{found['answer_ms']:.2f} ms | {found['samples_mb']:.0f} MB | {found['kept_mb']:.0f} MB | "
        f"{found['grown_mb']:.0f} MB |",
        flush=True,
    )
    return found


if __name__ == "__main__":
    main()

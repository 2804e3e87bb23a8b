"""The default head with many classes: 1,000 base classes, then 1,000 new ones with five samples each, 768 values.

Prints seconds and memory of the base session, of each of ten sessions of 100 classes, and of an answer. Each
number of samples per base class is a process of its own; ``--samples`` names them. Memory must not grow with the
samples beyond what is kept of a class: as many rows as it has samples, up to the length of a vector.

    python benchmarks/many_classes.py
    python benchmarks/many_classes.py --samples 25 50 100 --check
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
from ratios import Ratio, add_check, report

from fiveshot.heads import make_head

WIDTH, SESSIONS, SHOTS = 768, 10, 5
SECONDS = 5.0  # for a session of new classes, at most
GROWTH = 3.5  # peak memory over what is kept of the classes, at most


def drawn(rng: np.random.Generator, means: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    noise = rng.standard_normal((len(means) * count, means.shape[1]), dtype=np.float32)
    noise += np.repeat(means, count, axis=0)
    return noise, np.repeat(np.arange(len(means)), count)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(samples: int, classes: int) -> dict[str, float]:
    """Learn everything in this process, and return what it cost."""
    rng = np.random.default_rng(0)
    means = rng.standard_normal((2 * classes, WIDTH), dtype=np.float32)
    X, y = drawn(rng, means[:classes], samples)
    before, given = peak(), X.nbytes / 2**20
    head = make_head("unbiased-lda")
    start = time.perf_counter()
    head.partial_fit(X, y)
    base_seconds = time.perf_counter() - start
    del X
    sessions = []
    step = classes // SESSIONS
    for first in range(classes, 2 * classes, step):
        shots, own = drawn(rng, means[first : first + step], SHOTS)
        start = time.perf_counter()
        head.partial_fit(shots, own + first)
        sessions.append(time.perf_counter() - start)
    asked, truth = drawn(rng, means, 1)
    start = time.perf_counter()
    answers = head.predict(asked)
    return {
        "base_seconds": base_seconds,
        "session_seconds": max(sessions),
        "answer_ms": (time.perf_counter() - start) / len(asked) * 1e3,
        "samples_mb": given,
        "kept_mb": head.memory_.statistics.nbytes / 2**20,
        "grown_mb": peak() - before,
        "right": float((answers == truth).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[25, 50, 100], help="of each base class")
    parser.add_argument("--classes", type=int, default=1000, help="in the base session, and as many new ones")
    add_check(parser)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.classes)))
        return
    print("| samples a class | base session | a session of a tenth | an answer | samples | kept | grown by |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for samples in arguments.samples:
        command = [sys.executable, __file__, "--child", str(samples), "--classes", str(arguments.classes)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(output.splitlines()[-1])
        print(
            f"| {samples} | {found['base_seconds']:.1f} s | {found['session_seconds']:.2f} s | "
            f"{found['answer_ms']:.2f} ms | {found['samples_mb']:.0f} MB | {found['kept_mb']:.0f} MB | "
            f"{found['grown_mb']:.0f} MB |",
            flush=True,
        )
        work = f"default head, {arguments.classes:,} base classes x {samples}, then as many x {SHOTS}, d = {WIDTH}"
        rows.append(Ratio(f"{work}: a session", found["session_seconds"], SECONDS, unit="s", at_most=True))
        share = found["grown_mb"] / found["kept_mb"]
        rows.append(Ratio(f"{work}: peak memory over what is kept", share, GROWTH, at_most=True))
    sys.exit(report(rows, check=arguments.check))


if __name__ == "__main__":
    main()

"""Compare time and memory of every head with a plain version of the published procedure, in one run.

CUB-200 big start on synthetic 768-d features: 100 base classes × 30, ten sessions of 10 classes × 5 shots, 5,794
test vectors scored after every session. Each measurement runs in its own process, so that its peak memory can be
measured; ours imports no torch. Heads have the published flavor, like the transcription. With --flavor paper new
classes borrow from all base classes, not only from the most similar one.

    python benchmarks/heads.py                      # all heads; FeCAM's transcription on 4 classes, scaled up
    python benchmarks/heads.py --full --heads c-fecam   # nothing scaled; several minutes
    python benchmarks/heads.py --heads c-ranpac "c-ranpac, closed form" --check
    python benchmarks/heads.py --heads c-ranpac --one-thread --sessions 2   # for a busy machine
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from ratios import Ratio, add_check, report

from fiveshot.core.scorers import Flavor, ScoreTable
from fiveshot.data.synthetic import gaussian_classes
from fiveshot.heads import make_head
from fiveshot.work import one_thread

N_CLASSES, N_BASE, INCREMENT, SHOTS, N_TEST, SESSIONS = 200, 100, 10, 5, 5794, 10
CLOSED = "c-ranpac, closed form"  # compared with the same transcription, which draws samples
TRANSCRIBED = ("c-ranpac", CLOSED, "c-fecam", "ncm", "teen", "fecam", "ranpac")
FASTER, PEAK_MB = 4.0, 1200.0  # limits for C-RanPAC in closed form
PUBLISHED_CLASSES = 4  # classes per evaluation in the timing of FeCAM's transcription, unless --full


def protocol(seed: int = 0) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray, np.ndarray]:
    train_x, train_y, test_x, test_y = gaussian_classes(
        n_classes=N_CLASSES,
        n_features=768,
        train_per_class=30,
        test_per_class=29,
        seed=seed,
        spread=8.0,
        noise=0.6,
    )
    sessions = [(train_x[train_y < N_BASE], train_y[train_y < N_BASE])]
    for first in range(N_BASE, N_CLASSES, INCREMENT):
        rows = [np.flatnonzero(train_y == label)[:SHOTS] for label in range(first, first + INCREMENT)]
        sessions.append((train_x[np.concatenate(rows)], train_y[np.concatenate(rows)]))
    return sessions, test_x[:N_TEST], test_y[:N_TEST]


def ours(name: str, width: int, flavor: Flavor) -> Iterator[np.ndarray]:
    sessions, test, _ = protocol()
    settings: dict[str, Any] = {"n_projections": width} if "ranpac" in name else {}
    if name == CLOSED:
        name, settings["drawn"] = "c-ranpac", False
    head = make_head(name, flavor, **settings)
    table = None
    for X, y in sessions:
        head.partial_fit(X, y)
        table = table or ScoreTable(test)
        yield table.classify(head.scorer_)


def theirs(name: str, width: int, classes: int | None) -> Iterator[np.ndarray]:
    import published
    import torch

    arrays, test, _ = protocol()
    sessions = [(torch.from_numpy(X), torch.from_numpy(y)) for X, y in arrays]
    calibrate = name in ("teen", "c-fecam", "c-ranpac")
    tensor = torch.from_numpy(test)
    if name in ("ncm", "teen"):
        scores = published.ncm(sessions, tensor, calibrate)
    elif name in ("fecam", "c-fecam"):
        scores = published.fecam(sessions, tensor, calibrate, classes)
    else:
        scores = published.ranpac(sessions, tensor, calibrate, width, N_CLASSES)
    for session in scores:
        yield session.argmax(dim=1).numpy()


def measure(side: str, name: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Run one side of the comparison in this process and return its cost.

    Each session that is left out counts as much as the last one.
    """
    partial = side == "published" and name in ("fecam", "c-fecam") and not arguments.full
    classes = PUBLISHED_CLASSES if partial else None
    clock = time.process_time if arguments.one_thread else time.perf_counter
    seconds = elapsed = 0.0
    width, flavor = arguments.width, arguments.flavor
    run = ours(name, width, flavor) if side == "ours" else theirs(name, width, classes)
    start = clock()
    for number in range(arguments.sessions + 1):
        next(run)
        n_known = N_BASE + number * INCREMENT
        elapsed = (clock() - start) * (n_known / classes if classes else 1)
        seconds += elapsed
        start = clock()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds + (SESSIONS - arguments.sessions) * elapsed, "peak_mb": peak / 1024}


def multiply_rate(side: int) -> float:
    """Return the machine's float32 matrix-multiply rate in GFLOP/s."""
    a = np.random.default_rng(0).standard_normal((side, side), dtype=np.float32)
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * side**3 / best / 1e9


def ridge_flops(width: int, sampled: bool) -> float:
    """The operations that a ridge head cannot avoid: mapping, symmetric sums, one Cholesky factor per session."""
    n_base, n_new = N_BASE * 30, (N_CLASSES - N_BASE) * (800 if sampled else SHOTS)
    mapping = 2.0 * 768 * width * (n_base + N_TEST)  # for samples in factored form it is little
    if not sampled:
        return mapping + (1 + SESSIONS) * (n_base**2 * width * 2.0 + n_base**3 / 3)
    return mapping + (n_base + n_new) * width**2 + SESSIONS * width**3 / 3


def child(side: str, name: str, arguments: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", side, "--heads", name, "--width", str(arguments.width)]
    command += ["--flavor", arguments.flavor, "--sessions", str(arguments.sessions)]
    command += ["--full"] * arguments.full + ["--one-thread"] * arguments.one_thread
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    values: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", nargs="+", default=list(TRANSCRIBED), choices=[*TRANSCRIBED, "ranpac*"])
    parser.add_argument("--width", type=int, default=10_000, help="random features of the ridge heads")
    parser.add_argument("--full", action="store_true", help="time all of FeCAM's transcription")
    parser.add_argument("--side", type=int, default=4096, help="rows of the matrices for the multiply rate")
    parser.add_argument("--flavor", choices=["published", "paper"], default="published", help="of our heads")
    parser.add_argument("--one-thread", action="store_true", help="count processor seconds of one thread")
    parser.add_argument(
        "--sessions", type=int, default=SESSIONS, help="run this many sessions; the others count like the last"
    )
    add_check(parser)
    parser.add_argument("--child", choices=["ours", "published"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        if arguments.child == "published":
            import torch  # noqa: F401  (before its threads are limited)
        with one_thread() if arguments.one_thread else contextlib.nullcontext():
            print(json.dumps(measure(arguments.child, arguments.heads[0], arguments)))
        return
    rate = multiply_rate(arguments.side)
    print(f"matrix-multiply rate {rate:.0f} GFLOP/s, {os.cpu_count()} cores, float32\n")
    print("| head | ours | published procedure | ratio | peak memory, ours | published | share of multiply rate |")
    print("|---|---|---|---|---|---|---|")
    rows: list[Ratio] = []
    timed: dict[str, dict[str, float]] = {}
    for name in arguments.heads:
        mine, plain = child("ours", name, arguments), name.partition(",")[0]
        if name != "ranpac*" and plain not in timed:
            timed[plain] = child("published", plain, arguments)
        other = timed.get(plain)
        whole = arguments.sessions == SESSIONS and ("fecam" not in name or arguments.full)
        scaled = "" if whole else " (scaled up)"
        share = ridge_flops(arguments.width, "*" in name or "c-" in name) / mine["seconds"] / rate / 1e9
        print(
            f"| {name} | {mine['seconds']:.3f} s | "
            + (
                f"{other['seconds']:.1f} s{scaled} | {other['seconds'] / mine['seconds']:.1f}x"
                if other
                else "none | "
            )
            + f" | {mine['peak_mb']:.0f} MB | {other['peak_mb'] if other else float('nan'):.0f} MB | "
            + (f"{share:.0%} |" if "ranpac" in name and name != CLOSED else "|"),
            flush=True,
        )
        if name == CLOSED and other:
            work = f"C-RanPAC in closed form, M = {arguments.width:,}, d = 768"
            rows.append(Ratio(f"{work}, against the transcription", other["seconds"] / mine["seconds"], FASTER))
            rows.append(Ratio(f"{work}: peak memory", mine["peak_mb"], PEAK_MB, unit="MB", at_most=True))
    sys.exit(report(rows, check=arguments.check))


if __name__ == "__main__":
    main()

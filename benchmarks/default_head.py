"""The default head beside C-RanPAC with the paper's 10,000 random features: accuracy, or time and memory (--cost).

Every line is one set of features under one protocol, means over the shot seeds; differences are seed by seed.

    python benchmarks/default_head.py cub200/big=embedded:cub200 cub200/small=embedded:cub200
    python benchmarks/default_head.py cifar100/small=cifar.safetensors --seeds 5 --device cuda
    python benchmarks/default_head.py cub200/big=embedded:cub200 --cost
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fiveshot.benchmark import get_protocol, open_features, sessions
from fiveshot.heads import FewShotHead, make_head, save_head
from fiveshot.metrics import SessionPredictions, expected_calibration_error, run_metrics

NAMES = ("A_HM last", "A_HM mean", "A_last", "A_inc")


@dataclass(frozen=True)
class Outcome:
    values: np.ndarray  # (4,), in percent
    error: float  # expected calibration error after the last session
    seconds: float
    megabytes: float = 0.0


def play(head: FewShotHead, protocol_name: str, source: str, seed: int) -> Outcome:
    features = open_features(source)
    protocol = get_protocol(protocol_name).replace(shot_seed=seed)
    steps = sessions(protocol, features.train_y, features.test_y, features.class_names)
    test = torch.from_numpy(np.asarray(features.test_x, dtype=np.float32))
    predictions = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    for step in steps:
        rows = step.train_indices
        head.partial_fit(torch.from_numpy(np.asarray(features.train_x[rows], np.float32)), features.train_y[rows])
        asked = step.test_indices
        found = head.predict(test[torch.from_numpy(asked)])
        predictions.append(SessionPredictions(step.classes, features.test_y[asked], found))
    seconds = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    asked = steps[-1].test_indices
    probabilities = head.predict_proba(test[torch.from_numpy(asked)])
    measured = run_metrics(predictions)
    harmonic = [session.a_hm for session in measured.sessions[1:]]
    values = 100 * np.array([harmonic[-1], np.mean(harmonic), measured.a_last, measured.a_inc])
    return Outcome(
        values,
        expected_calibration_error(probabilities, np.searchsorted(head.classes_, features.test_y[asked])),
        seconds,
        peak,
    )


def heads(projections: int) -> dict[str, dict[str, int]]:
    """Return the names of the two heads with their own parameters."""
    return {"unbiased-lda": {}, "c-ranpac": {"n_projections": projections}}


def compare(protocol: str, source: str, seeds: int, device: str, projections: int) -> str:
    ours, theirs = (
        [
            play(make_head(name, device=device, random_state=seed, **own), protocol, source, seed)
            for seed in range(seeds)
        ]
        for name, own in heads(projections).items()
    )
    mine, other = (np.stack([one.values for one in runs]) for runs in (ours, theirs))
    gain = mine - other
    cells = [
        f"{mine[:, i].mean():.1f} ({gain[:, i].mean():+.1f} ± {gain[:, i].std(ddof=1) if seeds > 1 else 0:.1f})"
        for i in range(len(NAMES))
    ]
    errors = [100 * np.mean([one.error for one in runs]) for runs in (ours, theirs)]
    label = f"{protocol}, {Path(source.removeprefix('embedded:')).stem}"
    return f"| {label} | {' | '.join(cells)} | {errors[0]:.1f} / {errors[1]:.1f} |"


def _measured(
    name: str, own: dict[str, int], protocol: str, source: str, threads: int, results: multiprocessing.Queue
) -> None:
    torch.set_num_threads(threads)
    open_features(source)
    make_head("ncm").fit(torch.randn(20, 8), np.arange(20) % 4)  # what a first call loads is not the head's
    head = make_head(name, **own)
    outcome = play(head, protocol, source, 0)
    results.put((outcome.seconds, outcome.megabytes, _stored(head)))


def _stored(head: FewShotHead) -> float:
    """Return the MiB that the head holds after the last session, as written to a file."""
    with tempfile.TemporaryDirectory() as folder:
        save_head(head, Path(folder) / "head.safetensors")
        return (Path(folder) / "head.safetensors").stat().st_size / 2**20


def cost(protocol: str, source: str, threads: int, projections: int) -> str:
    """Return a line for each head, with the ratios of C-RanPAC's figures to its own.

    Each runs in a process of its own, one after the other; NCM shows what the data themselves take.
    """
    found = {}
    context = multiprocessing.get_context("spawn")
    for name, own in {**heads(projections), "ncm": {}}.items():
        results = context.Queue()
        process = context.Process(target=_measured, args=(name, own, protocol, source, threads, results))
        process.start()
        found[name] = results.get()
        process.join()
    lines = []
    for name, (seconds, peak, stored) in found.items():
        slow, large, whole = (
            f"{theirs / max(mine, 1e-9):.0f}"
            for theirs, mine in zip(found["c-ranpac"], (seconds, peak, stored), strict=True)
        )
        cells = [protocol, name, f"{seconds:.1f} s", slow, f"{peak:.0f} MiB", large, f"{stored:.0f} MiB", whole]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="PROTOCOL=FEATURES")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cost", action="store_true", help="time and memory of one run instead of accuracy")
    parser.add_argument("--threads", type=int, default=2, help="for --cost")
    parser.add_argument("--projections", type=int, default=10_000, help="random features of C-RanPAC")
    options = parser.parse_args()
    pairs = [text.split("=", 1) for text in options.sets]
    if options.cost:
        print("| protocol | head | time | ratio | peak above the start | ratio | kept at the end | ratio |")
        print("|---" * 8 + "|")
    else:
        print(f"| features | {' | '.join(NAMES)} | calibration error, ours / C-RanPAC |")
        print("|---|---|---|---|---|---|")
    for protocol, source in pairs:
        if options.cost:
            line = cost(protocol, source, options.threads, options.projections)
        else:
            line = compare(protocol, source, options.seeds, options.device, options.projections)
        print(line, flush=True)


if __name__ == "__main__":
    main()

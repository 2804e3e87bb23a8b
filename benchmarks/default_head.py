"""Compare the default head with other heads on the same draws: accuracy, or time and memory (--cost).

Accuracies are means over the draws; the brackets have the lead of the default head over the same draws, with its
95 % interval over draws and test images. Each head has its paper's number of random features: C-RanPAC 10,000,
KLDA 5,000. Finished runs are kept in ``--out``; the same command continues from there.

    python benchmarks/default_head.py cub200/big=embedded:cub200 cub200/small=embedded:cub200
    python benchmarks/default_head.py cub200/big=embedded:cub200-big --heads joint-ridge,knn --workers 2
    python benchmarks/default_head.py cifar100/small=cifar.safetensors --seeds 5 --device cuda
    python benchmarks/default_head.py cub200/big=embedded:cub200 --cost
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fiveshot.benchmark import Job, RunRecord, compare_runs, get_protocol, open_features, sessions, sweep
from fiveshot.benchmark.job import make_jobs
from fiveshot.heads import FewShotHead, make_head, save_head
from fiveshot.metrics import PairedDifference

OURS = "unbiased-lda"
SHOWN = ("mean A_HM", "A_last", "A_inc")


@dataclass(frozen=True)
class Setting:
    """Features and a protocol."""

    protocol: str
    source: str

    def jobs(self, options: argparse.Namespace) -> list[Job]:
        """Return the runs of the default head and of the others."""
        given = {"device": options.device, "n_projections": options.projections}
        return make_jobs(
            get_protocol(self.protocol),
            self.source,
            methods=[OURS, *options.heads.split(",")],
            seeds=options.seeds,
            parameters={name: value for name, value in given.items() if value is not None},
        )

    def table(self, runs: Mapping[str, Sequence[RunRecord]]) -> str:
        """Return a row for each head."""
        lines = [f"| {self.protocol}, {self.source} | {' | '.join(SHOWN)} | ECE |", "|---" * 5 + "|"]
        for name, records in runs.items():
            found = compare_runs(runs[OURS], records)
            cells = [f"{100 * found.second[key]:.1f}{_more(name, found.differences[key])}" for key in SHOWN]
            lines.append(f"| {name} | {' | '.join(cells)} | {100 * found.second['ECE']:.1f} |")
        return "\n".join(lines) + "\n"


def _more(name: str, difference: PairedDifference) -> str:
    if name == OURS:
        return ""
    low, high = difference.low, difference.high
    interval = "" if low is None or high is None else f", {100 * low:+.1f} to {100 * high:+.1f}"
    return f" ({100 * difference.mean:+.1f}{interval})"


def compare(settings: Sequence[Setting], options: argparse.Namespace) -> Iterator[str]:
    """Run everything, and yield the table of each setting when its runs are finished."""
    jobs = {setting: setting.jobs(options) for setting in settings}
    found: dict[Job, RunRecord] = {}
    waiting = list(settings)
    for outcome in sweep([job for some in jobs.values() for job in some], options.out, workers=options.workers):
        found[outcome.job] = outcome.record
        for setting in [one for one in waiting if found.keys() >= set(jobs[one])]:
            waiting.remove(setting)
            names = dict.fromkeys(job.method for job in jobs[setting])
            yield setting.table(
                {name: [found[job] for job in jobs[setting] if job.method == name] for name in names}
            )


def play(head: FewShotHead, setting: Setting) -> tuple[float, float]:
    """Return the seconds of all sessions, and the growth of the process in MiB."""
    features = open_features(setting.source)
    steps = sessions(get_protocol(setting.protocol), features.train_y, features.test_y, features.class_names)
    test = torch.from_numpy(np.asarray(features.test_x, dtype=np.float32))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    for step in steps:
        rows = step.train_indices
        head.partial_fit(torch.from_numpy(np.asarray(features.train_x[rows], np.float32)), features.train_y[rows])
        head.predict(test[torch.from_numpy(step.test_indices)])
    seconds = time.perf_counter() - start
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def _measured(
    name: str, own: dict[str, int], setting: Setting, threads: int, results: multiprocessing.Queue
) -> None:
    torch.set_num_threads(threads)
    open_features(setting.source)
    make_head("ncm").fit(torch.randn(20, 8), np.arange(20) % 4)  # a first call loads libraries, which do not count
    head = make_head(name, **own)
    results.put((*play(head, setting), _stored(head)))


def _stored(head: FewShotHead) -> float:
    """Return the size of the saved head after the last session, in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        save_head(head, Path(folder) / "head.safetensors")
        return (Path(folder) / "head.safetensors").stat().st_size / 2**20


def cost(setting: Setting, threads: int, projections: int) -> str:
    """Return a line for each head, with the ratios of C-RanPAC's figures to its figures.

    Each head runs in its own process, one at a time. NCM shows the cost of the data.
    """
    found = {}
    context = multiprocessing.get_context("spawn")
    for name, own in {OURS: {}, "c-ranpac": {"n_projections": projections}, "ncm": {}}.items():
        results = context.Queue()
        process = context.Process(target=_measured, args=(name, own, setting, threads, results))
        process.start()
        found[name] = results.get()
        process.join()
    lines = []
    for name, (seconds, peak, stored) in found.items():
        slow, large, whole = (
            f"{theirs / max(mine, 1e-9):.0f}"
            for theirs, mine in zip(found["c-ranpac"], (seconds, peak, stored), strict=True)
        )
        figures = [f"{seconds:.1f} s", slow, f"{peak:.0f} MiB", large, f"{stored:.0f} MiB", whole]
        lines.append(f"| {' | '.join([setting.protocol, name, *figures])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="PROTOCOL=FEATURES")
    parser.add_argument("--heads", default="c-ranpac", help="beside the default head, separated by commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", help="cuda, for example")
    parser.add_argument("--projections", type=int, help="number of random features, for all heads that use them")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for finished runs")
    parser.add_argument(
        "--cost", action="store_true", help="compare time and memory of one run instead of accuracy"
    )
    parser.add_argument("--threads", type=int, default=2, help="for --cost")
    options = parser.parse_args()
    settings = [Setting(*text.split("=", 1)) for text in options.sets]
    if not options.cost:
        for table in compare(settings, options):
            print(table, flush=True)
        return
    print("| protocol | head | time | ratio | peak memory above the start | ratio | kept at the end | ratio |")
    print("|---" * 8 + "|")
    for setting in settings:
        print(cost(setting, options.threads, options.projections or 10_000), flush=True)


if __name__ == "__main__":
    main()

"""Measure how a cluster run scales.

Ray reduces one million synthetic vectors of 1,000 classes to statistics, with one worker and with two. Memory is
measured for half of the vectors and for all. A model of the cost is calibrated on one process without Ray, checked
against those runs, and extrapolated to a billion images. Every Ray run has its own process and its own cluster.

    python benchmarks/scale.py    # some minutes
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cluster_cost import Speeds, Workload, cost_of, merged_bytes

CLASSES, WIDTH, SHARD = 1_000, 384, 25_000
# Measured on one H200 with 16 cores: ViT-B/16 passes 256 images in 26.1 ms (benchmarks/results/tuning-h200.txt);
# 2,125 JPEG files of 500 px a second are decoded and cropped (fiveshot/features/seeing.py).
FORWARD, DECODE = 9_800, 133
STORE = {"tied": 500 << 20, "class": 2 << 30}  # bytes; statistics with a covariance for each class take 590 MB
LABELS = np.array([f"class {number:04}" for number in range(CLASSES)], dtype=object)


def synthetic(shard: int) -> dict[str, np.ndarray]:
    """Return the rows of a finished shard of vectors: Gaussian classes in random order."""
    rng = np.random.default_rng(shard)
    codes = rng.integers(0, CLASSES, SHARD)
    means = np.random.default_rng(12345).standard_normal((CLASSES, WIDTH), dtype=np.float32)
    empty = np.full(SHARD, "", object)
    vectors = rng.standard_normal((SHARD, WIDTH), dtype=np.float32) + means[codes]
    return {
        "split": np.zeros(SHARD, np.int64),
        "row": np.arange(SHARD),
        "name": empty,
        "reason": empty,
        "label": LABELS[codes],
        "vectors": vectors.astype(np.float16),
    }


def write_shards(folder: Path, images: int) -> None:
    """Write a folder of finished shards, as an extraction does."""
    from fiveshot.features import Provenance
    from fiveshot.scale._extraction import ShardFolder
    from fiveshot.scale._pipeline import VectorFacts
    from fiveshot.scale._shards import Shard

    facts = VectorFacts(None, WIDTH, "synthetic", Provenance.unknown("synthetic"), "float16", {})
    store = ShardFolder(folder, facts)
    shards = [Shard(number, str(number), None) for number in range(images // SHARD)]
    for shard in store.missing(shards):
        store.write(shard, synthetic(shard.number))
    store.write_manifest(shards, images=images, bad=())


def shard_paths(folder: str) -> list[str]:
    """Return the files of a folder's shards, in order."""
    return sorted(map(str, Path(folder).glob("shard-*.safetensors")))


class Memory:
    """Measures the memory of all processes below this one; shared memory counts once."""

    def __init__(self) -> None:
        self.peak = 0
        self._ended = threading.Event()

    def __enter__(self) -> Memory:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self.peak = max(self.peak, self.used())

    def used(self) -> int:
        own, shared = 0, 0
        for process in descendants(os.getpid()):
            try:
                lines = Path(f"/proc/{process}/status").read_text().splitlines()
            except OSError:
                continue
            values = {line.split(":")[0]: line.split() for line in lines}
            if "RssAnon" in values:
                own += int(values["RssAnon"][1]) << 10
                shared = max(shared, int(values["RssShmem"][1]) << 10)
        return own + shared


def descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for process in found:
        found += parents.get(process, [])
    return found


def reduction(covariance: str) -> Any:
    from fiveshot.scale._reductions import PerClass, Tied

    return PerClass() if covariance == "class" else Tied()


def ray_run(workers: int, images: int, covariance: str, folder: str) -> dict[str, float]:
    """Reduce the first shards with a number of workers, in a cluster of this process."""
    import logging

    import ray

    from fiveshot.scale._reducer import BlockReducer
    from fiveshot.scale._statistics import shard_rows
    from fiveshot.scale.cluster import QUIET

    os.environ.update(QUIET, RAY_worker_niceness="0")  # other programs would run first otherwise
    ray.init(
        num_cpus=2,
        object_store_memory=STORE[covariance],
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        # The second run does not wait for processes to start and import.
        _system_config={"idle_worker_killing_time_threshold_ms": 600_000},
    )
    paths = shard_paths(folder)

    def reduced(count: int) -> Any:
        reducer = BlockReducer(
            {"s": reduction(covariance)},
            at_once=workers,
            task_cpus=0.5,
            group_bytes=1,
            load=shard_rows,
        )
        for path in paths[:count]:
            reducer.add(path, 1)
        return reducer.result()["s"]

    reduced(6 * workers)  # processes start and import
    idle = Memory().used()
    with Memory() as memory:
        began, (busy, own) = time.perf_counter(), core_seconds()
        found = reduced(images // SHARD)
        seconds, (busy_then, own_then) = time.perf_counter() - began, core_seconds()
    assert found.counts.sum() == images
    ray.shutdown()
    ours = own_then - own
    others = (busy_then - busy - ours) / len(os.sched_getaffinity(0))
    return {"seconds": seconds, "ours": ours, "others": others, "peak": memory.peak, "idle": idle}


def core_seconds() -> tuple[float, float]:
    """Return the busy seconds of all cores, and the part of this process and its children."""
    ticks = os.sysconf("SC_CLK_TCK")
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    busy = sum(sum(map(int, line[1:4])) + sum(map(int, line[6:9])) for line in lines if line[0] in cores)
    own = 0
    for process in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        own += sum(map(int, fields[11:15]))  # of this process and its finished children
    return busy / ticks, own / ticks


def in_own_process(*arguments: Any) -> dict[str, float]:
    command = [sys.executable, __file__, "--run", json.dumps(arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and its core seconds."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def calibrated(covariance: str, paths: list[str]) -> tuple[float, float]:
    """Return the vectors reduced and the bytes merged per second by one process without Ray."""
    from fiveshot.scale._pipeline import good_rows
    from fiveshot.scale._reductions import reduce_rows
    from fiveshot.scale._statistics import shard_rows

    way = reduction(covariance)
    seconds, parts = [], []
    for path in paths[:8]:
        part, taken = timed(lambda path=path: reduce_rows(way, good_rows(shard_rows(path), splits=(0,))))
        seconds.append(taken)
        parts.append(part)
    moved = merging = 0.0
    while len(parts) > 1:
        groups = [parts[start : start + 4] for start in range(0, len(parts), 4)]
        moved += sum(size(part) for group in groups for buckets in group for part in buckets)
        parts, taken = timed(
            lambda groups=groups: [[way.merge(bucket) for bucket in zip(*group, strict=True)] for group in groups]
        )
        merging += taken
    return SHARD / statistics.median(seconds), moved / merging


def size(part: Any) -> int:
    return sum(value.nbytes for value in vars(part).values() if isinstance(value, np.ndarray))


def reducing(images: int) -> dict[str, Any]:
    print(f"## {images:,} vectors of {WIDTH} values, {CLASSES:,} classes, in shards on a disk, to statistics\n")
    print("One process without Ray, seconds of its core (the model's speeds):\n")
    print("| covariance | read and reduce, vectors/s | merge, MB/s |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder), images)
        paths = shard_paths(folder)
        speeds = {}
        for covariance in ("tied", "class"):
            rate, merge = calibrated(covariance, paths)
            speeds[covariance] = Speeds(FORWARD, DECODE, rate, merge)
            print(f"| {covariance} | {rate:,.0f} | {merge / 1e6:,.0f} |", flush=True)
        print("\nRay on two cores; others: the share of both cores that other programs took meanwhile:\n")
        heads = (
            "covariance",
            "vectors",
            "workers",
            "seconds",
            "core seconds",
            "model",
            "others",
            "peak, MB",
            "before, MB",
        )
        print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
        for covariance in ("tied", "class"):
            runs = {}
            for count, workers in ((images // 4, 1), (images // 2, 1), (images, 1), (images, 2)):
                runs[count, workers] = run = in_own_process(workers, count, covariance, folder)
                of = speeds[covariance]
                merged = merged_bytes(Workload(count, CLASSES, WIDTH), covariance, group_bytes=SHARD * 4 * WIDTH)
                model = (count / of.reduce + merged / of.merge_bytes) / workers
                print(
                    f"| {covariance} | {count:,} | {workers} | {run['seconds']:.1f} "
                    f"| {run['ours']:.1f} | {model:.1f} "
                    f"| {run['others'] / run['seconds']:.0%} "
                    f"| {run['peak'] / 1e6:,.0f} | {run['idle'] / 1e6:,.0f} |",
                    flush=True,
                )
            ratio = runs[images, 1]["seconds"] / runs[images, 2]["seconds"]
            per_core = 2 * runs[images, 1]["ours"] / runs[images, 2]["ours"]
            grown = runs[images, 1]["peak"] / runs[images // 2, 1]["peak"]
            print(
                f"\n{covariance}: two workers are {ratio:.2f} times as fast as one by the clock, "
                f"{per_core:.2f} times for the same core time; peak memory with {images:,} vectors is "
                f"{grown:.2f} times that with {images // 2:,}\n",
                flush=True,
            )
    return speeds


def carrying_on(speeds: dict[str, Any]) -> None:
    print("## The model carried on: nodes of 8 GPUs and 128 cores\n")
    heads = ("images", "classes", "covariance", "nodes", "hours", "GPU-hours")
    print(f"| {' | '.join((*heads, 'read', 'pixels', 'vectors', 'merged', 'statistics'))} |")
    print(f"{'|---' * 11}|")
    for images, classes, nodes in ((10**6, 10**3, 1), (10**8, 10**5, 1), (10**9, 10**6, 8)):
        for covariance in ("tied", "class"):
            cost = cost_of(
                Workload(images, classes, WIDTH),
                speeds[covariance],
                gpus=8 * nodes,
                cores=128 * nodes,
                covariance=covariance,
            )
            sizes = (cost.read_bytes, cost.pixel_bytes, cost.vector_bytes, cost.merge_bytes, cost.statistics_bytes)
            print(
                f"| {images:,} | {classes:,} | {covariance} | {nodes} "
                f"| {cost.seconds / 3600:.2f} | {cost.gpu_hours:,.1f} | "
                + " | ".join(in_words(value) for value in sizes)
                + " |"
            )
    print()


def in_words(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(ray_run(*json.loads(options.run))))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
    carrying_on(reducing(options.vectors))


if __name__ == "__main__":
    main()

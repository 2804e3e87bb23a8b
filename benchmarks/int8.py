"""The 8-bit runtime beside float32: how much faster, and what accuracy it costs.

    python benchmarks/int8.py                            # `fiveshot predict` of 1,000 photos, by turns: minutes
    python benchmarks/int8.py --data DIR --keep FOLDER   # accuracy on CUB-200: half an hour of two cores

DIR holds train.tar and test.tar of CUB-200 (short side 160 px), the photographs that the embedded packs are of.
Their features in 8 bits are extracted into FOLDER, where a run that was stopped goes on. The default head then
learns and answers with the pack's float features, with those in 8 bits, and learns from the one and answers with
the other, five draws each.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from ratios import Ratio, add_check, report
from recognizer import photographs

from fiveshot import Recognizer
from fiveshot.backbones import BackboneSpec, load_embedder
from fiveshot.benchmark import get_protocol, run, summarize_runs
from fiveshot.data import ImageSplit, open_dataset
from fiveshot.features import ExtractionSettings, FeatureSet, embedded_features, extract

DRAWS = 5
FASTER = 1.7
WITHIN = 0.3  # points of A_HM and A_last
BENCHMARKS = (  # protocol, pack, adapter
    ("cub200/big", "cub200", None),
    ("cub200/small", "cub200", None),
    ("cub200/big", "cub200-big", "cub200-big"),
    ("cub200/small", "cub200-small", "cub200-small"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--keep", type=Path, default=Path("build/int8"))
    parser.add_argument("--photos", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    add_check(parser)
    given = parser.parse_args()
    rows = accuracy(given.data, given.keep) if given.data else [speed(given.photos, given.rounds)]
    sys.exit(report(rows, check=given.check))


def speed(photos: int, rounds: int) -> Ratio:
    """Return how much faster the command is with the 8-bit runtime, the best of some rounds by turns.

    Seconds of processor time are printed, too: other programs on the machine change them less.
    """
    seconds: dict[str, list[float]] = {"onnx": [], "int8": []}
    used: dict[str, list[float]] = {"onnx": [], "int8": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        for number, data in enumerate(photographs(photos, seed=5)):
            (folder / "photos" / f"{number:05d}.jpg").write_bytes(data)
        with Recognizer.create(folder / "model") as model:
            model.learn_many({f"class {n}": photographs(5, seed=100 + n) for n in range(10)})
        for _ in range(rounds):
            for runtime, taken in seconds.items():
                began, before = time.perf_counter(), children_seconds()
                command = [sys.executable, "-m", "fiveshot", "predict", folder / "model", folder / "photos"]
                subprocess.run([*command, "--runtime", runtime], check=True, stdout=subprocess.DEVNULL)
                taken.append(time.perf_counter() - began)
                used[runtime].append(children_seconds() - before)
    for runtime, taken in seconds.items():
        times = ", ".join(f"{one:.1f} s ({own:.1f} s)" for one, own in zip(taken, used[runtime], strict=True))
        print(f"{runtime}: {times} (of processor time), {photos / min(taken):.1f} photos/s")
    print(f"by processor time {min(used['onnx']) / min(used['int8']):.2f} x")
    work = f"fiveshot predict of {photos:,} photos, {os.cpu_count()} cores, int8 against float32"
    return Ratio(work, min(seconds["onnx"]) / min(seconds["int8"]), FASTER)


def children_seconds() -> float:
    """Return the processor time of programs that this one has started and waited for."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def accuracy(data: Path, keep: Path) -> list[Ratio]:
    """Return how many points of A_HM or A_last are lost with 8 bits, the more of two ways to use them."""
    keep.mkdir(parents=True, exist_ok=True)
    rows = []
    print(
        "| benchmark | A_HM, A_last in float32 | in int8 | learned in float32, asked in int8 |\n|---|---|---|---|"
    )
    for protocol, pack, adapter in BENCHMARKS:
        whole = embedded_features(pack)
        rounded = in_int8(data, keep / f"{pack}.safetensors", whole, adapter)
        mixed = replace(rounded, train_x=whole.train_x)
        figures = [measured(protocol, features) for features in (whole, rounded, mixed)]
        print(f"| {protocol}, {adapter or 'no adapter'} | {' | '.join(map(shown, figures))} |", flush=True)
        lost = max(float((figures[0] - other).max()) for other in figures[1:])
        rows.append(Ratio(f"lost by int8: {protocol}, {adapter or 'no adapter'}", lost, WITHIN, "points", True))
    return rows


def in_int8(data: Path, path: Path, like: FeatureSet, adapter: str | None) -> FeatureSet:
    """Return the same photographs as those of a pack, in its order, with features in 8 bits."""
    if not path.exists():
        found = open_dataset("cub200", data, seed=0)
        train, test = ordered(found.train, like.train_names), ordered(found.test, like.test_names)
        assert np.array_equal(train.labels, like.train_y), "the photographs have other classes than the pack"
        birds = replace(found, train=train, test=test)
        embedder = load_embedder(BackboneSpec(adapter=adapter, device="cpu", runtime="int8"))
        extract(birds, embedder, ExtractionSettings(dtype="float32"), out=path)
    return FeatureSet.load(path)


def ordered(split: ImageSplit, names: tuple[str, ...] | None) -> ImageSplit:
    """Return photos in the order of names; the suffix of a file may be another."""
    assert names is not None
    places = {Path(image.name).stem: place for place, image in enumerate(split.images)}
    return split.select([places[Path(name).stem] for name in names])


def measured(protocol: str, features: FeatureSet) -> np.ndarray:
    """Return A_HM and A_last in percent, the means over the draws."""
    draws = [get_protocol(protocol).replace(shot_seed=seed) for seed in range(DRAWS)]
    found = summarize_runs([run(draw, features, "unbiased-lda") for draw in draws])
    return 100 * np.array([found.a_hm_mean.mean, found.a_last.mean])


def shown(figures: np.ndarray) -> str:
    return ", ".join(f"{one:.2f}" for one in figures)


if __name__ == "__main__":
    main()

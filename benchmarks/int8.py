"""The 8-bit runtime beside float32: how much faster, and what accuracy it costs.

    python benchmarks/int8.py                            # `fiveshot predict` of 1,000 photos, by turns: minutes
    python benchmarks/int8.py --data DIR --keep FOLDER   # accuracy on CUB-200: half an hour of two cores

DIR holds train.tar and test.tar of CUB-200 (short side 160 px), the photographs that the embedded packs are of.
Their features in 8 bits are extracted into FOLDER, where a run that was stopped goes on. The default head then
learns and answers with the pack's float features, with those in 8 bits, and learns from the one and answers with
the other. Half an hour is too long for a busy machine: with --part 3 every third test photograph is asked, and of
the training photographs the shots and small base sessions are in 8 bits, a large base session is in float.
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
from fiveshot.benchmark import Protocol, get_protocol, run, sessions, summarize_runs
from fiveshot.data import ImageSplit, open_dataset
from fiveshot.features import ExtractionSettings, FeatureSet, embedded_features, extract

FASTER = 1.7
WITHIN = 0.3  # points of A_HM and A_last
SMALL_BASE = 1000  # photographs up to which a base session is seen in 8 bits where only a part is
BENCHMARKS = {  # packs: adapter, protocols
    "cub200": (None, ("cub200/big", "cub200/small")),
    "cub200-big": ("cub200-big", ("cub200/big",)),
    "cub200-small": ("cub200-small", ("cub200/small",)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--keep", type=Path, default=Path("build/int8"))
    parser.add_argument("--photos", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--packs", nargs="+", default=list(BENCHMARKS), choices=list(BENCHMARKS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--part", type=int, default=1, help="see only every so manieth test photograph in 8 bits")
    add_check(parser)
    given = parser.parse_args()
    rows = accuracy(given) if given.data else [speed(given.photos, given.rounds)]
    sys.exit(report(rows, check=given.check))


def speed(photos: int, rounds: int) -> Ratio:
    """Return how much less processor time the command takes with the 8-bit runtime, by turns, the best of rounds.

    All cores are busy, so that seconds go with it; those are changed by other programs on the machine.
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
    work = f"fiveshot predict of {photos:,} photos, {os.cpu_count()} cores, int8 against float32"
    return Ratio(work, min(used["onnx"]) / min(used["int8"]), FASTER)


def children_seconds() -> float:
    """Return the processor time of programs that this one has started and waited for."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def accuracy(given: argparse.Namespace) -> list[Ratio]:
    """Return how many points of A_HM or A_last are lost with 8 bits, the more of two ways to use them."""
    given.keep.mkdir(parents=True, exist_ok=True)
    rows = []
    print("| benchmark | A_HM, A_last in float32 | in int8 | learned in float32, asked in int8 |")
    print("|---|---|---|---|")
    for pack, (adapter, protocols) in BENCHMARKS.items():
        if pack not in given.packs:
            continue
        draws = {
            name: [get_protocol(name).replace(shot_seed=seed) for seed in range(given.draws)] for name in protocols
        }
        whole = embedded_features(pack)
        chosen = chosen_rows(whole, [draw for own in draws.values() for draw in own], given.part)
        small = in_int8(
            given.data, given.keep / f"{pack}-{given.part}-{given.draws}.safetensors", whole, chosen, adapter
        )
        asked = replace(whole, test_x=whole.test_x[chosen[1]], test_y=whole.test_y[chosen[1]], test_names=None)
        mixed = replace(asked, test_x=np.asarray(small.test_x))
        learned = np.array(whole.train_x, np.float32)
        learned[chosen[0]] = small.train_x
        for name, own in draws.items():
            figures = [measured(own, features) for features in (asked, replace(mixed, train_x=learned), mixed)]
            title = f"{name}, {adapter or 'no adapter'}"
            print(f"| {title} | {' | '.join(map(shown, figures))} |", flush=True)
            lost = max(float((figures[0] - other).max()) for other in figures[1:])
            rows.append(Ratio(f"lost by int8: {title}", lost, WITHIN, "points", True))
    return rows


def chosen_rows(whole: FeatureSet, draws: list[Protocol], part: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the training and the test photographs that are seen in 8 bits, by their rows."""
    if part == 1:
        return np.arange(len(whole.train_y)), np.arange(len(whole.test_y))
    used = set[int]()
    for draw in draws:
        for session in sessions(draw, whole.train_y, whole.test_y, whole.class_names):
            if session.number or len(session.train_indices) < SMALL_BASE:
                used.update(session.train_indices.tolist())
    labels, first = np.unique(whole.train_y, return_index=True)
    seen = set(whole.train_y[sorted(used)].tolist())
    used.update(first[[label not in seen for label in labels.tolist()]].tolist())  # a feature set has all classes
    return np.array(sorted(used)), np.arange(0, len(whole.test_y), part)


def in_int8(
    data: Path, path: Path, like: FeatureSet, rows: tuple[np.ndarray, np.ndarray], adapter: str | None
) -> FeatureSet:
    """Return photographs of a pack with features in 8 bits."""
    if not path.exists():
        found = open_dataset("cub200", data, seed=0)
        train, test = (
            ordered(split, names).select(own)
            for split, names, own in zip(
                (found.train, found.test), (like.train_names, like.test_names), rows, strict=True
            )
        )
        assert np.array_equal(train.labels, like.train_y[rows[0]]), "the photographs have other classes"
        embedder = load_embedder(BackboneSpec(adapter=adapter, device="cpu", runtime="int8"))
        extract(replace(found, train=train, test=test), embedder, ExtractionSettings(dtype="float32"), out=path)
    return FeatureSet.load(path)


def ordered(split: ImageSplit, names: tuple[str, ...] | None) -> ImageSplit:
    """Return photos in the order of names; the suffix of a file may be another."""
    assert names is not None
    places = {Path(image.name).stem: place for place, image in enumerate(split.images)}
    return split.select([places[Path(name).stem] for name in names])


def measured(draws: list[Protocol], features: FeatureSet) -> np.ndarray:
    """Return A_HM and A_last in percent, the means over the draws."""
    found = summarize_runs([run(draw, features, "unbiased-lda") for draw in draws])
    return 100 * np.array([found.a_hm_mean.mean, found.a_last.mean])


def shown(figures: np.ndarray) -> str:
    return ", ".join(f"{one:.2f}" for one in figures)


if __name__ == "__main__":
    main()

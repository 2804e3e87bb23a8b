"""Measure the time of the recognizer relative to its backbone, in one run.

A model with 1,000 classes of five photos (synthetic 320-d features, stored like learned ones) and the embedded
network: learning a class from five photographs, predicting, opening, and memory and disk space for each class.

    python benchmarks/recognizer.py               # all of it, printed as a table in Markdown
    python benchmarks/recognizer.py --classes 200 --base 100
    python benchmarks/recognizer.py --large       # compare a model of 10,000 classes with one of 1,000
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import ratios
from PIL import Image
from ratios import Ratio, add_check

from fiveshot.backbones import BackboneSpec, Embedder, default_workers, load_embedder
from fiveshot.core import summarize
from fiveshot.data.reduction import thumbnail
from fiveshot.features import Keep
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.creation import learn_base
from fiveshot.recognizer.photos.embedding import backbone_record, photo_records
from fiveshot.recognizer.photos.inputs import gather_photos
from fiveshot.recognizer.recognition.snapshot import head_record, restored_head
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import Manifest, Options
from fiveshot.recognizer.store.rows import ClassRecord, PhotoRecord

SHOTS, BASE_SHOTS = 5, 30
AT = "2026-01-01T00:00:00.000+00:00"


def photographs(count: int, seed: int) -> list[bytes]:
    """Return different JPEGs of the size of camera previews."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
        buffer = io.BytesIO()
        coarse.resize((640, 480), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        made.append(buffer.getvalue())
    return made


def features(number: int, count: int, centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return features of a synthetic class with the mean and spread of the backbone's features."""
    rng = np.random.default_rng([7, number])
    own = centre + 0.8 * spread * rng.normal(size=len(centre))
    return (own + 0.6 * spread * rng.normal(size=(count, len(centre)))).astype(np.float32)


def make_model(path: Path, runner: Embedder, classes: int, base: int, head: str) -> None:
    real = np.stack([one.feature for one in photo_records(runner, gather_photos(photographs(16, seed=1)))])
    centre, spread = real.mean(axis=0), real.std(axis=0)
    picture = thumbnail(Image.open(io.BytesIO(photographs(1, seed=2)[0])))
    record, options = head_record(head), Options()
    manifest = Manifest(backbone_record(runner), record, options=options)
    given = {}
    if base:
        X = np.concatenate([features(1_000_000 + number, BASE_SHOTS, centre, spread) for number in range(base)])
        names = np.repeat([f"base {number:04d}" for number in range(base)], BASE_SHOTS).tolist()
        learned = learn_base(X, names, head=record, options=options)
        manifest = Manifest(backbone_record(runner), learned.head, options=options, rejection=learned.rejection)
        given["base"] = learned.base

    embedding = restored_head(manifest.head)

    def records() -> list[ClassRecord]:
        made = []
        for number in range(classes):
            X = features(number, SHOTS, centre, spread)
            photos = tuple(PhotoRecord(f"{number:060x}{i:04x}", X[i], picture, None, AT) for i in range(SHOTS))
            made.append(ClassRecord(f"class {number:04d}", summarize(embedding.embed(X)), photos, created=AT))
        return made

    create_model(path, manifest, classes=records(), **given)


def best(action: Callable[[int], object], repeats: int) -> float:
    """Return the shortest of several runs, in seconds: the time without disturbance."""
    times = []
    for number in range(repeats):
        began = time.perf_counter()
        action(number)
        times.append(time.perf_counter() - began)
    return min(times)


def forward_seconds(runner: Embedder, photos: list[bytes], repeats: int) -> float:
    """Return the seconds of the network alone over preprocessed photos, spread over the cores as usual."""
    from concurrent.futures import ThreadPoolExecutor

    images = np.stack([runner.pixels(photo.image()) for photo in gather_photos(photos)])
    parts = np.array_split(images, min(len(images), default_workers()))
    with ThreadPoolExecutor(default_workers()) as pool:
        return best(lambda _: list(pool.map(runner.features, parts)), repeats)


def memory_of(path: Path, small: Path) -> int:
    """Return the memory for opening the model and predicting one row of features, in bytes."""
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from fiveshot.recognizer import Recognizer\n"
        "held = lambda: 4096 * int(Path('/proc/self/statm').read_text().split()[1])\n"
        "def use(path):\n"
        "    model = Recognizer.open(path, readonly=True)\n"
        "    model.predict_features(np.ones((1, model.snapshot.contents.width)))\n"
        "    return model\n"
        "first = use(sys.argv[2])\n"
        "before = held()\n"
        "model = use(sys.argv[1])\n"
        "print(held() - before)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(path), str(small)], stdout=subprocess.PIPE, text=True, check=True
    )
    return int(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--base", type=int, default=0, help="base classes of 30 photos")
    parser.add_argument("--head", default="unbiased-lda")
    parser.add_argument("--repeats", type=int, default=9, help="number of runs; the shortest counts")
    parser.add_argument(
        "--large", action="store_true", help="compare 10,000 classes with 1,000, without the backbone"
    )
    add_check(parser)
    arguments = parser.parse_args()
    if arguments.large:
        sys.exit(ratios.report(large(arguments.head, arguments.repeats), check=arguments.check))
    runner = load_embedder(BackboneSpec(device="cpu"))
    print(
        f"{default_workers()} cores, {runner.runtime}; {arguments.classes} classes of {SHOTS} photos, "
        f"{arguments.base} base classes, head {arguments.head}\n",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small, path = folder / "small", folder / "model"
        make_model(small, runner, 10, arguments.base, arguments.head)
        make_model(path, runner, arguments.classes, arguments.base, arguments.head)
        rows = report(path, small, runner, arguments.classes, arguments.repeats)
    sys.exit(ratios.report(rows, check=arguments.check))


def large(head: str, repeats: int) -> list[Ratio]:
    """Compare a model of 10,000 classes with one of 1,000; both are open and learn in turns.

    Processor time is measured, because it depends less on other programs.
    """
    runner = load_embedder(BackboneSpec(device="cpu"))
    X = np.stack([one.feature for one in photo_records(runner, gather_photos(photographs(SHOTS, seed=3)))])
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        paths = [Path(name) / str(classes) for classes in (1000, 10_000)]
        for path in paths:
            make_model(path, runner, int(path.name), 0, head)
        opening = [min(used(open_and_close, path) for _ in range(5)) for path in paths]
        models = [opened.enter_context(Recognizer.open(path)) for path in paths]
        deriving = [used(lambda model: model.snapshot.head, one) for one in models]

        def by_turns(action: Callable[[Recognizer, int], object]) -> list[float]:
            runs = [[used(action, one, number) for one in models] for number in range(repeats + 1)]
            return [
                min(times[1:]) for times in zip(*runs, strict=True)
            ]  # the first one reads what later ones have in memory

        learning = by_turns(lambda model, n: model.learn_features(f"new {n}", X + n))
        adding = by_turns(lambda model, n: model.learn_features("new 0", X[:1] - n, add=True))
    print("| processor time, ms | 1,000 classes | 10,000 classes |\n|---|---:|---:|")
    rows = {"open the model": opening, "derive the head": deriving}
    rows |= {"learn a class of 5 photos, without the backbone": learning, "add a photo to a class": adding}
    for what, seconds in rows.items():
        print(f"| {what} | {' | '.join(f'{1000 * one:.1f}' for one in seconds)} |")
    return [
        Ratio(
            "a class learned beside 10,000, head and storage",
            learning[1] / learning[0],
            1.5,
            at_most=True,
        ),
        Ratio("a photo added to a class, the same", adding[1] / adding[0], 1.5, at_most=True),
        Ratio("opening a model of 10,000 classes", opening[1], 1.0, "s", at_most=True),
    ]


def open_and_close(path: Path) -> None:
    Recognizer.open(path, readonly=True).close()


def used(action: Callable[..., object], *given: object) -> float:
    """Return the processor time of a call in all threads, in seconds."""
    began = time.process_time()
    action(*given)
    return time.process_time() - began


def report(path: Path, small: Path, runner: Embedder, classes: int, repeats: int) -> list[Ratio]:
    photos = photographs(SHOTS, seed=3)
    shots = [photographs(SHOTS, seed=10 + number) for number in range(repeats)]
    size = sum(file.stat().st_size for file in path.iterdir())
    opening = best(lambda _: Recognizer.open(path, readonly=True).close(), repeats)
    with Recognizer.open(path) as model:
        model._embedder = runner
        began = time.perf_counter()
        model.snapshot.head  # noqa: B018
        deriving = time.perf_counter() - began
        began = time.perf_counter()
        model.snapshot.rejection  # noqa: B018
        thresholds = time.perf_counter() - began
        forward = forward_seconds(runner, photos, repeats)
        looking = best(lambda _: photo_records(runner, gather_photos(photos), Keep(thumbnail=True)), repeats)
        X = np.stack([one.feature for one in photo_records(runner, gather_photos(photos))])
        learning = best(lambda number: model.learn(f"new {number}", shots[number]), repeats)
        storing = best(lambda number: model.learn_features(f"rows {number}", X + number), repeats)
        predicting = best(lambda _: model.snapshot.predict_features(X), repeats)
        adding = best(lambda number: model.learn_features("rows 0", X - number, add=True), repeats)
        forgetting = best(lambda number: model.forget(f"rows {number}", for_good=True), repeats)
    rows = [
        ("the backbone's forward pass over 5 photos", forward, ""),
        ("... with decoding, cropping and thumbnails", looking, f"{looking / forward:.2f} x"),
        ("learn a class from 5 photos", learning, f"{learning / forward:.2f} x"),
        ("... head, report and storage alone", storing, f"{storing / forward:.3f} x"),
        ("add 5 photos to a class, without the backbone", adding, f"{adding / forward:.3f} x"),
        ("predict 5 photos, without the backbone", predicting, f"{predicting / forward:.3f} x"),
        ("forget a class, to the last byte", forgetting, f"{forgetting / forward:.3f} x"),
        ("open the model", opening, ""),
        ("... and derive the head", opening + deriving, ""),
        ("... thresholds of rejection", thresholds, ""),
    ]
    print("| what | ms | beside the forward pass |\n|---|---:|---|")
    for what, seconds, ratio in rows:
        print(f"| {what} | {1000 * seconds:.1f} | {ratio} |")
    held = memory_of(path, small) / classes
    print(
        f"\non disk {size / classes / 1024:.1f} KiB a class, thumbnails included; "
        f"in memory {held / 1024:.1f} KiB a class"
    )
    return [
        Ratio("learn a class from 5 photos, of the forward pass", learning / forward, 1.2, at_most=True),
        Ratio("... head, report and storage alone", storing / forward, 0.2, at_most=True),
        Ratio("predict 5 photos, without the backbone", predicting / forward, 0.05, at_most=True),
        Ratio("open the model and derive the head", opening + deriving, 1.0, "s", at_most=True),
    ]


if __name__ == "__main__":
    main()

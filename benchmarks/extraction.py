"""Compare extraction from JPEG files with the forward pass alone, in one run.

JPEGs of 500 px, about 100 kB each, are written into a temporary folder: photos of a tar archive (``--photos``),
else seeded drawings. Noise is added, because enlarged or drawn pictures are too easy to decode. Then three things
run in turns, so that a busy machine slows all of them: the forward pass alone, the extraction, and the plain loop
of most code (decode a batch, run the network, in eager PyTorch).

    python benchmarks/extraction.py                        # the embedded network, every installed runtime
    python benchmarks/extraction.py --photos cub200/test.tar
    python benchmarks/extraction.py --runtimes onnx --images 120 --rounds 9
    python benchmarks/extraction.py --device cuda --repeat 40
"""

from __future__ import annotations

import argparse
import io
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image, ImageDraw

from fiveshot.backbones import (
    DEFAULT,
    Backbone,
    BackboneSpec,
    Embedder,
    default_workers,
    load_backbone,
    load_embedder,
)
from fiveshot.data import FileSource, ImageDataset, ImageSource, ImageSplit, decode
from fiveshot.features import ExtractionSettings, bare_rate, extract

LONG_SIDE = 500

T = TypeVar("T")
Shares = tuple[float, float]  # relative to the bare rate: by the clock, and for the same core time


def photographs(archive: Path) -> Iterator[Image.Image]:
    with tarfile.open(archive) as tar:
        for member in (m for m in tar if m.isfile()):
            yield Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")


def drawings(rng: np.random.Generator) -> Iterator[Image.Image]:
    while True:
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8))
        image = coarse.resize((500, 375), Image.Resampling.BICUBIC)
        draw = ImageDraw.Draw(image)
        for _ in range(20):
            x, y, width, height = rng.integers(0, 300, 4).tolist()
            draw.ellipse((x, y, x + width + 5, y + height + 5), fill=tuple(rng.integers(0, 256, 3).tolist()))
        yield image


def write_jpegs(folder: Path, count: int, archive: Path | None) -> list[FileSource]:
    rng = np.random.default_rng(0)
    images = photographs(archive) if archive else drawings(rng)
    sources = []
    for number, image in zip(range(count), images, strict=False):
        scale = LONG_SIDE / max(image.size)
        large = np.asarray(image.resize((round(image.width * scale), round(image.height * scale))), np.float32)
        noisy = (large + rng.normal(0, 8, large.shape)).clip(0, 255).astype(np.uint8)
        path = folder / f"{number}.jpg"
        Image.fromarray(noisy).save(path, quality=95)
        sources.append(FileSource(path, path.name))
    return sources


def as_dataset(sources: list[FileSource], repeat: int) -> ImageDataset:
    images = tuple(FileSource(s.path, f"{turn}/{s.name}") for turn in range(repeat) for s in sources)
    train = ImageSplit(images, np.zeros(len(images), np.int64))
    return ImageDataset("jpegs", ("all",), train, ImageSplit((), np.zeros(0, np.int64)))


def plain_loop(backbone: Backbone, images: tuple[ImageSource, ...], batch: int = 32) -> float:
    prepare, began = backbone.preprocessing, time.perf_counter()
    for start in range(0, len(images), batch):
        pixels = np.stack([prepare.pixels(decode(image)) for image in images[start : start + batch]])
        backbone.features(torch.from_numpy(prepare.normalize(pixels.reshape(-1, *pixels.shape[2:])))).cpu()
    return len(images) / (time.perf_counter() - began)


def runners(options: argparse.Namespace) -> dict[str, Embedder]:
    spec = BackboneSpec(options.backbone, weights=options.weights)
    if options.device == "cuda" or (options.device == "auto" and torch.cuda.is_available()):
        return {
            f"cuda {precision}": load_embedder(spec.replace(device="cuda", precision=precision))
            for precision in ("bf16", "float32")
        }
    return {
        runtime: load_embedder(spec.replace(device="cpu", runtime=runtime))
        for runtime in options.runtimes.split(",")
    }


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """Return a result and the number of cores it used; other programs may use the rest."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = function()
    return result, (time.process_time() - cpu) / (time.perf_counter() - wall)


def measure(name: str, runner: Embedder, data: ImageDataset, folder: Path, options: argparse.Namespace) -> Shares:
    pace = {"batch_size": options.batch_size, "workers": options.workers}
    bare, bare_cores = timed(lambda: bare_rate(runner, **pace, seconds=options.seconds))
    done, cores = timed(
        lambda: extract(data, runner, ExtractionSettings(**pace), out=folder / "features.safetensors")
    )
    per_core = (done.rate / cores) / (bare / bare_cores)
    decode, forward = (1e3 * stage / done.computed for stage in (done.stages.decode, done.stages.forward))
    print(
        f"{name:13} {bare:9.1f} {done.rate:11.1f} {done.rate / bare:7.0%} {per_core:9.0%} {done.forward_rate:9.1f}"
        f"   {decode:6.2f}  {forward:6.2f}   {done.runtime}",
        flush=True,
    )
    return done.rate / bare, per_core


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, metavar="TAR", help="photos to use instead of drawings")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=1, help="number of times that each file is extracted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of each bare measurement")
    parser.add_argument("--backbone", default=DEFAULT)
    parser.add_argument("--weights")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--runtimes", default="onnx,torch", help="on a CPU")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = as_dataset(write_jpegs(folder, options.images, options.photos), options.repeat)
        origin = options.photos.name if options.photos else "drawings"
        print(f"{len(data.train)} JPEGs of {LONG_SIDE} px ({origin}), {default_workers()} cores")
        print(f"{options.backbone}\n")
        chosen = runners(options)
        print("                images/s              share of bare      images/s   ms for an image, on one worker")
        print("                   bare  end to end    time core-time in forward   decode forward")
        shares: dict[str, list[Shares]] = {name: [] for name in chosen}
        for _ in range(options.rounds):
            for name, runner in chosen.items():
                shares[name].append(measure(name, runner, data, folder, options))
            plain = plain_loop(load_backbone(next(iter(chosen.values())).spec), data.train.images[:96])
            print(f"{'plain loop':13} {'':9} {plain:11.1f}", flush=True)
        print()
        for name, values in shares.items():
            by_time, by_core = (statistics.median(value) for value in zip(*values, strict=True))
            print(f"{name}: end to end is {by_time:.0%} of the bare rate, {by_core:.0%} for the same core time")


if __name__ == "__main__":
    main()

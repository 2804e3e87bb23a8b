"""Measure how much of its own speed a GPU reaches: forward pass, extraction, and tuning step.

    python benchmarks/gpu.py                       # all rows, on a CUDA device
    python benchmarks/gpu.py --only files arrays   # some of them
    python benchmarks/gpu.py --check               # exit with 1 if a figure misses its limit

The forward pass and the tuning step are those of ViT-B/16 with random weights at 224 px, compiled; their share of
the matrix rate is the number of operations of the plain network, as PyTorch counts them, relative to a product of
two bf16 matrices of 8,192 rows in the same run. Extraction uses the embedded network with two views; it runs in
turns with the network alone on pixels on the device. CPU cores decode the photos and limit the speed, so
extraction has no limit to meet.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from extraction import as_dataset, write_jpegs
from ratios import Ratio, add_check, report
from torch.utils.flop_counter import FlopCounterMode
from tuning import matrix_rate, our_rate, photographs, random_backbone

from fiveshot.backbones import BackboneSpec, load_embedder, torch_embedder
from fiveshot.data import ArraySource, ImageDataset, ImageSplit
from fiveshot.features import ExtractionSettings, bare_rate, extract

DEVICE = torch.device("cuda")
MODEL = "vit_base_patch16_224"


def forward(options: argparse.Namespace) -> list[Ratio]:
    rate = matrix_rate(DEVICE)
    backbone = random_backbone(MODEL, DEVICE)
    with FlopCounterMode(display=False) as counter:
        backbone.features(torch.zeros(2, 3, 224, 224, device=DEVICE))
    operations = counter.get_total_flops() / 2
    rows = []
    for runtime, must in (("torch", 0), ("compiled", 55)):
        embedder = torch_embedder(backbone, BackboneSpec(runtime=runtime, precision="bf16"))
        images = embedder.preprocessing.views * bare_rate(embedder, batch_size=256, seconds=options.seconds)
        share = 100 * images * operations / rate
        print(
            f"{MODEL}, {runtime}: {images:,.0f} images/s, {share:.1f} % of {rate / 1e12:.0f} TFLOP/s", flush=True
        )
        if must:
            rows.append(Ratio("forward pass of ViT-B/16, share of the matrix rate", share, must, "%"))
    return rows


def shares(name: str, data: ImageDataset, options: argparse.Namespace) -> None:
    """Print the speed of extraction into a file, and of the network alone."""
    embedder = load_embedder(BackboneSpec(device="cuda", precision="bf16"))
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.rounds + 1):
            bare = bare_rate(embedder, seconds=options.seconds)
            done = extract(data, embedder, ExtractionSettings(), out=Path(folder) / f"{turn}.safetensors")
            decode, forward = (1e3 * s / done.computed for s in (done.stages.decode, done.stages.forward))
            print(
                f"{name}: {done.rate:,.0f} of {bare:,.0f} images/s; ms an image on one thread: "
                f"decode {decode:.3f}, forward {forward:.3f}",
                flush=True,
            )


def files(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources = write_jpegs(Path(folder), 300, archive=None)
        data = as_dataset(sources, options.images // len(sources))
        shares("JPEG files", data, options)


def arrays(options: argparse.Namespace) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (options.images, 32, 32, 3), np.uint8)
    images = tuple(ArraySource(array, f"{number}") for number, array in enumerate(pixels))
    none = ImageSplit((), np.zeros(0, np.int64))
    data = ImageDataset("arrays", ("all",), ImageSplit(images, np.zeros(len(images), np.int64)), none)
    shares("an array of 32 px", data, options)


def tuning(options: argparse.Namespace) -> list[Ratio]:
    rate = matrix_rate(DEVICE)
    wanted = argparse.Namespace(model=MODEL, compile=True, graph=True, workers=None, steps=options.steps)
    split = photographs(1536)
    rows = []
    for batch in (64, 256):
        found = our_rate(split, wanted, DEVICE, batch=batch)
        share = 100 * found["tflop_s"] * 1e12 / rate
        parts = "  ".join(f"{key} {value:.2f}" for key, value in found["milliseconds"].items())
        print(f"tuning, batch {batch}: {found['images_s']:,.0f} images/s, {share:.1f} %; ms: {parts}", flush=True)
        rows.append(Ratio(f"tuning step of ViT-B/16, batch {batch}, share of the matrix rate", share, 50, "%"))
    return rows


PRINTED: dict[str, Callable[[argparse.Namespace], None]] = {"files": files, "arrays": arrays}
RATIOS: dict[str, Callable[[argparse.Namespace], list[Ratio]]] = {"forward": forward, "tuning": tuning}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*PRINTED, *RATIOS], default=[*PRINTED, *RATIOS])
    parser.add_argument("--images", type=int, default=48_000, help="images extracted in a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, after one that does not count")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of each bare measurement")
    parser.add_argument("--steps", type=int, default=40, help="of tuning")
    add_check(parser)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}", flush=True)
    for name in PRINTED:
        if name in options.only:
            PRINTED[name](options)
    rows = [row for name in RATIOS if name in options.only for row in RATIOS[name](options)]
    sys.exit(report(rows, check=options.check))


if __name__ == "__main__":
    main()

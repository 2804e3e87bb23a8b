"""Compare the throughput of the tuning step with a plain loop like that of the published code, on one device.

The plain loop: float32, eager, batch 48; separate projections for query, key and value; attention written out;
random crops by worker processes on the CPU. Ours: all images are decoded once, kept on the device and cropped
there; bf16, one compiled and recorded step. Both train the same adapters in the same frozen ViT of random weights.

    python benchmarks/tuning.py                                        # ViT-B/16 at 224 px on CUDA
    python benchmarks/tuning.py --device cpu --model test_vit --images 64 --steps 2   # only to see that it runs

Reported: images per second of both, their ratio, where a step's time goes, and the share of the matrix rate that
is measured in the same run (operations as PyTorch counts them: matrix products, convolutions and attention).
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode
from torchvision import transforms

from fiveshot.backbones import Backbone, Preprocessing, attach_adapters
from fiveshot.data import ImageSplit
from fiveshot.tuning import TUNE_RECIPES, Execution, open_material
from fiveshot.tuning._trainer import Batch, CosineClassifier, Trainer, make_network, tuning_loss
from fiveshot.tuning.execution import arithmetic

CLASSES = 100
PHOTOGRAPH = (500, 375)  # width and height of a typical photograph of the benchmarks


@dataclass(frozen=True)
class BytesSource:
    """A JPEG file in memory, so that decoding is measured and not the disk."""

    content: bytes
    name: str

    def read(self) -> bytes:
        return self.content


def photographs(count: int, *, seed: int = 0) -> ImageSplit:
    """Return smooth random JPEG images, which compress like photographs."""
    rng = np.random.default_rng(seed)
    sources = []
    for row in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        buffer = io.BytesIO()
        coarse.resize(PHOTOGRAPH, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        sources.append(BytesSource(buffer.getvalue(), f"{row}.jpg"))
    return ImageSplit(tuple(sources), np.arange(count) % min(CLASSES, count // 2))


def random_backbone(model: str, device: torch.device) -> Backbone:
    torch.manual_seed(0)
    vit = timm.create_model(model, num_classes=0).requires_grad_(False).eval().to(device)
    side = vit.patch_embed.img_size[0]
    return Backbone(vit, model, Preprocessing(size=side, resize=round(side * 256 / 224)))


class SeparateAttention(nn.Module):
    """Attention as in the published code: three projections, the matrix of all pairs, a softmax."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        width = attention.proj.in_features
        self.heads, self.scale = attention.num_heads, attention.scale
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        for part, weight, bias in zip(
            (self.q, self.k, self.v), attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3), strict=True
        ):
            part.weight.data, part.bias.data = weight.detach().clone(), bias.detach().clone()
        self.proj = attention.proj

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        n, tokens, width = x.shape

        def split(y: Tensor) -> Tensor:
            return y.view(n, tokens, self.heads, -1).transpose(1, 2).reshape(n * self.heads, tokens, -1)

        q, k, v = split(self.q(x) * self.scale), split(self.k(x)), split(self.v(x))
        mixed = torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1), v)
        joined = mixed.view(n, self.heads, tokens, -1).transpose(1, 2).reshape(n, tokens, width)
        projected: Tensor = self.proj(joined)
        return projected


class PlainImages(Dataset[tuple[Tensor, int]]):
    def __init__(self, split: ImageSplit, side: int) -> None:
        self.split = split
        steps = [
            transforms.RandomResizedCrop(side),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5,) * 3, (0.5,) * 3),
        ]
        self.transform = transforms.Compose(steps)

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        image = Image.open(io.BytesIO(self.split.images[row].read())).convert("RGB")
        return self.transform(image), int(self.split.labels[row])


def plain_rate(split: ImageSplit, args: argparse.Namespace, device: torch.device) -> dict[str, float]:
    """Return images per second of the plain loop, with and without waiting for images."""
    recipe = TUNE_RECIPES["paper"]
    backbone = random_backbone(args.model, device)
    for block in backbone.model.blocks:  # type: ignore[union-attr]
        block.attn = SeparateAttention(block.attn).to(device)
    attach_adapters(backbone.model, seed=0)
    head = CosineClassifier(
        backbone.width, CLASSES, scale=1.0, learnable=True, generator=torch.Generator().manual_seed(0)
    ).to(device)
    network = nn.Sequential(backbone.model, head).train()
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    loader = DataLoader(
        PlainImages(split, backbone.preprocessing.size),
        batch_size=args.plain_batch,
        shuffle=True,
        drop_last=True,
        num_workers=args.plain_workers,
        persistent_workers=args.plain_workers > 0,
    )

    def step(images: Tensor, labels: Tensor) -> None:
        loss = nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()  # the published loop adds up losses after every step

    def forever() -> Iterator[Any]:
        while True:
            yield from loader

    batches = forever()
    images, labels = next(batches)
    step_seconds = timed(lambda: step(images, labels), device, repeats=args.steps)
    for _ in range(2):
        step(*next(batches))
    seconds = timed(lambda: step(*next(batches)), device, repeats=args.steps, warm_up=0)
    return {"images_s": args.plain_batch / seconds, "step_only_images_s": args.plain_batch / step_seconds}


def our_rate(split: ImageSplit, args: argparse.Namespace, device: torch.device, *, batch: int) -> dict[str, Any]:
    """Return images per second of whole epochs, and where the time of a step goes."""
    backbone = random_backbone(args.model, device)
    wanted = Execution(data="device", compile=args.compile, cuda_graph=args.graph, workers=args.workers)
    execution = wanted.resolved(device, images=0)
    began = time.perf_counter()
    material = open_material(backbone, split, execution)
    decoding = time.perf_counter() - began
    recipe = TUNE_RECIPES["ours"].replace(batch_size=batch)
    rows = np.arange(len(split) - len(split) % batch)
    network = make_network(backbone, CLASSES, recipe, precision=execution.precision)
    trainer = Trainer(
        network,
        material.views,
        rows,
        split.labels[rows],
        recipe=recipe,
        execution=execution,
    )
    began = time.perf_counter()
    trainer.epoch(0)
    first = time.perf_counter() - began
    epochs = max(1, -(-args.steps * batch // len(rows)))
    began = time.perf_counter()
    for number in range(1, epochs + 1):
        trainer.epoch(number)
    seconds = (time.perf_counter() - began) / (epochs * len(rows))
    parts = breakdown(trainer, args, batch)
    flops = counted_operations(trainer, args, batch)
    return {
        "images_s": 1 / seconds,
        "decode_images_s": len(split) / decoding,
        "first_epoch_s": first,
        "milliseconds": parts,
        "gflop_per_image": flops / batch / 1e9,
        "tflop_s": flops / batch / seconds / 1e12,
    }


def breakdown(trainer: Trainer, args: argparse.Namespace, batch: int) -> dict[str, float]:
    """Return milliseconds per batch: images, forward, backward, update, and the real step."""
    views = next(trainer.batches(0))[0]
    step = getattr(trainer.step, "step", trainer.step)
    scale = trainer.network.classifier.scale

    def loss() -> Tensor:
        cosines = step.whole(views.images)
        return tuning_loss(cosines, scale, views, trainer.recipe)

    batches = iter(trainer.batches(0))

    def next_views() -> None:
        nonlocal batches
        if next(batches, None) is None:
            batches = iter(trainer.batches(0))

    def backward() -> None:
        trainer.optimizer.zero_grad(set_to_none=True)
        loss().backward()

    with arithmetic(trainer.execution, trainer.device):
        times = {
            name: 1000 * timed(call, trainer.device, repeats=args.steps)
            for name, call in (
                ("augment", next_views),
                ("forward", loss),
                ("forward_backward", backward),
                ("update", trainer.optimizer.step),
                ("whole_step", lambda: trainer.step(views)),
            )
        }
    times["backward"] = times.pop("forward_backward") - times["forward"]
    return times


def counted_operations(trainer: Trainer, args: argparse.Namespace, batch: int) -> float:
    """Return the operations of one step of the plain network, forward and backward, as PyTorch counts them."""
    device = trainer.device
    plain = make_network(random_backbone(args.model, device), CLASSES, trainer.recipe)
    images = torch.randn_like(next(trainer.batches(0))[0].images, dtype=torch.float32)
    labels = torch.zeros(batch, dtype=torch.long, device=device)
    with FlopCounterMode(display=False) as counter:
        tuning_loss(plain(images), plain.classifier.scale, Batch(images, labels), trainer.recipe).backward()
    return float(counter.get_total_flops())


def matrix_rate(device: torch.device) -> float:
    """Return the operations per second of a large product of random matrices: bf16 on CUDA, else float32."""
    side, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (512, torch.float32)
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / timed(lambda: a @ b, device, repeats=20)


def timed(call: Callable[[], Any], device: torch.device, *, repeats: int, warm_up: int = 3) -> float:
    """Return the seconds of a call, including the device's work."""
    for _ in range(warm_up):
        call()
    synchronise(device)
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronise(device)
    return (time.perf_counter() - began) / repeats


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="vit_base_patch16_224")
    parser.add_argument("--images", type=int, default=1536)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batches", default="48,64,256", help="batch sizes to run ours with")
    parser.add_argument("--plain-batch", type=int, default=48)
    parser.add_argument("--plain-workers", type=int, default=8)
    parser.add_argument("--workers", type=int, help="processes that decode, for ours")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    device = torch.device(args.device)
    args.compile = device.type == "cuda" if args.compile is None else args.compile
    split = photographs(args.images)
    rate = matrix_rate(device)
    plain = plain_rate(split, args, device)
    ours = {int(b): our_rate(split, args, device, batch=int(b)) for b in args.batches.split(",")}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    if args.json:
        print(
            json.dumps({"device": name, "model": args.model, "matrix_flop_s": rate, "plain": plain, "ours": ours})
        )
        return
    print(f"{args.model} on {name}; matrix rate {rate / 1e12:.3g} TFLOP/s")
    print(
        f"plain   batch {args.plain_batch:4}  {plain['images_s']:8.1f} images/s "
        f"({plain['step_only_images_s']:.1f} with the images at hand)"
    )
    for batch, found in ours.items():
        parts = "  ".join(f"{key} {value:.2f}" for key, value in found["milliseconds"].items())
        ratio = found["images_s"] / plain["images_s"]
        print(
            f"ours    batch {batch:4}  {found['images_s']:8.1f} images/s  {ratio:.1f}x  "
            f"{100 * found['tflop_s'] * 1e12 / rate:.1f} % of the matrix rate "
            f"({found['gflop_per_image']:.1f} GFLOP an image)\n"
            f"        ms a batch: {parts}; decoded once at {found['decode_images_s']:.0f} images/s; "
            f"first epoch {found['first_epoch_s']:.1f} s"
        )


if __name__ == "__main__":
    main()

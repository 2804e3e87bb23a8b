"""Score tuning recipes on base classes that play new ones.

Images are decoded once and stay on the device; every variant is then trained from scratch. The score uses only
training images of the base classes: in each fold some of these classes are left out of tuning, learned from 5
shots each, and recognized among all base classes by nearest mean. No test image is read. make_packs.py tunes with
the chosen recipe.

    python benchmarks/adapter_search.py --data DIR --variants variants.json --starts cub200/big,cub200/small

DIR holds train.tar. A variant is {"name", "recipe": "ours", "set": {...}, "grid": {...}}: the values of "set"
replace the recipe's, and every combination of the lists in "grid" is another variant. "epochs": 0 is no adapter,
"stop_after": k stops after k epochs. "trains" is "adapters" unless given; "norms" trains the scales and shifts of
all norms and all biases instead, "both" trains both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fiveshot.backbones import Backbone, BackboneSpec, detach_adapters, load_backbone
from fiveshot.benchmark import get_protocol
from fiveshot.data import ImageDataset, ImageSplit, open_dataset, open_images
from fiveshot.tuning import (
    Execution,
    Fold,
    Material,
    TuneRecipe,
    TuningRun,
    few_shot_score,
    get_recipe,
    open_material,
)
from fiveshot.tuning._trainer import Trainer
from fiveshot.tuning.material import class_folds, fold_without, hold_out_rows


@dataclass(frozen=True)
class Variant:
    name: str
    recipe: TuneRecipe
    epochs: int | None = None  # stop earlier; 0: no adapter
    trains: str = "adapters"


def read_variants(path: Path) -> list[Variant]:
    variants = []
    for entry in json.loads(path.read_text()):
        grid = entry.get("grid", {})
        for values in itertools.product(*grid.values()):
            changed = dict(zip(grid, values, strict=True))
            settings = {**entry.get("set", {}), **changed}
            epochs = settings.pop("stop_after", None)
            if settings.get("epochs") == 0:
                epochs = settings.pop("epochs")
            label = " ".join(
                [entry.get("name", entry.get("recipe", "ours")), *(f"{k}={v}" for k, v in changed.items())]
            )
            recipe = get_recipe(entry.get("recipe", "ours")).replace(**settings)
            variants.append(Variant(label, recipe, epochs, entry.get("trains", "adapters")))
    return variants


def open_birds(folder: Path, *, test: bool) -> ImageDataset:
    if (folder / "test.tar").is_file() or (folder / "test").is_dir():
        return open_dataset("cub200", folder, seed=0)
    if test:
        raise SystemExit(f"no {folder / 'test.tar'}")
    # Without a test split open_images holds some images out. Here all images are for training.
    found = open_images(folder, seed=0)
    images = found.train.images + found.test.images
    labels = np.concatenate([found.train.labels, found.test.labels])
    order = sorted(range(len(images)), key=lambda row: images[row].name)
    return replace(found, train=ImageSplit(images, labels).select(order), test=ImageSplit((), labels[:0]))


def trained(material: Material, fold: Fold, variant: Variant, *, order: int = 0) -> TuningRun:
    """Train from the first weights of the recipe's seed; another ``order`` gives other batches and crops."""
    run = TuningRun(material, fold, variant.recipe)
    if variant.trains != "adapters":
        run.trainer = with_norms(run.trainer, adapters_too=variant.trains == "both")
    run.trainer.recipe = variant.recipe.replace(seed=variant.recipe.seed + 1000 * order)
    epochs = variant.recipe.epochs if variant.epochs is None else variant.epochs
    for number in range(epochs):
        run.trainer.epoch(number)
    return run


def merge(states: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return the mean of the tensors of adapters that were trained from the same first weights."""
    return {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}


def with_norms(trainer: Trainer, *, adapters_too: bool) -> Trainer:
    """Return a trainer that also trains the norms and biases of the network, or only these."""
    for name, module in trainer.network.model.named_modules():
        is_norm = "norm" in type(module).__name__.lower()
        for key, parameter in module.named_parameters(recurse=False):
            frozen_adapter = ".adapter." in name and not adapters_too
            parameter.requires_grad = not frozen_adapter and (parameter.requires_grad or is_norm or key == "bias")
    return Trainer(
        trainer.network,
        trainer.views,
        trainer.rows,
        trainer.labels.cpu().numpy(),
        recipe=trainer.recipe,
        execution=trainer.execution,
    )


def whitened(base: torch.Tensor, labels: np.ndarray, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return features in which the base classes' common covariance, shrunk by a tenth, is the unit matrix."""
    index = torch.from_numpy(np.unique(labels, return_inverse=True)[1]).to(base.device)
    base64 = base.double()
    members = torch.nn.functional.one_hot(index).double()
    means = members.T @ base64 / members.sum(dim=0)[:, None]
    centred = base64 - means[index]
    covariance = centred.T @ centred / len(base)
    shrunk = 0.9 * covariance + 0.1 * covariance.diagonal().mean() * torch.eye(len(covariance), device=base.device)
    inverse = torch.linalg.inv(torch.linalg.cholesky(shrunk)).T
    return tuple((x.double() @ inverse).float() for x in (base, *others))


def fold_scores(run: TuningRun, labels: np.ndarray, fold: Fold, *, draws: int, seed: int) -> dict[str, float]:
    base, new, held = (run.trainer.features(rows) for rows in (fold.train, fold.new, fold.held_out))
    scores = {}
    for kind, (b, n, h) in {
        "ncm": (base, new, held),
        "lda": whitened(base, labels[fold.train], new, held),
    }.items():
        score = few_shot_score(
            b,
            labels[fold.train],
            n,
            labels[fold.new],
            h,
            labels[fold.held_out],
            draws=draws,
            rng=np.random.default_rng([seed, 5]),
        )
        scores |= {f"{kind}_new": score.new, f"{kind}_old": score.old or 0.0, f"{kind}_hm": score.harmonic}
    # The measure of the model card: only new classes, without base classes.
    alone = few_shot_score(
        base,
        labels[fold.train],
        new,
        labels[fold.new],
        held[:0],
        labels[:0],
        draws=draws,
        rng=np.random.default_rng([seed, 5]),
        rivals=False,
    )
    return {**scores, "ncm_alone": alone.new}


def score(material: Material, rows: np.ndarray, variant: Variant, args: argparse.Namespace) -> dict[str, float]:
    """Return the mean scores over the folds, and their standard error over folds and seeds."""
    labels = material.labels
    collected = []
    for seed in range(args.seeds):
        part = labels[rows]
        train, held = (rows[i] for i in hold_out_rows(part, share=0.1, seed=seed))
        folds = class_folds(part, share=args.share, folds=args.folds, least_images=6, seed=seed)
        for classes in folds:
            whole = fold_without(labels, Fold.of(train, held), classes)
            seeded = replace(variant, recipe=variant.recipe.replace(seed=seed))
            with left_as_it_was(material.backbone):
                run = trained(material, whole, seeded)
                collected.append(fold_scores(run, labels, whole, draws=args.draws, seed=seed))
                del run
    return {key: float(np.mean([one[key] for one in collected])) for key in collected[0]}


class left_as_it_was:  # noqa: N801
    """Remove adapters at the end, and restore the weights."""

    def __init__(self, backbone: Backbone) -> None:
        self.model = backbone.model

    def __enter__(self) -> None:
        self.state = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def __exit__(self, *error: object) -> None:
        detach_adapters(self.model)
        self.model.load_state_dict(self.state)


def line(name: str, start: str, values: dict[str, float], seconds: float) -> str:
    shown = "  ".join(f"{key} {100 * value:5.2f}" for key, value in values.items())
    return f"{start:12} {name:44} {shown}  {seconds:6.1f} s"


def starts(names: str, dataset: ImageDataset) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for name in names.split(","):
        classes = np.array(get_protocol(name).session_classes[0])
        yield name, classes, np.flatnonzero(np.isin(dataset.train.labels, classes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--variants", type=Path, required=True)
    parser.add_argument("--starts", default="cub200/big,cub200/small")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backbone")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--workers", type=int)
    parser.add_argument(
        "--shard", default="0/1", help="i/n: every n-th variant from the i-th on, for several processes"
    )
    parser.add_argument("--no-graph", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--log", type=Path, help="also append one JSON object per line to this file")
    args = parser.parse_args()
    shard, shards = map(int, args.shard.split("/"))
    variants = read_variants(args.variants)[shard::shards]
    search(args, variants)


def search(args: argparse.Namespace, variants: list[Variant]) -> None:
    began = time.perf_counter()
    dataset = open_birds(args.data, test=False)
    named = {"name": args.backbone} if args.backbone else {}
    backbone = load_backbone(BackboneSpec(**named, weights=args.weights, device=args.device))
    wanted = Execution(data="device", cuda_graph=not args.no_graph, compile=args.compile, workers=args.workers)
    execution = wanted.resolved(backbone.device, images=0)
    material = open_material(backbone, dataset.train, execution)
    print(f"{len(dataset.train)} images decoded in {time.perf_counter() - began:.1f} s", flush=True)
    for variant in variants:
        for start, _, rows in starts(args.starts, dataset):
            began = time.perf_counter()
            values = score(material, rows, variant, args)
            seconds = time.perf_counter() - began
            print(line(variant.name, start, values, seconds), flush=True)
            if args.log:
                entry = {
                    "name": variant.name,
                    "start": start,
                    "seconds": seconds,
                    **values,
                    "recipe": variant.recipe.to_json(),
                    "epochs": variant.epochs,
                }
                with args.log.open("a") as log:
                    log.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()

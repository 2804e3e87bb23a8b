"""Tune the embedded adapters, extract the embedded feature packs, and print the gain of adapters and views.

    python benchmarks/make_packs.py --data DIR --list images.txt --vit VIT.safetensors --save OUT   # one GPU

DIR holds train.tar and test.tar of CUB-200 (short side 160 px); rows get the order and the names of the official
list. Adapters are tuned only on training photos of the base classes of a protocol: for the embedded network by the
recipe `ours` (docs/how-to/backbone.md says how it was chosen), for ViT-Ti/16 by the paper's. VIT.safetensors has
the weights of timm's vit_tiny_patch16_224.augreg_in21k_ft_in1k, which the package does not contain. Features are
float32. Each photo is decoded once, to the four views of `fiveshot.data.VIEWS`; one, two or four of them are
averaged. The packs have two views for the embedded network (its default) and one for ViT-Ti/16 (as in the paper).
The table has the default head, five draws, on the test photos.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from adapter_search import Variant, left_as_it_was, merge, open_birds, starts, trained

from fiveshot.backbones import (
    Backbone,
    BackboneSpec,
    Preprocessing,
    adapter_state,
    detach_adapters,
    load_backbone,
    save_adapter,
    torch_embedder,
)
from fiveshot.backbones.backbone import normalize_tensor
from fiveshot.benchmark import get_protocol, run, summarize_runs
from fiveshot.data import VIEWS, ImageDataset, ImageSource, ImageSplit, decode
from fiveshot.features import FeatureSet, Provenance
from fiveshot.tuning import Execution, Fold, get_recipe, open_material

SPAWN = multiprocessing.get_context("spawn")  # a process forked from one with PyTorch's threads may hang
MOST = 4  # views; the other choices are parts of these
SHOWN = "mean A_HM / last A_HM / A_last / A_inc / ECE"
STARTS = ("cub200/big", "cub200/small")
VIT = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--list", type=Path, required=True, help="the official images.txt")
    parser.add_argument("--vit", type=Path, help="weights of ViT-Ti/16; without them its packs are not made")
    parser.add_argument("--save", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, help="only the first N images of each split, for a trial")
    parser.add_argument("--epochs", type=int, help="instead of the recipes' epochs, for a trial")
    parser.add_argument("--merged", type=int, default=1, help="adapters to train in different orders, and average")
    given = parser.parse_args()
    given.save.mkdir(parents=True, exist_ok=True)
    birds = open_birds(given.data, test=True)
    birds = replace(birds, train=listed(birds.train, given.list), test=listed(birds.test, given.list))
    if given.images:
        birds = replace(
            birds, train=birds.train.select(range(given.images)), test=birds.test.select(range(given.images))
        )
    make(given, birds, BackboneSpec(device=given.device, views=MOST), "cub200", "ours", kept=2)
    if given.vit is not None:
        vit = BackboneSpec(VIT, weights=given.vit, device=given.device, views=MOST)
        make(given, birds, vit, "cub200-vit", "paper", kept=1)


def make(
    given: argparse.Namespace, birds: ImageDataset, spec: BackboneSpec, name: str, recipe: str, *, kept: int
) -> None:
    """Make the packs of one network: without an adapter, and with one for each start."""
    backbone, names = load_backbone(spec), official(given.list)
    began = time.perf_counter()
    pixels = {split: seen(getattr(birds, split).images, backbone.preprocessing) for split in ("train", "test")}
    print(f"photos decoded in {time.perf_counter() - began:.0f} s", flush=True)
    plain = keep(given.save / f"{name}.safetensors", backbone, birds, names, pixels, kept)
    evaluate(plain, f"{name} without adapter", STARTS)
    for start, _, rows in starts(",".join(STARTS), birds):
        stem = f"{name}-{start.partition('/')[2]}"
        with left_as_it_was(backbone):
            how = Variant(recipe, get_recipe(recipe), given.epochs)
            tune(given.save / f"adapter-{stem}.safetensors", backbone, birds, start, rows, how, given.merged)
            sets = keep(given.save / f"{stem}.safetensors", backbone, birds, names, pixels, kept)
            evaluate(sets, f"{name} {recipe}", (start,))


def tune(
    path: Path,
    backbone: Backbone,
    birds: ImageDataset,
    start: str,
    rows: np.ndarray,
    how: Variant,
    merged: int = 1,
) -> None:
    """Tune an adapter on all training photographs of the base classes, and save it."""
    execution = Execution(data="device").resolved(backbone.device, images=len(birds.train))
    material = open_material(backbone, birds.train, execution)
    states = []
    for order in range(merged):
        detach_adapters(backbone.model)
        trained(material, Fold.of(rows, rows[:0]), how, order=order)
        states.append(adapter_state(backbone.model))
    backbone.model.load_state_dict(merge(states), strict=False)
    backbone.model.requires_grad_(False).eval()
    meta = {"recipe": how.recipe.to_json(), "start": start, "epochs": how.epochs, "held_out": 0.0}
    save_adapter(path, backbone, meta=meta | ({"merged": merged} if merged > 1 else {}))


def listed(split: ImageSplit, file: Path) -> ImageSplit:
    """Return the photos in the order of the official list."""
    place = {Path(name).stem: row for row, name in enumerate(official(file))}
    return split.select(sorted(range(len(split)), key=lambda row: place[Path(split.images[row].name).stem]))


def official(file: Path) -> list[str]:
    """Return the official names of all photos, in their order."""
    return [line.split()[1] for line in file.read_text().splitlines()]


def seen(images: tuple[ImageSource, ...], preprocessing: Preprocessing) -> np.ndarray:
    """Return the pixels (n, views, 3, size, size) of all photos."""
    with ProcessPoolExecutor(os.cpu_count(), SPAWN) as pool:
        return np.stack(list(pool.map(partial(one_seen, preprocessing), images, chunksize=32)))


def one_seen(preprocessing: Preprocessing, image: ImageSource) -> np.ndarray:
    return preprocessing.pixels(decode(image))


def keep(
    path: Path,
    backbone: Backbone,
    birds: ImageDataset,
    names: list[str],
    pixels: dict[str, np.ndarray],
    kept: int,
) -> dict[int, FeatureSet]:
    """Write the pack, and return the features of one, two and four views."""
    named = {Path(name).stem: name for name in names}
    vectors = {name: view_vectors(backbone, seen) for name, seen in pixels.items()}
    sets = {}
    for views, names in VIEWS.items():
        used = [VIEWS[MOST].index(name) for name in names]
        prepared = replace(backbone, preprocessing=replace(backbone.preprocessing, views=views))
        identity = torch_embedder(prepared, BackboneSpec(precision="float32")).identity()
        sets[views] = FeatureSet(
            vectors["train"][:, used].mean(axis=1),
            birds.train.labels,
            vectors["test"][:, used].mean(axis=1),
            birds.test.labels,
            birds.class_names,
            replace(Provenance.of("cub200", identity), note="photographs with a short side of 160 px"),
            *(tuple(named[Path(name).stem] for name in split.names) for split in (birds.train, birds.test)),
        )
    sets[kept].save(path, compact=True)
    return sets | {kept: FeatureSet.load(path)}


def view_vectors(backbone: Backbone, pixels: np.ndarray) -> np.ndarray:
    """Return the vectors (n, views, width) of each view."""
    flat = pixels.reshape(-1, *pixels.shape[2:])
    parts = []
    for start in range(0, len(flat), 512):
        images = torch.from_numpy(flat[start : start + 512]).to(backbone.device)
        parts.append(backbone.features(normalize_tensor(images, backbone.preprocessing)).cpu().numpy())
    return np.concatenate(parts).reshape(*pixels.shape[:2], -1)


def evaluate(sets: dict[int, FeatureSet], adapter: str, protocols: tuple[str, ...]) -> None:
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 1) // 2), SPAWN) as pool:
        for name in protocols:
            for views, features in sets.items():
                draws = [get_protocol(name).replace(shot_seed=seed) for seed in range(5)]
                try:
                    records = list(pool.map(run, draws, [features] * 5, ["unbiased-lda"] * 5))
                except Exception as error:  # some of the images do not fit a protocol
                    print(f"{name}, {adapter}, {views} views: not evaluated ({error})", flush=True)
                    continue
                found = summarize_runs(records)
                spreads = (found.a_hm_mean, found.a_hm[-1], found.a_last, found.a_inc, found.calibration[-1])
                shown = " / ".join(f"{100 * spread.mean:.1f}" for spread in spreads if spread is not None)
                print(f"{name}, {adapter}, {views} views: {SHOWN} {shown}", flush=True)


if __name__ == "__main__":
    main()

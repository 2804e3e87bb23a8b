"""Which two views of a photo say most together, and what views cost.

    python benchmarks/views.py --data DIR           # one GPU: three minutes
    python benchmarks/views.py --cost --check       # milliseconds of a photo on one core of this CPU

DIR holds train.tar of CUB-200 (short side 160 px). Views are chosen on training photographs of base classes alone.
Base classes are played as new ones (five shots each, the others with all photographs but ten, which are asked
for);
and 20 of them are told apart from five shots each without a base. Letters: c center crop, w whole photo, i
inner three quarters of the center crop, m mirrored. What the choice gives on test photographs is printed by
make_packs.py.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from adapter_search import open_birds
from make_packs import SPAWN, view_vectors
from ratios import Ratio, add_check, report

from fiveshot.backbones import BackboneSpec, load_backbone, load_embedder
from fiveshot.benchmark import get_protocol
from fiveshot.data import ImageSource, decode
from fiveshot.data.reduction import Squares
from fiveshot.heads import make_head

NAMES = ("c", "mc", "w", "mw", "i", "mi")
SHOTS, ASKED = 5, 10
BEFORE = 1.06  # what one view costs, in forward passes of the network before it had views and a pooled map
MOST = {2: 2.2, 4: 4.2}  # what views may cost, in such passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--device", default="auto")
    add_check(parser)
    given = parser.parse_args()
    if given.data:
        compare(given.data, given.device)
    if given.cost:
        sys.exit(report(cost(), check=given.check))


def cost(rounds: int = 15) -> list[Ratio]:
    """Measure the forward pass of one photo with one, two and four views by turns, in processor time.

    Two views may cost 2.2 and four 4.2 of the pass that the network took before it had views and a pooled map;
    one view took 1.06 of that.
    """
    embedders = {views: load_embedder(BackboneSpec(device="cpu", views=views)) for views in (1, 2, 4)}
    rng = np.random.default_rng(0)
    photos = {v: rng.integers(0, 256, (1, *e.preprocessing.shape), np.uint8) for v, e in embedders.items()}
    seconds: dict[int, list[float]] = {views: [] for views in embedders}
    for _ in range(rounds):
        for views, embedder in embedders.items():
            began = time.process_time()
            embedder.features(photos[views])
            seconds[views].append(time.process_time() - began)
    fastest = {views: min(taken) for views, taken in seconds.items()}
    for views, taken in fastest.items():
        print(f"{views} views: {1000 * taken:.0f} ms, {taken / fastest[1]:.2f} x one view")
    return [
        Ratio(f"{views} views beside one", fastest[views] / fastest[1], most / BEFORE, at_most=True)
        for views, most in MOST.items()
    ]


def compare(data: Path, device: str) -> None:
    birds = open_birds(data, test=False)
    backbone = load_backbone(BackboneSpec(device=device, views=1))
    with ProcessPoolExecutor(os.cpu_count(), SPAWN) as pool:
        pixels = np.stack(list(pool.map(six_views, birds.train.images, chunksize=32)))
    vectors, labels = view_vectors(backbone, pixels), birds.train.labels
    big, small = (get_protocol(f"cub200/{start}").session_classes[0] for start in ("big", "small"))
    print("| views | big: A_HM, accuracy | small: A_HM, accuracy | no base | mean |\n|---|---|---|---|---|")
    for views in [(0,), *itertools.combinations(range(len(NAMES)), 2)]:
        X = torch.from_numpy(vectors[:, list(views)].mean(axis=1)).to(backbone.device)
        found = [as_new(X, labels, big, folds=5), as_new(X, labels, small, folds=4)]
        alone = without_base(X, labels, big)
        mean = (np.mean(found[0]) + np.mean(found[1]) + alone) / 3
        cells = [f"{hm:.1f}, {accuracy:.1f}" for hm, accuracy in found]
        print(
            f"| {'+'.join(NAMES[v] for v in views)} | {' | '.join(cells)} | {alone:.1f} | {mean:.2f} |", flush=True
        )


def six_views(image: ImageSource) -> np.ndarray:
    photo, squares = decode(image), []
    for part in ("center", "whole", "inner"):
        square = np.asarray(Squares(224, 256).part(photo, part)).transpose(2, 0, 1)
        squares += [square, square[:, :, ::-1]]
    return np.stack(squares)


def as_new(
    X: torch.Tensor, y: np.ndarray, base: tuple[int, ...], *, folds: int, seeds: int = 2
) -> tuple[float, float]:
    """Return A_HM and accuracy, averaged over folds of base classes that are played as new ones."""
    rng, found = np.random.default_rng(7), []
    order = {label: rng.permutation(np.flatnonzero(y == label)) for label in base}
    asked = np.concatenate([rows[:ASKED] for rows in order.values()])
    for fold, seed in itertools.product(range(folds), range(seeds)):
        new = base[fold::folds]
        train = np.concatenate([order[label][ASKED:] for label in base if label not in new])
        draw = np.random.default_rng(seed)
        shots = np.concatenate([draw.permutation(order[label][ASKED:])[:SHOTS] for label in new])
        head = make_head().partial_fit(X[train], y[train])
        right = np.asarray(head.partial_fit(X[shots], y[shots]).predict(X[asked])) == y[asked]
        is_new = np.isin(y[asked], new)
        old_new = right[~is_new].mean(), right[is_new].mean()
        found.append((200 * old_new[0] * old_new[1] / sum(old_new), 100 * right.mean()))
    harmonic, accuracy = np.mean(found, axis=0)
    return float(harmonic), float(accuracy)


def without_base(X: torch.Tensor, y: np.ndarray, base: tuple[int, ...], *, draws: int = 20) -> float:
    """Return the accuracy among 20 classes known from five shots each."""
    found = []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        rows = [rng.permutation(np.flatnonzero(y == label)) for label in rng.permutation(base)[:20]]
        shots, asked = (np.concatenate([own[part] for own in rows]) for part in (slice(SHOTS), slice(SHOTS, None)))
        head = make_head().partial_fit(X[shots], y[shots])
        found.append(100 * np.mean(np.asarray(head.predict(X[asked])) == y[asked]))
    return float(np.mean(found))


if __name__ == "__main__":
    main()

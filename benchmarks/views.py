"""Choose the best two views of a photo, and measure the cost of views.

    python benchmarks/views.py --data DIR           # one GPU: three minutes
    python benchmarks/views.py --cost --check       # milliseconds of a photo on one core of this CPU

DIR holds train.tar of CUB-200 (short side 160 px). Views are chosen only on training photos of base classes: some
base classes play new ones (five shots each; of the other classes all photos but ten are learned, and these ten are
predicted), and 20 of them are recognized from five shots each without a base. Letters: w is the whole photo,
squeezed; f, c, i and t are squares in its middle with sides of 1, 0.875, 0.656 and 0.5 of the short side; m is
mirrored. make_packs.py prints the result of the choice on test photos.
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
from adapter_search import open_birds
from make_packs import SPAWN, view_vectors
from PIL import Image
from ratios import Ratio, add_check, report

from fiveshot.backbones import BackboneSpec, load_backbone, load_embedder
from fiveshot.backbones.embedded import SIZE
from fiveshot.benchmark import get_protocol
from fiveshot.data import ImageSource, decode
from fiveshot.data.reduction import Squares
from fiveshot.heads import make_head
from fiveshot.work import one_thread

SHARES = {"f": 1.0, "c": 0.875, "i": 0.656, "t": 0.5}  # of the short side
NAMES = ("c", "w", "i", "f", "t", "mc", "mw", "mi")
FOUR = ("w", "i", "c", "mc")
SHOTS, ASKED = 5, 10
MOST = {2: 2.1, 4: 4.2}  # limits of the cost of views, in forward passes of one view


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
    """Measure the forward pass of one photo with one, two and four views in turns, in processor time."""
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
        Ratio(f"{views} views beside one", fastest[views] / fastest[1], most, at_most=True)
        for views, most in MOST.items()
    ]


def compare(data: Path, device: str) -> None:
    birds = open_birds(data, test=False)
    backbone = load_backbone(BackboneSpec(device=device, views=1))
    singles = [(place,) for place, name in enumerate(NAMES) if not name.startswith("m")]
    four = tuple(NAMES.index(name) for name in FOUR)
    choices = [*singles, *itertools.combinations(range(len(NAMES)), 2), four]
    with ProcessPoolExecutor(os.cpu_count(), SPAWN) as pool:
        pixels = np.stack(list(pool.map(all_views, birds.train.images, chunksize=32)))
        vectors = view_vectors(backbone, pixels)
        seen = [vectors[:, list(views)].mean(axis=1) for views in choices]
        print("| views | big: A_HM, accuracy | small: A_HM, accuracy | no base | mean |\n|---|---|---|---|---|")
        for views, row in zip(choices, pool.map(scores, seen, [birds.train.labels] * len(seen)), strict=True):
            print(f"| {'+'.join(NAMES[view] for view in views)} | {row} |", flush=True)


def scores(X: np.ndarray, labels: np.ndarray) -> str:
    """Return the cells of a row: base classes as new ones in two settings, without a base, and the mean."""
    big, small = (get_protocol(f"cub200/{start}").session_classes[0] for start in ("big", "small"))
    with one_thread():
        found = [as_new(X, labels, big, folds=5), as_new(X, labels, small, folds=4)]
        alone = without_base(X, labels, big)
    mean = (np.mean(found[0]) + np.mean(found[1]) + alone) / 3
    return " | ".join([*(f"{hm:.1f}, {accuracy:.1f}" for hm, accuracy in found), f"{alone:.1f}", f"{mean:.2f}"])


def all_views(image: ImageSource) -> np.ndarray:
    photo = decode(image)
    return np.stack([one_view(photo, name) for name in NAMES])


def one_view(photo: Image.Image, name: str) -> np.ndarray:
    kind = name.removeprefix("m")
    part = "whole" if kind == "w" else "center"
    square = Squares(SIZE, round(SIZE / SHARES.get(kind, 1.0))).part(photo, part)
    pixels = np.asarray(square).transpose(2, 0, 1)
    return pixels if name == kind else pixels[:, :, ::-1]


def as_new(
    X: np.ndarray, y: np.ndarray, base: tuple[int, ...], *, folds: int, seeds: int = 2
) -> tuple[float, float]:
    """Return A_HM and accuracy, averaged over folds of base classes that play new ones."""
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


def without_base(X: np.ndarray, y: np.ndarray, base: tuple[int, ...], *, draws: int = 20) -> float:
    """Return the accuracy among 20 classes that were learned from five shots each."""
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

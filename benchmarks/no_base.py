"""Compare the default head with scikit-learn's classifiers without a base: few classes, few photos.

    python benchmarks/no_base.py cub200=embedded:cub200 cifar100=cifar100.npz --kept baselines.json

A cell of the table is a number of classes and a number of photos of each class. Every draw takes other classes and
other official training photos, and predicts official test photos. An .npz of CIFAR-100 images is extracted first,
20 training and 30 test images of each class, into the cache of ``fiveshot extract``. ``--kept`` names a file for
the figures of the other classifiers.

The others have scikit-learn's defaults and unchanged features. The nearest mean is shown plain and centered, LDA
with scikit-learn's shrinkage (from five photos on) and with Ledoit and Wolf's over all classes. The last row of a
table is the lead of the default head over the best of the cell, with the standard error of the mean over draws;
``--classes 5 --shots 1 2 --draws 100`` measures some cells more precisely. The exit status is 1 if the default
head is more than 0.5 points below the best of them in a cell, or less than a point ahead of the best single one on
average.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from fiveshot.benchmark import open_features
from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.core.scorers import make_scorer
from fiveshot.data import ImageDataset
from fiveshot.data._official import read_cifar100
from fiveshot.features import FeatureSet, extracted_features, load_features

OURS = "default head"
WITHIN, AHEAD = 0.5, 1.0
MOST_ASKED = 1500
TRAINING, TEST = 20, 30  # images of each class of CIFAR-100


@dataclass(frozen=True)
class Grid:
    classes: tuple[int, ...] = (5, 20, 100)
    shots: tuple[int, ...] = (1, 2, 5, 10)
    draws: int = 10

    def cell(self, i: int, j: int) -> str:
        return f"{self.classes[i]} x {self.shots[j]}"


@dataclass(frozen=True)
class Draw:
    key: str
    X: NDArray[np.float32]
    y: NDArray[np.int64]
    asked: NDArray[np.float32]
    truth: NDArray[np.int64]


def opened(source: str) -> FeatureSet:
    if not source.endswith(".npz"):
        return open_features(source)
    images = read_cifar100(Path(source))
    if images is None:
        sys.exit(f"{source} holds no images of CIFAR-100")
    few = ImageDataset(
        "cifar100-few",
        images.class_names,
        images.train.select(first_of_each(images.train.labels, TRAINING)),
        images.test.select(first_of_each(images.test.labels, TEST)),
    )
    return load_features(extracted_features(few, seed=0))


def first_of_each(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return np.concatenate([np.flatnonzero(labels == label)[:count] for label in np.unique(labels)])


def draws(features: FeatureSet, n_classes: int, shots: int, count: int) -> Iterator[Draw]:
    train_x, test_x = (np.asarray(part, np.float32) for part in (features.train_x, features.test_x))
    for number in range(count):
        rng = np.random.default_rng([number, n_classes, shots])
        chosen = np.sort(rng.permutation(len(features.class_names))[:n_classes])
        rows = np.concatenate([rng.permutation(np.flatnonzero(features.train_y == c))[:shots] for c in chosen])
        asked = rng.permutation(np.flatnonzero(np.isin(features.test_y, chosen)))[:MOST_ASKED]
        y, truth = (np.searchsorted(chosen, labels) for labels in (features.train_y[rows], features.test_y[asked]))
        yield Draw(f"{n_classes}x{shots}/{number}", train_x[rows], y, test_x[asked], truth)


def unit(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def default_head(draw: Draw) -> NDArray[np.int64]:
    head = make_scorer()
    memory = Memory(NO_CLASSES, class_statistics(head.embed(draw.X), draw.y))
    return head.adopt(memory).classify(draw.asked)


def others(draw: Draw) -> dict[str, NDArray[np.int64]]:
    X, y, asked = draw.X.astype(np.float64), draw.y, draw.asked.astype(np.float64)
    labels = np.unique(y)
    means = np.stack([X[y == label].mean(axis=0) for label in labels])
    center = X.mean(axis=0)
    # Classifiers that treat all directions alike give the same answers in the span of the samples.
    basis = np.linalg.qr(X.T)[0]
    near, far = X @ basis, asked @ basis
    found = {
        "NCM": (unit(asked) @ unit(means).T).argmax(axis=1),
        "NCM, centered": (unit(asked - center) @ unit(means - center).T).argmax(axis=1),
        "ridge": RidgeClassifier().fit(near, y).predict(far),
        "logistic": LogisticRegression().fit(near, y).predict(far),
        "linear SVM": LinearSVC().fit(near, y).predict(far),
    }
    shots = len(X) // len(labels)
    if shots > 1:
        share = in_span(ledoit_wolf(X - means[y], assume_centered=True)[1], X.shape[1], near.shape[1])
        pooled = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=share)
        found["LDA, Ledoit-Wolf"] = pooled.fit(near, y).predict(far)
    if shots >= 5:
        auto = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        found["LDA, auto"] = auto.fit(X, y).predict(asked)
    return found


def in_span(share: float, n_features: int, n_span: int) -> float:
    """Return the shrinkage for n_span directions that equals ``share`` for n_features."""
    odds = share / max(1 - share, 1e-9) * n_span / n_features
    return odds / (1 + odds)


Kept = dict[str, dict[str, float]]


def accuracies(features: FeatureSet, name: str, grid: Grid, kept: Kept, keep: Path | None) -> dict[str, NDArray]:
    """Return the accuracy of each method in percent, (classes, shots, draws); NaN if it fails."""
    found: dict[str, NDArray] = {}
    for i, j in np.ndindex(len(grid.classes), len(grid.shots)):
        for number, draw in enumerate(draws(features, grid.classes[i], grid.shots[j], grid.draws)):
            key = f"{name}/{draw.key}/{hashlib.sha256(draw.X.tobytes()).hexdigest()[:16]}"
            if key not in kept:
                kept[key] = {who: right(answers, draw) for who, answers in others(draw).items()}
            for who, value in {OURS: right(default_head(draw), draw), **kept[key]}.items():
                nothing = np.full((len(grid.classes), len(grid.shots), grid.draws), np.nan)
                found.setdefault(who, nothing)[i, j, number] = value
        if keep:
            keep.write_text(json.dumps(kept))
    return found


def right(answers: NDArray[np.int64], draw: Draw) -> float:
    return 100 * float((answers == draw.truth).mean())


def show(name: str, grid: Grid, found: dict[str, NDArray]) -> None:
    cells = [grid.cell(i, j) for i, j in np.ndindex(len(grid.classes), len(grid.shots))]
    print(f"\n| {name} | {' | '.join(cells)} | mean |\n|{'---|' * (len(cells) + 2)}")
    for who, values in found.items():
        means = values.mean(axis=2)
        shown = ["" if np.isnan(value) else f"{value:.1f}" for value in [*means.ravel(), means.mean()]]
        print(f"| {who} | {' | '.join(shown)} |")
    lead = leads(found)
    errors = lead.std(axis=2, ddof=min(1, grid.draws - 1)) / grid.draws**0.5
    pairs = zip(lead.mean(axis=2).ravel(), errors.ravel(), strict=True)
    leading = " | ".join(f"{mean:+.1f} ± {error:.1f}" for mean, error in pairs)
    print(f"| lead over the best | {leading} |  |", flush=True)


def leads(found: dict[str, NDArray]) -> NDArray:
    """Return the lead of the default head over the best other one of each cell, for each draw."""
    others = np.stack([values for who, values in found.items() if who != OURS])
    best = np.nanargmax(others.mean(axis=3), axis=0)
    return found[OURS] - np.take_along_axis(others, best[None, ..., None], axis=0)[0]


def verdict(grid: Grid, found: dict[str, dict[str, NDArray]]) -> bool:
    lead = np.stack([leads(values).mean(axis=2) for values in found.values()])
    worst = np.unravel_index(lead.argmin(), lead.shape)
    cell = f"{list(found)[worst[0]]}, {grid.cell(*worst[1:])}"
    means = {who: np.mean([values[who] for values in found.values()]) for who in next(iter(found.values()))}
    single = max((mean, who) for who, mean in means.items() if who != OURS and not np.isnan(mean))
    ahead = means[OURS] - single[0]
    print("\n| what | now | must |\n|---|---|---|")
    print(f"| least lead over the best of a cell ({cell}) | {lead.min():+.2f} | {-WITHIN:+.2f} |")
    print(f"| cells below that | {int((lead < -WITHIN).sum())} of {lead.size} | 0 |")
    print(f"| mean lead over the best single one ({single[1]}) | {ahead:+.2f} | {AHEAD:+.2f} |")
    return bool(lead.min() >= -WITHIN and ahead >= AHEAD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="NAME=FEATURES, or NAME=FILE.npz with images of CIFAR-100")
    parser.add_argument("--classes", type=int, nargs="+", default=Grid.classes)
    parser.add_argument("--shots", type=int, nargs="+", default=Grid.shots)
    parser.add_argument("--draws", type=int, default=Grid.draws)
    parser.add_argument("--kept", type=Path, help="file for the figures of the other classifiers")
    options = parser.parse_args()
    grid = Grid(tuple(options.classes), tuple(options.shots), options.draws)
    kept = json.loads(options.kept.read_text()) if options.kept and options.kept.is_file() else {}
    found = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # solvers that stop early
        for name, source in (text.split("=", 1) for text in options.sets):
            found[name] = accuracies(opened(source), name, grid, kept, options.kept)
            show(name, grid, found[name])
    sys.exit(0 if verdict(grid, found) else 1)


if __name__ == "__main__":
    main()

"""Whether a review finds labels that were exchanged, what its suggestions lead to, and whether curves come true.

    python benchmarks/review.py

On the embedded CUB-200 features, five draws. Settings were chosen on classes 0 to 99; all figures are of classes
100 to 199. Planted: 20 classes of 15 training photos, 5 % of the labels exchanged at random; of these, the share
among the first suggestions, as many as 10 % of the photos. Accuracies are those of test photos.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.features import FeatureSet, embedded_features
from fiveshot.recognizer.advice import MORE, review_photos
from fiveshot.recognizer.store.contents import KnownPhotos
from fiveshot.values import Review

EXCHANGED = 0.05
FIRST = 0.1  # of the photos: suggestions that somebody looks at


@dataclass(frozen=True, eq=False)
class Draw:
    """Photos of some classes with their labels, further ones to learn, and test photos."""

    X: NDArray[np.float32]
    y: NDArray[np.str_]
    more: dict[str, NDArray[np.float32]]
    asked: NDArray[np.float32]
    asked_for: NDArray[np.str_]


def draw(features: FeatureSet, seed: int, *, classes: int, photos: int) -> Draw:
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.arange(100, 200))[:classes]
    names = np.array([f"class {label:03}" for label in range(200)])
    rows = {label: rng.permutation(np.flatnonzero(features.train_y == label)) for label in chosen}
    first = np.concatenate([own[:photos] for own in rows.values()])
    test = np.flatnonzero(np.isin(features.test_y, chosen))
    return Draw(
        np.asarray(features.train_x[first], np.float32),
        names[features.train_y[first]],
        {names[label]: np.asarray(features.train_x[own[photos:]], np.float32) for label, own in rows.items()},
        np.asarray(features.test_x[test], np.float32),
        names[features.test_y[test]],
    )


def exchanged(y: NDArray[np.str_], rng: np.random.Generator) -> tuple[NDArray[np.str_], NDArray[np.intp]]:
    """Return labels of which some are others, and which."""
    rows = rng.permutation(len(y))[: round(EXCHANGED * len(y))]
    labels = y.copy()
    for row in rows:
        labels[row] = rng.choice(np.setdiff1d(y, [y[row]]))
    return labels, rows


def fitted(X: NDArray[np.float32], y: NDArray[np.str_]) -> Scorer:
    head = make_scorer("unbiased-lda")
    return head.adopt(Memory(NO_CLASSES, class_statistics(head.embed(X), y)))


def accuracy(drawn: Draw, X: NDArray[np.float32], y: NDArray[np.str_]) -> float:
    return float((fitted(X, y).predict(drawn.asked) == drawn.asked_for).mean())


def reviewed(X: NDArray[np.float32], y: NDArray[np.str_], seed: int) -> Review:
    head = fitted(X, y)
    known = KnownPhotos(tuple(y.tolist()), tuple(map(str, range(len(y)))), X)
    return review_photos(head, head.memory, known, [str(row) for row in range(len(y))], state=1, seed=seed)


def followed(found: Review, kind: str, y: NDArray[np.str_]) -> tuple[NDArray[np.bool_], NDArray[np.str_]]:
    """Return which photos stay, and the labels they have, after the suggestions of a kind."""
    stay, labels = np.ones(len(y), dtype=bool), y.copy()
    for one in found.of([kind], sure=True):
        if one.to is None:
            stay[int(one.photo)] = False
        else:
            labels[int(one.photo)] = one.to
    return stay, labels


def planted(features: FeatureSet, seeds: int) -> None:
    print(
        "| draw | exchanged | found among the first | mixed-up | of these sure | and exchanged | test accuracy "
        "| after mixed-up | after harmful | after outliers |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    found_shares = []
    for seed in range(seeds):
        drawn = draw(features, seed, classes=20, photos=15)
        labels, wrong = exchanged(drawn.y, np.random.default_rng([seed, 1]))
        found = reviewed(drawn.X, labels, seed)
        suggested = [int(one.photo) for one in found.of(["mixed-up"])]
        first = suggested[: round(FIRST * len(labels))]
        found_shares.append(len(set(first) & set(wrong.tolist())) / len(wrong))
        after = []
        for kind in ("mixed-up", "harmful", "outliers"):
            stay, now = followed(found, kind, labels)
            after.append(accuracy(drawn, drawn.X[stay], now[stay]))
        sure = [int(one.photo) for one in found.of(["mixed-up"], sure=True)]
        right = len(set(sure) & set(wrong.tolist()))
        cells = [f"{100 * value:.1f} %" for value in (accuracy(drawn, drawn.X, labels), *after)]
        counts = f"{100 * found_shares[-1]:.0f} % | {len(suggested)} | {len(sure)} | {right}"
        print(f"| {seed} | {len(wrong)} | {counts} | {' | '.join(cells)} |", flush=True)
    print(f"| mean | | {100 * np.mean(found_shares):.0f} % | | | | | | | |")


def curves(features: FeatureSet, seeds: int) -> None:
    print(
        "\n| classes | photos | left out | expected now | measured | "
        + " | ".join(f"expected with {more} more | measured" for more in MORE)
        + " |"
    )
    print("|---|---|---|---|---|" + "---|---|" * len(MORE))
    for classes, photos in ((5, 5), (20, 5), (20, 10), (50, 5)):
        rows = []
        for seed in range(seeds):
            drawn = draw(features, seed, classes=classes, photos=photos)
            found = reviewed(drawn.X, drawn.y, seed)
            row = [found.accuracy]
            for more, expected in zip((0, *MORE), found.expected, strict=True):
                X = np.concatenate([drawn.X, *(own[:more] for own in drawn.more.values())])
                y = np.concatenate([drawn.y, *(np.repeat(name, more) for name in drawn.more)])
                row += [expected, accuracy(drawn, X, y)]
            rows.append(row)
        cells = [f"{100 * value:.1f} %" for value in np.mean(np.array(rows, float), axis=0)]
        print(f"| {classes} | {photos} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", default="cub200")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    features = embedded_features(options.pack)
    planted(features, options.seeds)
    curves(features, options.seeds)


if __name__ == "__main__":
    main()

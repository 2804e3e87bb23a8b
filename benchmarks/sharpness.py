"""Find the sharpness of the default head's probabilities on training photos.

    python benchmarks/sharpness.py cub200=embedded:cub200 cifar100=cifar100.safetensors

Only training photos are used, to learn and to predict. With a base, half or a tenth of the classes, drawn at
random, are base classes with all but ten of their photos, and five photos each of another half are learned.
Without a base, classes are learned from 1 to 10 photos each. All other training photos are predicted. The
sharpness multiplies scores before the softmax. The table shows the sharpness with the highest likelihood and the
one that the head chose, the expected calibration error of both, and how many points the mean probability is above
the accuracy.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fiveshot.benchmark import open_features
from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.core.arrays import log_softmax
from fiveshot.core.scorers import make_scorer
from fiveshot.features import FeatureSet
from fiveshot.metrics import expected_calibration_error

SHARPNESSES = np.arange(8.0, 31.0)
HELD_OUT = 10  # photos of each base class
HEADINGS = (
    "features", "base classes", "classes x photos", "accuracy", "best sharpness", "chosen", "ECE, best",
    "ECE, chosen", "too sure, chosen",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    base: int
    classes: int
    photos: int
    draws: int


def settings(n_classes: int) -> list[Setting]:
    half = n_classes // 2
    with_base = [Setting(base, half, 5, 3) for base in (half, n_classes // 10)]
    return with_base + [
        Setting(0, classes, photos, 60 // classes + 2) for classes in (3, 20, 60) for photos in (1, 2, 5, 10)
    ]


@dataclass(frozen=True)
class Asked:
    scores: NDArray[np.float64]  # (n, n_classes)
    codes: NDArray[np.intp]  # (n,)
    chosen: float

    def probabilities(self, sharpness: float) -> NDArray[np.float64]:
        return np.exp(log_softmax(self.scores * sharpness))

    def likelihood(self, sharpness: float) -> float:
        return float(log_softmax(self.scores * sharpness)[np.arange(len(self.codes)), self.codes].mean())

    def error(self, sharpness: float) -> float:
        return 100 * expected_calibration_error(self.probabilities(sharpness), self.codes)

    def right(self) -> float:
        return 100 * float((self.scores.argmax(axis=1) == self.codes).mean())

    def too_sure(self, sharpness: float) -> float:
        return 100 * float(self.probabilities(sharpness).max(axis=1).mean()) - self.right()


def play(features: FeatureSet, setting: Setting, seed: int) -> Asked:
    X, y = np.asarray(features.train_x, dtype=np.float32), features.train_y
    rng = np.random.default_rng([seed, setting.base, setting.classes, setting.photos])
    classes = rng.permutation(len(features.class_names))
    base, new = np.split(classes[: setting.base + setting.classes], [setting.base])
    photos = {label: rng.permutation(np.flatnonzero(y == label)) for label in (*base, *new)}
    shots = np.concatenate([photos[label][: setting.photos] for label in new])
    asked = [photos[label][:HELD_OUT] for label in base] + [photos[label][setting.photos :] for label in new]
    rows = np.concatenate(asked)
    head = make_scorer()
    if setting.base:
        many = np.concatenate([photos[label][HELD_OUT:] for label in base])
        head = head.learn(X[many], y[many]).learn(X[shots], y[shots])
    else:
        head = head.adopt(Memory(NO_CLASSES, class_statistics(head.embed(X[shots]), y[shots])))
    codes = np.searchsorted(head.classes, y[rows])
    return Asked(np.asarray(head.scores(X[rows]), dtype=np.float64), codes, head.softmax_factor())


def row(features: FeatureSet, setting: Setting) -> list[str]:
    asked = [play(features, setting, seed) for seed in range(setting.draws)]
    likelihoods = [np.mean([one.likelihood(value) for one in asked]) for value in SHARPNESSES.tolist()]
    best = float(SHARPNESSES[int(np.argmax(likelihoods))])
    figures = [
        np.mean([one.right() for one in asked]),
        best,
        np.mean([one.chosen for one in asked]),
        np.mean([one.error(best) for one in asked]),
        np.mean([one.error(one.chosen) for one in asked]),
        np.mean([one.too_sure(one.chosen) for one in asked]),
    ]
    return [str(setting.base), f"{setting.classes} x {setting.photos}", *(f"{value:.1f}" for value in figures)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="+", metavar="NAME=FILE", help="a feature file, or embedded:NAME")
    print("| " + " | ".join(HEADINGS) + " |")
    print("|" + "---|" * len(HEADINGS))
    for given in parser.parse_args().features:
        name, _, source = given.partition("=")
        features = open_features(source)
        for setting in settings(len(features.class_names)):
            print("| " + " | ".join([name, *row(features, setting)]) + " |", flush=True)


if __name__ == "__main__":
    main()

"""How many answers are wrong when a model may say that it is unsure, and how many photos it names.

    python benchmarks/unsure.py

On the embedded CUB-200 features, for each draw: some species are learned from a few photos each, with or without
a base of other species with all their photos. Thresholds are set by the model itself, on training photos, for at
most 5 % wrong answers. Every figure is of test photos of the species that were learned; no photo is called unknown
here. "A or B" is how often the right class is one of the two that an unsure answer names. The exit status is 1
where more answers are wrong than the stated share, by more than one point, although classes have two photos or
more.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import NO_CLASSES, class_statistics
from fiveshot.core.memory import Memory
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.features import FeatureSet, embedded_features
from fiveshot.recognizer import fit_rejection
from fiveshot.recognizer.recognition.rejection import leave_out
from fiveshot.recognizer.recognition.sureness import chains_of, sure_threshold, threshold_in
from fiveshot.recognizer.store.contents import KnownPhotos

STARTS = (  # base species, species learned later, photos of each of these
    (0, 2, 5), (0, 5, 5), (0, 10, 1), (0, 10, 5), (0, 20, 1), (0, 20, 2), (0, 20, 5), (0, 20, 10), (0, 50, 5),
    (100, 20, 5), (50, 50, 5), (20, 50, 5),
)  # fmt: skip
SPARE = 0.01
HEADINGS = (
    "base species", "species", "photos of each", "wrong without", "threshold", "named", "wrong of these", "A or B"
)  # fmt: skip


def measure(features: FeatureSet, start: tuple[int, int, int], rate: float, seed: int) -> list[float]:
    base, species, shots = start
    rng = np.random.default_rng([seed, *start])
    order = rng.permutation(200)
    names = np.array(features.class_names)
    few = [rng.permutation(np.flatnonzero(features.train_y == c))[:shots] for c in order[base : base + species]]
    rows = np.concatenate(few)
    X, y = np.asarray(features.train_x[rows], dtype=np.float32), names[features.train_y[rows]]
    many = np.flatnonzero(np.isin(features.train_y, order[:base]))
    head, threshold = fitted(np.asarray(features.train_x[many], dtype=np.float32), names[features.train_y[many]],
                             X, y, rate, seed)  # fmt: skip
    asked = np.isin(features.test_y, order[: base + species])
    chances = head.answer(np.asarray(features.test_x[asked], dtype=np.float32)).probabilities
    truth = names[features.test_y[asked]]
    two = head.classes[np.argsort(-chances, axis=1)[:, :2]]
    wrong, named = two[:, 0] != truth, chances.max(axis=1) >= threshold
    either = (two == truth[:, None]).any(axis=1)[~named]
    return [wrong.mean(), threshold, named.mean(), wrong[named].mean(), either.mean() if len(either) else np.nan]


def fitted(
    base_x: NDArray[np.float32],
    base_y: NDArray[np.str_],
    X: NDArray[np.float32],
    y: NDArray[np.str_],
    rate: float,
    seed: int,
) -> tuple[Scorer, float]:
    """Return the head, and the threshold that a model with these photos has."""
    head = make_scorer("unbiased-lda")
    if len(base_x):
        head = head.learn(base_x, base_y)
        table = fit_rejection(head, base_x, base_y, seed=seed).sure
        head = head.learn(X, y)
        if len(head.memory.base) >= len(head.memory.new):
            return head, threshold_in(table, rate)
    else:
        head = head.adopt(Memory(NO_CLASSES, class_statistics(head.embed(X), y)))
    photos = KnownPhotos(tuple(y.tolist()), tuple(map(str, range(len(y)))), X)
    left = leave_out(head, head.memory, photos, X[:0])
    return head, sure_threshold(chains_of(head.classes.tolist(), left.chances), left.truth, rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    features, kept = embedded_features("cub200"), True
    print("| " + " | ".join(HEADINGS) + " |\n|" + "---|" * len(HEADINGS))
    for start in STARTS:
        found = np.array([measure(features, start, options.rate, seed) for seed in range(options.draws)])
        mean, spread = np.nanmean(found, axis=0), np.nanstd(found, axis=0)
        shares = [f"{100 * m:.1f} ± {100 * s:.1f} %" for m, s in zip(mean, spread, strict=True)]
        cells = [*map(str, start), shares[0], f"{mean[1]:.2f}", *shares[2:]]
        print("| " + " | ".join(cells) + " |", flush=True)
        kept &= start[2] == 1 or mean[3] <= options.rate + SPARE
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()

"""Measure how much photos of none of the classes help to reject unknown photos, also of other things.

    python benchmarks/negatives.py
    python benchmarks/negatives.py --cifar cifar100.npz

On the embedded CUB-200 features, without a base, in each draw some species are learned from five photos each. Half
of the other species give the photos that are taught as none of the classes, the other half the unknown test
photos. The known test photos are of the learned species. Thresholds are set on the learned photos, for 5 % false
rejections. To make rates comparable, "at 5 %" uses the threshold that rejects exactly 5 % of the known test
photos. ``--cifar`` names an archive with ``test_images`` and ``test_labels`` of CIFAR-100; four photos of each of
its classes are added.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.metrics import roc_auc_score

from fiveshot import Recognizer
from fiveshot.backbones import load_embedder
from fiveshot.features import FeatureSet, embedded_features
from fiveshot.recognizer import correct_seen
from fiveshot.recognizer._learning import feature_records
from fiveshot.recognizer.names import NONE
from fiveshot.recognizer.photos.embedding import photo_records
from fiveshot.recognizer.photos.inputs import gather_photos
from fiveshot.recognizer.store.rows import photo_features

SHOTS = 5
EACH = 4  # photos of every class of other things
FIRST = 2000  # number of the first draw; earlier ones were used while designing the score
HEADINGS = (
    "species",
    "none of these",
    "AUROC",
    "known rejected",
    "unknown rejected",
    "unknown, at 5 %",
    "other things",
)


@dataclass(frozen=True)
class Draw:
    known: NDArray[np.int64]
    taught: NDArray[np.int64]  # species whose photos are taught as none of the classes
    unknown: NDArray[np.int64]
    rng: np.random.Generator


def draw(species: int, seed: int) -> Draw:
    rng = np.random.default_rng(seed)
    order = rng.permutation(200)
    others = order[species:]
    return Draw(order[:species], others[: len(others) // 2], others[len(others) // 2 :], rng)


def of(features: FeatureSet, classes: NDArray[np.int64], *, test: bool) -> NDArray[np.int64]:
    return np.flatnonzero(np.isin(features.test_y if test else features.train_y, classes))


def other_things(file: Path) -> NDArray[np.float32]:
    """Return features of the embedded backbone for photos that show no birds."""
    data, rng = np.load(file), np.random.default_rng(0)
    labels = data["test_labels"]
    rows = [rng.permutation(np.flatnonzero(labels == label))[:EACH] for label in np.unique(labels)]
    pictures = [Image.fromarray(image) for image in data["test_images"][np.concatenate(rows)]]
    return photo_features(photo_records(load_embedder(), gather_photos(pictures)))


def measure(
    features: FeatureSet, parts: Draw, numbers: list[int], things: NDArray[np.float32] | None
) -> list[list[float]]:
    train, test = (np.asarray(x, dtype=np.float32) for x in (features.train_x, features.test_x))
    strange = train[parts.rng.permutation(of(features, parts.taught, test=False))]
    known, unknown = (test[of(features, classes, test=True)] for classes in (parts.known, parts.unknown))
    found = []
    with tempfile.TemporaryDirectory() as folder, Recognizer.create(Path(folder) / "model") as model:
        for number in parts.known:
            own = parts.rng.permutation(np.flatnonzero(features.train_y == number))[:SHOTS]
            model.learn_features(features.class_names[number], train[own])
        for count in numbers:
            if count:
                correct_seen(model, feature_records(strange[:count], strange.shape[1]), NONE)
            answers = [model.predict_features(X) for X in (known, unknown)]
            familiar = [np.array([one.familiarity for one in each]) for each in answers]
            truth = np.repeat([1, 0], [len(each) for each in familiar])
            row = [float(roc_auc_score(truth, np.concatenate(familiar)))]
            row += [float(np.mean([one.unknown for one in each])) for each in answers]
            row.append(float((familiar[1] < np.quantile(familiar[0], 0.05)).mean()))
            other = [] if things is None else [one.unknown for one in model.predict_features(things)]
            found.append([*row, float(np.mean(other)) if other else np.nan])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--species", type=int, nargs="+", default=[10, 20, 50])
    parser.add_argument("--negatives", type=int, nargs="+", default=[0, 5, 20])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--cifar", type=Path)
    options = parser.parse_args()
    features = embedded_features()
    things = None if options.cifar is None else other_things(options.cifar)
    print("| " + " | ".join(HEADINGS) + " |")
    print("|" + "---|" * len(HEADINGS))
    for species in options.species:
        draws = (draw(species, FIRST + seed) for seed in range(options.draws))
        found = np.array([measure(features, parts, sorted(options.negatives), things) for parts in draws])
        for count, mean, spread in zip(sorted(options.negatives), found.mean(0), found.std(0), strict=True):
            shares = [f"{100 * m:.1f} ± {100 * s:.1f} %" for m, s in zip(mean[1:], spread[1:], strict=True)]
            cells = [str(species), str(count), f"{mean[0]:.3f}", *shares]
            print("| " + " | ".join("" if "nan" in cell else cell for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()

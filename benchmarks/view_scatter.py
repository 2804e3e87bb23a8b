"""Try the differences between the views of a photo as noise, without a base: on training photos alone.

    python benchmarks/view_scatter.py --birds DIR --cifar cifar100.npz

DIR holds the archives of CUB-200. 14 photos of 30 classes of each set are used; the feature of a photo is the mean
of its two views. The covariance of the default head gets one more term: a factor times the scatter between the two
views of the learned photos. A cell is a number of classes and of photos of each. It shows the percentage of right
answers for the other photos, or the change of it, with its standard error over the draws.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from adapter_search import open_birds
from no_base import first_of_each
from numpy.typing import NDArray
from views import one_view

from fiveshot.backbones import BackboneSpec, load_embedder
from fiveshot.core import class_statistics
from fiveshot.core.arrays import eigh, squared_lengths, unit_rows
from fiveshot.core.few_shots import TRUST, _diagonal, _dof, _mean_rows, _noise, few_shot_offset
from fiveshot.core.lda import FactoredCovariance, Prior, space_model
from fiveshot.data import ImageDataset, decode
from fiveshot.data._official import read_cifar100

Floats = NDArray[np.floating]
VIEWS = ("w", "i")  # as in views.py
CLASSES, PHOTOS = 30, 14
CELLS = ((5, 1), (20, 1), (20, 2), (20, 5))
FACTORS = (0.0, 0.3, 1.0, 3.0)
DRAWS = 40
TRUSTED = Prior(strength=TRUST * Prior().strength)


def seen(images: ImageDataset) -> tuple[Floats, NDArray[np.int64]]:
    """Return the features of both views, (n, 2, d), and labels of some training photos."""
    labels = images.train.labels
    chosen = np.random.default_rng(0).permutation(np.unique(labels))[:CLASSES]
    own = np.flatnonzero(np.isin(labels, chosen))
    rows = own[first_of_each(labels[own], PHOTOS)]
    embedder, found = load_embedder(BackboneSpec(views=1)), []
    for row in rows:
        photo = decode(images.train.images[row])
        pixels = np.stack([one_view(photo, name)[None] for name in VIEWS])
        found.append(embedder.features(pixels))
    return np.stack(found), labels[rows]


def answers(views: Floats, y: NDArray[np.int64], asked: Floats, factor: float) -> NDArray[np.int64]:
    """Return the classes of asked photos, (m, d); with the factor 0 they are those of the default head."""
    means = views.mean(axis=1)
    statistics = class_statistics(unit_rows(means), y)
    centers, counts = statistics.means, statistics.counts.astype(np.float32)
    origin = centers.mean(axis=0)
    factors = [one.factor for one in statistics.summaries if len(one.factor)]
    within = np.concatenate(factors) if factors else centers[:0]
    # Two views differ by twice their deviation from the mean.
    between = (views[:, 0] - views[:, 1]) / np.linalg.norm(means, axis=1, keepdims=True) / 2**0.5
    scale = np.sqrt(_diagonal((within**2).sum(axis=0), centers - origin, counts))
    parts = [within / max(_dof(counts), 1) ** 0.5, _mean_rows(centers - origin, counts)]
    rows = np.concatenate([*parts, (factor / len(between)) ** 0.5 * between]) / scale
    values, vectors = eigh((rows @ rows.T).astype(np.float64))
    root = np.sqrt(1 + np.maximum(values, 0))
    kernel = ((vectors / (root * (1 + root))) @ vectors.T).astype(centers.dtype)
    covariance = FactoredCovariance(scale, rows, kernel, 1.0, 1.0)
    noise = _noise(float(squared_lengths(covariance.whiten(within)).sum()), covariance, centers - origin, counts)
    covariance = FactoredCovariance(scale, rows, kernel, noise, noise)
    space = space_model(centers, counts, covariance, new=counts > 0, origin=origin, prior=TRUSTED)
    scores = space.scores(unit_rows(asked)) + few_shot_offset(len(centers)) * space.gaps
    found: NDArray[np.int64] = statistics.labels[scores.argmax(axis=1)]
    return found


def measured(X: Floats, y: NDArray[np.int64], classes: int, photos: int) -> Floats:
    """Return the percentage of right answers, (factors, draws)."""
    found = []
    for seed in range(DRAWS):
        rng = np.random.default_rng([seed, classes, photos])
        rows = [rng.permutation(np.flatnonzero(y == label)) for label in rng.permutation(np.unique(y))[:classes]]
        learned, more = (np.concatenate([own[part] for own in rows]) for part in np.s_[:photos, photos:])
        asked = X[more].mean(axis=1)
        found.append([100 * (answers(X[learned], y[learned], asked, one) == y[more]).mean() for one in FACTORS])
    return np.array(found).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--birds", type=Path, required=True, help="folder with train.tar of CUB-200")
    parser.add_argument("--cifar", type=Path, required=True, help="images of CIFAR-100")
    options = parser.parse_args()
    things = read_cifar100(options.cifar)
    if things is None:
        parser.error(f"{options.cifar} holds no images of CIFAR-100")
    print("| set | classes x photos | as now | " + " | ".join(f"factor {one:g}" for one in FACTORS[1:]) + " |")
    print("|" + "---|" * (2 + len(FACTORS)))
    for name, images in (("CUB-200", open_birds(options.birds, test=False)), ("CIFAR-100", things)):
        X, y = seen(images)
        for classes, photos in CELLS:
            right = measured(X, y, classes, photos)
            more = right[1:] - right[0]
            errors = more.std(axis=1, ddof=1) / DRAWS**0.5
            changes = [f"{mean:+.1f} ± {error:.1f}" for mean, error in zip(more.mean(axis=1), errors, strict=True)]
            print(
                f"| {name} | {classes} x {photos} | {right[0].mean():.1f} | " + " | ".join(changes) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Compare groups of unlabeled photos with k-means, and count the labels that the queue of questions saves.

    python benchmarks/sorting.py

On the embedded CUB-200 features, five draws. Settings were chosen on classes 0 to 99; all figures are for classes
100 to 199. k-means uses plain features and is given the true number of groups; ours is not. Labels: photos are
named in the order of the queue, each question by its one visible photo, until the accuracy on test photos equals
that of five random photos of each class.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score

from fiveshot.core import NO_CLASSES, Memory, class_statistics, summarize
from fiveshot.core.scorers import make_scorer
from fiveshot.features import FeatureSet, embedded_features
from fiveshot.recognizer.recognition.snapshot import Snapshot, head_record
from fiveshot.recognizer.store.contents import Contents, StoredClass
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest
from fiveshot.recognizer.store.rows import ClassPhotos
from fiveshot.recognizer.unlabeled.sorting import LikenessSpace, group_rows, sort_rows

SHOTS = 5
Floats = NDArray[np.float32]


def rows_of(
    y: NDArray[np.int64], classes: NDArray[np.int64], most: int, rng: np.random.Generator, *, uneven: bool = False
) -> NDArray[np.intp]:
    """Return photos of classes; with ``uneven``, from three per class to twice the number minus three."""
    counts = rng.integers(3, 2 * most - 3, len(classes)) if uneven else np.full(len(classes), most)
    drawn = [
        rng.permutation(np.flatnonzero(y == label))[:count] for label, count in zip(classes, counts, strict=True)
    ]
    return np.concatenate(drawn)


def purity(truth: NDArray[np.intp], groups: NDArray[np.intp]) -> float:
    return sum(int(np.bincount(truth[groups == group]).max()) for group in np.unique(groups)) / len(truth)


def taught(X: Floats, given: NDArray[np.str_]) -> Snapshot:
    """Return a model that has learned the named photos."""
    head = make_scorer("unbiased-lda")
    rows = {}
    for number, name in enumerate(np.unique(given[given != ""]), 1):
        own = X[given == name]
        summary = summarize(head.embed(own))
        ids = tuple(np.flatnonzero(given == name).tolist())
        photos = ClassPhotos(ids, tuple(f"{row:064}" for row in ids), own)
        rows[number] = StoredClass(number, str(name), False, 1, summary, summary, photos)
    manifest = Manifest(BackboneRecord("none", X.shape[1], "a" * 64), head_record("unbiased-lda"))
    named = {one.name: one for one in rows.values()}
    return Snapshot(Contents(1, manifest, NO_CLASSES, NO_CLASSES, rows, named))


def groups_table(features: FeatureSet, seeds: int) -> None:
    X = np.concatenate([features.train_x, features.test_x]).astype(np.float32)
    y = np.concatenate([features.train_y, features.test_y])
    print("| classes | photos | known | groups | AMI | purity | k-means, told the number: AMI | purity |")
    print("|---|---|---|---|---|---|---|---|")
    for classes, most, uneven in (
        (5, 20, False),
        (20, 15, False),
        (20, 30, True),
        (50, 25, True),
        (80, 10, False),
    ):
        for known in (0, 20):
            found = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                drawn = rng.permutation(np.arange(100, 200))
                rows = rows_of(y, drawn[:classes], most, rng, uneven=uneven)
                others = np.flatnonzero(np.isin(y, drawn[classes:][:known]))
                found.append((*_groups(X, y, rows, others, rng, classes), len(rows)))
            ours, theirs = (
                np.mean([one[:3] for one in found], axis=0),
                np.mean([one[3:5] for one in found], axis=0),
            )
            photos = f"{np.mean([one[5] for one in found]):.0f}{' uneven' if uneven else ''}"
            print(
                f"| {classes} | {photos} | {known} | {ours[0]:.1f} | {ours[1]:.3f} | {ours[2]:.3f} | "
                f"{theirs[0]:.3f} | {theirs[1]:.3f} |",
                flush=True,
            )


def _groups(
    X: Floats,
    y: NDArray[np.int64],
    rows: NDArray[np.intp],
    others: NDArray[np.intp],
    rng: np.random.Generator,
    classes: int,
) -> tuple[float, float, float, float, float]:
    metric = LikenessSpace()
    if len(others):
        shots = np.concatenate(
            [rng.permutation(others[y[others] == label])[:SHOTS] for label in np.unique(y[others])]
        )
        head = make_scorer("unbiased-lda")
        names = np.array([f"class {label:03}" for label in y[shots]])
        head = head.adopt(Memory(NO_CLASSES, class_statistics(head.embed(X[shots]), names)))
        metric = LikenessSpace(head)
    truth = np.unique(y[rows], return_inverse=True)[1]
    ours = group_rows(metric(X[rows]))
    theirs = KMeans(classes, n_init=3, random_state=0).fit_predict(X[rows])
    return (
        len(np.unique(ours)),
        adjusted_mutual_info_score(truth, ours),
        purity(truth, ours),
        adjusted_mutual_info_score(truth, theirs),
        purity(truth, theirs),
    )


def labels_table(features: FeatureSet, seeds: int) -> None:
    print("\n| classes | photos | accuracy of 5 random photos a class | labels for it | of the queue | share |")
    print("|---|---|---|---|---|---|")
    for classes, photos in ((20, 30),):
        shares, aims, counts = [], [], []
        for seed in range(seeds):
            aim, count = _labels(features, seed, classes, photos)
            aims.append(aim)
            counts.append(count)
            shares.append(count / (SHOTS * classes))
        each = ", ".join(f"{100 * share:.0f}" for share in shares)
        print(
            f"| {classes} | {classes * photos} | {100 * np.mean(aims):.1f} % | {SHOTS * classes} | "
            f"{np.mean(counts):.0f} | {100 * np.mean(shares):.0f} % ({each}) |",
            flush=True,
        )


def _labels(features: FeatureSet, seed: int, classes: int, photos: int) -> tuple[float, int]:
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.arange(100, 200))[:classes]
    rows = rows_of(features.train_y, chosen, photos, rng)
    X, y = np.asarray(features.train_x[rows], np.float32), features.train_y[rows]
    names = np.array([f"class {label:03}" for label in y])
    test = np.flatnonzero(np.isin(features.test_y, chosen))
    test_X = np.asarray(features.test_x[test], np.float32)
    test_names = np.array([f"class {label:03}" for label in features.test_y[test]])
    aims = []
    for _ in range(5):
        five = rows_of(y, chosen, SHOTS, rng)
        head = make_scorer("unbiased-lda")
        head = head.adopt(Memory(NO_CLASSES, class_statistics(head.embed(X[five]), names[five])))
        aims.append((head.classify(test_X) == test_names).mean())
    aim = float(np.mean(aims))
    given = np.full(len(X), "", dtype=names.dtype)
    asked = 0
    while (given == "").any():
        left = np.flatnonzero(given == "")
        queue = sort_rows(taught(X, given), X[left], photos=[], numbers=left.tolist()).queue[: classes // 2]
        for question in queue:
            given[[question.photo, *question.companions]] = names[question.photo]
        asked += len(queue)
        answers = taught(X, given).head.classify(test_X)
        if not queue or (answers == test_names).mean() >= aim:
            break
    return aim, asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", default="cub200")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", default=["groups", "labels"], choices=["groups", "labels"])
    options = parser.parse_args()
    features = embedded_features(options.pack)
    if "groups" in options.parts:
        groups_table(features, options.seeds)
    if "labels" in options.parts:
        labels_table(features, options.seeds)


if __name__ == "__main__":
    main()

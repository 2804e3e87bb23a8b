"""Measure how well unknown photos are rejected, and whether the stated false-rejection rate holds.

    python benchmarks/unknown.py

On the embedded CUB-200 features, for each seed: the 100 base classes of cub200/big with all their photos (or no
base at all), 50 of the other classes learned from five photos, the remaining 50 never learned. Thresholds are set
on training photos; every figure is for test photos. The adapter of cub200-big was trained on all training photos
of the base classes, so these cannot set thresholds. In the row "held back", ten test photos of each base class are
base photos that the adapter has not seen, as with `--tune` and `retune`; they set the thresholds, and the other
test photos are predicted. OSCR is AUROC with wrongly named known photos counted as misses. The exit status is 1 if
thresholds for 5 % do not reject 3 to 7 % of known photos.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fiveshot.benchmark import get_protocol
from fiveshot.core import NO_CLASSES, class_statistics
from fiveshot.core.memory import Memory
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.features import FeatureSet, embedded_features
from fiveshot.metrics import open_set_area
from fiveshot.recognizer.recognition.rejection import Rejection, fit_rejection, leave_out, rejection_at
from fiveshot.recognizer.store.contents import KnownPhotos

SHOTS = 5
HELD_BACK = 10
HEADINGS = (
    "features", "start", "AUROC base", "AUROC 5-shot", "OSCR base", "OSCR 5-shot", "rejected: base",
    "rejected: 5-shot", "rejected: unknown",
)  # fmt: skip


@dataclass(frozen=True)
class Split:
    base: NDArray[np.int64]
    new: NDArray[np.int64]
    unknown: NDArray[np.int64]


def split(seed: int) -> Split:
    base = get_protocol("cub200/big").session_classes[0]
    others = np.setdiff1d(np.arange(200), base)
    drawn = np.random.default_rng(seed).permutation(others)
    return Split(np.array(base), drawn[:50], drawn[50:])


def rows(features: FeatureSet, classes: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    chosen = np.flatnonzero(np.isin(features.train_y, classes))
    return np.asarray(features.train_x[chosen], dtype=np.float32), names(features, features.train_y[chosen])


def shots(
    features: FeatureSet, classes: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    rng = np.random.default_rng([seed, 1])
    chosen = np.concatenate([rng.permutation(np.flatnonzero(features.train_y == c))[:SHOTS] for c in classes])
    return np.asarray(features.train_x[chosen], dtype=np.float32), names(features, features.train_y[chosen])


def names(features: FeatureSet, labels: NDArray[np.int64]) -> NDArray[np.str_]:
    return np.array(features.class_names)[labels]


def with_base(
    features: FeatureSet, parts: Split, head_name: str, rate: float, seed: int
) -> tuple[Scorer, Rejection | None]:
    X, y = rows(features, parts.base)
    head = make_scorer(head_name).learn(X, y)
    seen = features.provenance.adapter is not None
    rejection = None if seen else fit_rejection(head, X, y, false_rejection=rate, seed=seed)
    return head.learn(*shots(features, parts.new, seed)), rejection


def with_photos_held_back(
    features: FeatureSet, parts: Split, head_name: str, rate: float, seed: int
) -> tuple[Scorer, Rejection | None]:
    back = held_back(features, parts, seed)
    X, y = rows(features, parts.base)
    held = np.arange(len(X) + len(back)) >= len(X)
    X = np.concatenate([X, np.asarray(features.test_x[back], dtype=np.float32)])
    y = np.concatenate([y, names(features, features.test_y[back])])
    head = make_scorer(head_name).learn(X, y)
    rejection = fit_rejection(head, X, y, false_rejection=rate, seed=seed, held=held)
    return head.learn(*shots(features, parts.new, seed)), rejection


def held_back(features: FeatureSet, parts: Split, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng([seed, 4])
    drawn = [rng.permutation(np.flatnonzero(features.test_y == c))[:HELD_BACK] for c in parts.base]
    return np.concatenate(drawn)


def without_base(
    features: FeatureSet, parts: Split, head_name: str, rate: float, seed: int
) -> tuple[Scorer, Rejection | None]:
    X, y = shots(features, parts.new, seed)
    head = make_scorer(head_name)
    memory = Memory(NO_CLASSES, class_statistics(head.embed(X), y))
    head = head.adopt(memory)
    photos = KnownPhotos(tuple(y.tolist()), tuple(map(str, range(len(y)))), X)
    return head, rejection_at(leave_out(head, memory, photos, X[:0]), rate, None)


def measure(
    features: FeatureSet, parts: Split, head: Scorer, rejection: Rejection | None, asked: NDArray[np.int64]
) -> list[float]:
    X, y = np.asarray(features.test_x[asked], dtype=np.float32), features.test_y[asked]
    answer = head.answer(X)
    familiarity, right = answer.familiarity, answer.labels == names(features, y)
    known = [np.isin(y, parts.base), np.isin(y, parts.new)]
    known[0] &= len(head.memory.base) > 0
    unknown = np.isin(y, parts.unknown)
    areas = [
        area(familiarity[part], some[part], familiarity[unknown])
        for some in (np.ones_like(right), right)
        for part in known
    ]
    if rejection is None:
        return areas + [np.nan] * 3
    counts = {label: summary.count for label, summary, _ in head.memory}
    rejected = familiarity < rejection.thresholds_of([counts[label] for label in answer.labels])
    return areas + [float(rejected[part].mean()) if part.any() else np.nan for part in (*known, unknown)]


def area(known: NDArray[np.floating], right: NDArray[np.bool_], unknown: NDArray[np.floating]) -> float:
    """Return OSCR, or AUROC if all known photos count as right; NaN without known photos."""
    return open_set_area(known, right, unknown) if len(known) else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", default="unbiased-lda")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    reached = []
    print("| " + " | ".join(HEADINGS) + " |")
    print("|---|---|" + "---|" * (len(HEADINGS) - 2))
    for pack in ("cub200", "cub200-big"):
        features = embedded_features(pack)
        starts = {"100 base classes": with_base, "no base": without_base}
        if features.provenance.adapter is not None:
            starts["100 base classes, held back"] = with_photos_held_back
        for start, make in starts.items():
            found = []
            for seed in range(options.seeds):
                parts = split(seed)
                back = held_back(features, parts, seed) if "held back" in start else []
                asked = np.setdiff1d(np.arange(len(features.test_y)), back)
                learned = make(features, parts, options.head, options.rate, seed)
                found.append(measure(features, parts, *learned, asked))
            mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
            cells = [f"{m:.3f}" for m in mean[:4]]
            cells += [f"{100 * m:.1f} ± {100 * s:.1f} %" for m, s in zip(mean[4:], spread[4:], strict=True)]
            cells = ["" if "nan" in cell else cell for cell in cells]
            print("| " + " | ".join([pack, start, *cells]) + " |", flush=True)
            reached += wanted(pack, start, mean, options.rate)
    print("\n| figure | now | must |\n|---|---|---|")
    for what, now, least, most in reached:
        print(f"| {what} | {now:.3f} | {least:.3f} to {most:.3f} |")
    sys.exit(0 if all(least <= now <= most for _, now, least, most in reached) else 1)


def wanted(
    pack: str, start: str, mean: NDArray[np.floating], rate: float
) -> list[tuple[str, float, float, float]]:
    """Return figures with their lower and upper limits."""
    near = (0.6 * rate, 1.4 * rate)
    kinds = ("base", f"{SHOTS}-shot")
    rates = [(f"{pack}, {start}, rejected {of}", mean[4 + n], *near) for n, of in enumerate(kinds)]
    return [each for each in rates if not np.isnan(each[1])]


if __name__ == "__main__":
    main()

"""Check a review: are firm suggestions right, does following them help, and do its learning curves come true?

    python benchmarks/review.py cub200=embedded:cub200 cifar100=cifar100.npz

Models of 10 and 20 classes, learned from 5 and 10 training photos a class, of which 0, 5 or 10 % get the label of
another class of the model; 20 classes with a base of 30; and look-alikes: a class and the seven most similar ones.
A firm suggestion to move a photo is right if the photo shows the new class, one to remove a photo if its label is
wrong. Accuracy is measured on test photos, before and after all firm suggestions are applied; ± is the standard
error of the mean difference over draws. The limits for firm suggestions were chosen on the first half of the
classes (``--half fit``). All figures are for the other half. An .npz of CIFAR-100 images is extracted first, as in
``no_base.py``; missing files are left out. The exit status is 1 if fewer than 90 % of the firm suggestions are
right, if they change more than 1 % of the photos without wrong labels, or if accuracy falls by more than two
standard errors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from no_base import opened
from numpy.typing import NDArray

from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.core.arrays import unit_rows
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.features import FeatureSet
from fiveshot.recognizer.advice.review import MORE_PHOTOS, applicable, review_photos
from fiveshot.recognizer.store.contents import KnownPhotos
from fiveshot.values import Review
from fiveshot.work import one_thread

WRONG = (0.0, 0.05, 0.1)  # share of the labels
BASE_CLASSES, BASE_PHOTOS = 30, 15
RIGHT, TOUCHED = 0.9, 0.01
Floats = NDArray[np.float32]
Names = NDArray[np.str_]


@dataclass(frozen=True)
class Setting:
    classes: int
    photos: int
    base: int = 0  # classes
    alike: bool = False

    @property
    def title(self) -> str:
        base = f", base of {self.base}" if self.base else ""
        return f"{self.classes}{' look-alikes' if self.alike else ''} x {self.photos}{base}"


SETTINGS = (
    Setting(10, 5),
    Setting(20, 5),
    Setting(10, 10),
    Setting(20, 10),
    Setting(20, 5, BASE_CLASSES),
    Setting(8, 5, alike=True),
    Setting(8, 10, alike=True),
)


@dataclass(frozen=True, eq=False)
class Draw:
    """Photos of some classes, further photos to learn, test photos, and the photos of a base."""

    X: Floats
    y: Names
    more: dict[str, Floats]
    asked: Floats
    asked_for: Names
    base: tuple[Floats, Names] | None


@dataclass
class Tally:
    """Counts of firm suggestions and their results, summed over draws."""

    photos: int = 0
    wrong: int = 0
    moved: int = 0
    moved_right: int = 0
    removed: int = 0
    removed_right: int = 0
    looked_at: int = 0
    seen: int = 0  # wrong labels among all suggestions

    @property
    def firm(self) -> int:
        return self.moved + self.removed

    @property
    def right(self) -> int:
        return self.moved_right + self.removed_right


def halves(features: FeatureSet, half: str) -> NDArray[np.int64]:
    labels = np.arange(len(features.class_names))
    return labels[: len(labels) // 2] if half == "fit" else labels[len(labels) // 2 :]


def draw(features: FeatureSet, setting: Setting, half: str, seed: int) -> Draw:
    rng = np.random.default_rng([seed, setting.classes, setting.photos, setting.base])
    of_half = rng.permutation(halves(features, half))
    if setting.alike:
        of_half = nearest_first(features, of_half)
    chosen, base = of_half[: setting.classes], of_half[setting.classes : setting.classes + setting.base]
    names = np.array([f"class {label:03}" for label in range(len(features.class_names))])
    train, test = np.asarray(features.train_y), np.asarray(features.test_y)
    rows = {label: rng.permutation(np.flatnonzero(train == label)) for label in (*chosen, *base)}
    first = np.concatenate([rows[label][: setting.photos] for label in chosen])
    asked = np.flatnonzero(np.isin(test, chosen))

    def of(which: NDArray[np.int64]) -> Floats:
        return np.asarray(features.train_x[which], np.float32)

    known = np.concatenate([rows[label][:BASE_PHOTOS] for label in base]) if len(base) else None
    return Draw(
        of(first),
        names[train[first]],
        {str(names[label]): of(rows[label][setting.photos :]) for label in chosen},
        np.asarray(features.test_x[asked], np.float32),
        names[test[asked]],
        None if known is None else (of(known), names[train[known]]),
    )


def nearest_first(features: FeatureSet, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return classes in the order of similarity to the first one, by the mean of their training photos."""
    train = np.asarray(features.train_y)
    means = np.stack([np.asarray(features.train_x[train == label], np.float32).mean(axis=0) for label in labels])
    unit = unit_rows(means - means.mean(axis=0))
    return labels[np.argsort(-(unit @ unit[0]), kind="stable")]


def mislabeled(y: Names, share: float, rng: np.random.Generator) -> Names:
    """Return labels with a share of wrong ones."""
    labels = y.copy()
    for row in rng.permutation(len(y))[: round(share * len(y))]:
        labels[row] = rng.choice(np.setdiff1d(y, [y[row]]))
    return labels


def fitted(drawn: Draw, X: Floats, y: Names) -> Scorer:
    head = make_scorer("unbiased-lda")
    if drawn.base is not None:
        head = head.learn(*drawn.base)
        return head.adopt(head.memory.learn(class_statistics(head.embed(X), y)))
    return head.adopt(Memory(NO_CLASSES, class_statistics(head.embed(X), y)))


def accuracy(drawn: Draw, X: Floats, y: Names) -> float:
    return float((fitted(drawn, X, y).classify(drawn.asked) == drawn.asked_for).mean())


def reviewed(drawn: Draw, y: Names) -> Review:
    head = fitted(drawn, drawn.X, y)
    known = KnownPhotos(tuple(y.tolist()), tuple(map(str, range(len(y)))), drawn.X)
    return review_photos(head, head.memory, known, [str(row) for row in range(len(y))], state=1, seed=0)


def followed(found: Review, labels: Names, truth: Names, tally: Tally) -> tuple[NDArray[np.bool_], Names]:
    """Apply the firm suggestions; return which photos stay, and their labels."""
    names, counts = np.unique(labels, return_counts=True)
    firm = [one for one in found.suggestions if one.firm]
    stay, after = np.ones(len(labels), dtype=bool), labels.copy()
    for one in applicable(firm, dict(zip(names.tolist(), counts.tolist(), strict=True))):
        row = int(one.photo)
        if one.to is None:
            stay[row] = False
            tally.removed += 1
            tally.removed_right += bool(labels[row] != truth[row])
        else:
            after[row] = one.to
            tally.moved += 1
            tally.moved_right += bool(one.to == truth[row])
    suggested = {int(one.photo) for one in found.suggestions}
    tally.photos += len(labels)
    tally.wrong += int((labels != truth).sum())
    tally.looked_at += len(suggested)
    tally.seen += sum(bool(labels[row] != truth[row]) for row in suggested)
    return stay, after


def cells(
    features: FeatureSet, half: str, draws: int
) -> Iterator[tuple[Setting, float, Tally, NDArray[np.float64]]]:
    """Yield each setting and share of wrong labels, its tally, and accuracies before and after, (draws, 2)."""
    for setting in SETTINGS:
        for share in WRONG:
            tally, measured = Tally(), []
            for seed in range(draws):
                drawn = draw(features, setting, half, seed)
                labels = mislabeled(drawn.y, share, np.random.default_rng([seed, round(100 * share)]))
                stay, after = followed(reviewed(drawn, labels), labels, drawn.y, tally)
                before = accuracy(drawn, drawn.X, labels)
                changed = not stay.all() or (after != labels).any()
                measured.append((before, accuracy(drawn, drawn.X[stay], after[stay]) if changed else before))
            yield setting, share, tally, np.array(measured)


def advice(name: str, features: FeatureSet, half: str, draws: int) -> bool:
    """Print the table of one set of features, and return whether its firm suggestions are good enough."""
    print(
        f"\n| {name} | wrong labels | photos | firm | right | moved, right | removed, right | touched "
        "| of the wrong ones put right | shown | accuracy | after | difference |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    good, total = True, Tally()
    for setting, share, tally, measured in cells(features, half, draws):
        gain = measured[:, 1] - measured[:, 0]
        error = float(gain.std(ddof=1) / np.sqrt(len(gain)))
        worse = gain.mean() < -2 * error
        good &= not worse and (share > 0 or tally.firm <= TOUCHED * tally.photos)
        if share:
            total.moved, total.removed = total.moved + tally.moved, total.removed + tally.removed
            total.moved_right += tally.moved_right
            total.removed_right += tally.removed_right
        right = f"{100 * tally.right / tally.firm:.0f} %" if share and tally.firm else ""
        found = f"{100 * tally.right / tally.wrong:.0f} %" if share else ""
        shown = f"{100 * tally.seen / tally.wrong:.0f} %" if share else ""
        before, after = (f"{100 * value:.1f} %" for value in measured.mean(axis=0))
        columns = [
            setting.title,
            f"{100 * share:.0f} %",
            f"{tally.photos:,}",
            f"{tally.firm}",
            right,
            f"{tally.moved_right} of {tally.moved}",
            f"{tally.removed_right} of {tally.removed}",
            f"{100 * tally.firm / tally.photos:.2f} %",
            found,
            shown,
            before,
            after,
            f"{100 * gain.mean():+.2f} ± {100 * error:.2f}",
        ]
        print(f"| {' | '.join(columns)} |", flush=True)
    print(f"\n{name}: {total.right} of {total.firm} firm suggestions are right at 5 and 10 % wrong labels.")
    return good and total.right >= RIGHT * total.firm


def curves(features: FeatureSet, draws: int) -> None:
    """Print the expected and the measured gain of more photos."""
    print(
        "\n| classes | photos | left out | expected now | measured | "
        + " | ".join(f"expected with {more} more | measured" for more in MORE_PHOTOS)
        + " |"
    )
    print("|---|---|---|---|---|" + "---|---|" * len(MORE_PHOTOS))
    for classes, photos in ((5, 5), (20, 5), (20, 10), (50, 5)):
        rows = []
        for seed in range(draws):
            drawn = draw(features, Setting(classes, photos), "test", seed)
            found = reviewed(drawn, drawn.y)
            row = [found.accuracy]
            for more, expected in zip((0, *MORE_PHOTOS), found.expected, strict=True):
                X = np.concatenate([drawn.X, *(own[:more] for own in drawn.more.values())])
                y = np.concatenate([drawn.y, *(np.repeat(name, more) for name in drawn.more)])
                row += [expected, accuracy(drawn, X, y)]
            rows.append(row)
        shown = [f"{100 * value:.1f} %" for value in np.mean(np.array(rows, float), axis=0)]
        print(f"| {classes} | {photos} | " + " | ".join(shown) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", metavar="NAME=FEATURES", default=["cub200=embedded:cub200"])
    parser.add_argument("--half", choices=("fit", "test"), default="test", help="of the classes")
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    good = True
    with one_thread():
        for source in options.sources:
            name, _, place = source.partition("=")
            if place.endswith(".npz") and not Path(place).is_file():
                print(f"\n{name} is left out; no such file: {place}")
                continue
            features = opened(place)
            good &= advice(name, features, options.half, options.draws)
            if name == "cub200" and options.half == "test":
                curves(features, options.draws)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

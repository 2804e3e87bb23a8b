"""Try further values beside familiarity, to tell unknown photos without a base: on training photos alone.

    python benchmarks/unknown_ideas.py --general general.tar cifar100=cifar100.safetensors

In each draw some species are learned from a few photos; their other training photos are known, and those of all
other species are unknown. For the adapted features only species that the adapter has not seen take part. An idea
adds values to familiarity with weights. A logistic regression finds the weights in five draws of the plain
features, with 10, 20 and 50 species of five photos. A cell is the share of the unknown photos of five other draws
that are less familiar than 95 % of the known ones, in percent. The last two columns are the same for general
photographs, the worst of the draws.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from background import general_features
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from fiveshot.benchmark import get_protocol, open_features
from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.core.arrays import unit_rows
from fiveshot.core.scorers import Answer, make_scorer
from fiveshot.core.scorers.unbiased_lda import UnbiasedLDAScorer
from fiveshot.recognizer.recognition.background import general_background

Floats = NDArray[np.floating]
DRAWS, FITTED = 10, 5
MOST_UNKNOWN = 2500
RATE = 0.05
CHOICE = ((10, 5), (20, 5), (50, 5))  # species and photos of each, for the weights
SHOWN = ((20, 5), (50, 5), (20, 2), (20, 10))
SEEN = {"cub200": None, "cub200-big": "cub200/big", "cub200-small": "cub200/small", "cub200-vit": None}
PLAIN = "cub200"


@dataclass(frozen=True, eq=False)
class Asked:
    """Photos that a model without a base is asked about."""

    head: UnbiasedLDAScorer
    learned: Floats  # (m, d)
    codes: NDArray[np.intp]  # (m,): the class of each learned photo
    photos: Floats  # (n, d)

    @cached_property
    def answer(self) -> Answer:
        return self.head.answer(self.photos)

    @cached_property
    def best(self) -> NDArray[np.intp]:
        return np.asarray(self.answer.scores).argmax(axis=1)

    def white(self, X: Floats) -> Floats:
        """Return features whitened by the head, of length one."""
        found: Floats = unit_rows(self.head.whiten(self.head.embed(X) - self.head.model.spaces[0].origin))
        return found

    @cached_property
    def cosines(self) -> Floats:
        """The whitened cosine of each photo with each learned one, (n, m)."""
        return self.white(self.photos) @ self.white(self.learned).T

    @cached_property
    def among(self) -> Floats:
        """The whitened cosines of the learned photos, -1 with themselves, (m, m)."""
        white = self.white(self.learned)
        return np.where(np.eye(len(white), dtype=np.bool_), -1, white @ white.T)

    @property
    def own(self) -> NDArray[np.bool_]:
        """Whether a learned photo is of the class that a photo is taken for, (n, m)."""
        return self.codes[None] == self.best[:, None]

    @cached_property
    def left_out(self) -> Floats:
        """The largest cosine of each learned photo with another one of its class, (m,)."""
        return np.where(self.codes[None] == self.codes[:, None], self.among, -1).max(axis=1)


def length(asked: Asked) -> Floats:
    found: Floats = np.log(np.linalg.norm(asked.photos, axis=1))
    return found


def to_mean(asked: Asked) -> Floats:
    means = np.stack([asked.learned[asked.codes == code].mean(axis=0) for code in np.unique(asked.codes)])
    found: Floats = (asked.white(asked.photos) * asked.white(means)[asked.best]).sum(axis=1)
    return found


def to_single(asked: Asked) -> Floats:
    found: Floats = np.where(asked.own, asked.cosines, -1).max(axis=1)
    return found


def to_other(asked: Asked) -> Floats:
    found: Floats = np.where(asked.own, -1, asked.cosines).max(axis=1)
    return found


def rank(asked: Asked) -> Floats:
    """Return the conformal p-value: the rank among the left-out photos of all classes of this size."""
    found: Floats = np.searchsorted(np.sort(asked.left_out), to_single(asked)) / len(asked.left_out)
    return found


def rank_in_class(asked: Asked) -> Floats:
    below = asked.left_out[None] < to_single(asked)[:, None]
    found: Floats = (below & asked.own).sum(axis=1) / asked.own.sum(axis=1)
    return found


def level_of_class(asked: Asked) -> Floats:
    """Return how alike the photos of the class are: the mean of its left-out photos."""
    found: Floats = (asked.own * asked.left_out).sum(axis=1) / asked.own.sum(axis=1)
    return found


def to_all(asked: Asked) -> Floats:
    found: Floats = (unit_rows(asked.photos) @ unit_rows(asked.learned).T).mean(axis=1)
    return found


def to_background(asked: Asked) -> Floats:
    background = general_background()
    means = background.means([asked.learned[asked.codes == code] for code in np.unique(asked.codes)])
    return background.likeness(asked.photos, means)


Value = Callable[[Asked], Floats]
IDEAS: dict[str, tuple[Value, ...]] = {
    "familiarity alone": (),
    "the largest cosine with a photo of the class": (to_single,),
    "the same, and with a photo of another class": (to_single, to_other),
    "its rank among left-out photos of all classes": (rank,),
    "its rank among left-out photos of the class": (rank_in_class,),
    "how alike the photos of the class are": (level_of_class,),
    "whitened cosine with the mean of the class": (to_mean,),
    "log length of the features": (length,),
    "log length and whitened cosine": (length, to_mean),
    "log length, rank and how alike": (length, rank, level_of_class),
    "likeness before general photographs": (to_background,),
}
VALUES: tuple[Value, ...] = tuple(dict.fromkeys((*itertools.chain.from_iterable(IDEAS.values()), to_all)))
IDEAS["all of these, and the mean cosine with all photos"] = VALUES


@dataclass(frozen=True, eq=False)
class Measured:
    """Familiarity and further values of photos, and whether they are unknown, known or of other things."""

    values: Floats  # (n, 1 + values)
    kind: NDArray[np.int64]  # (n,): 0 is unknown, 1 is known, 2 shows other things

    def rejected(self, weights: Floats, kind: int = 0) -> float:
        found = self.values @ weights
        return 100 * float((found[self.kind == kind] < np.quantile(found[self.kind == 1], RATE)).mean())


def measured(X: Floats, y: NDArray[np.int64], cell: tuple[int, int], seed: int, general: Floats) -> Measured:
    species, shots = cell
    rng = np.random.default_rng([seed, species, shots])
    known = np.sort(rng.permutation(np.unique(y))[:species])
    rows = [rng.permutation(np.flatnonzero(y == label)) for label in known]
    learned, more = (np.concatenate([own[part] for own in rows]) for part in (slice(shots), slice(shots, None)))
    others = rng.permutation(np.flatnonzero(~np.isin(y, known)))[:MOST_UNKNOWN]
    head = make_scorer()
    head = head.adopt(Memory(NO_CLASSES, class_statistics(head.embed(X[learned]), y[learned])))
    asked = Asked(
        head, X[learned], np.searchsorted(known, y[learned]), np.concatenate([X[more], X[others], general])
    )
    fits = X.shape[1] == general_background().center.shape[0]
    columns = [
        value(asked) if fits or value is not to_background else np.zeros(len(asked.photos)) for value in VALUES
    ]
    kind = np.repeat([1, 0, 2], [len(more), len(others), len(general)])
    return Measured(np.stack([np.asarray(asked.answer.familiarity), *columns], axis=1), kind)


def fitted(columns: list[int], draws: Sequence[Measured]) -> Floats:
    """Return the weights of all values; those of other ideas are 0."""
    used = [one.kind < 2 for one in draws]
    X = [one.values[rows][:, columns] for one, rows in zip(draws, used, strict=True)]
    y = [one.kind[rows] for one, rows in zip(draws, used, strict=True)]
    centered = np.concatenate([rows - rows[kind == 1].mean(axis=0) for rows, kind in zip(X, y, strict=True)])
    scale = centered.std(axis=0)
    model = LogisticRegression(class_weight="balanced").fit(centered / scale, np.concatenate(y))
    weights = np.zeros(1 + len(VALUES))
    weights[columns] = model.coef_[0] / scale
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--general", type=Path, required=True, help="archive of photographs of anything")
    parser.add_argument("more", nargs="*", metavar="NAME=FILE", help="features of the embedded network")
    options = parser.parse_args()
    general = general_features(options.general)
    further = dict(text.split("=", 1) for text in options.more)
    found: dict[str, dict[tuple[int, int], list[Measured]]] = {}
    for name in (*SEEN, *further):
        features = open_features(further.get(name, f"embedded:{name}"))
        protocol = SEEN.get(name)
        seen = get_protocol(protocol).session_classes[0] if protocol else ()
        rows = np.flatnonzero(~np.isin(features.train_y, seen))
        X, y = np.asarray(features.train_x[rows], dtype=np.float32), features.train_y[rows]
        things = general if X.shape[1] == general.shape[1] else X[:0]
        cells = dict.fromkeys((*CHOICE, *SHOWN) if name == PLAIN else SHOWN[:2])
        found[name] = {cell: [measured(X, y, cell, seed, things) for seed in range(DRAWS)] for cell in cells}
    shown = [(name, cell) for name, cells in found.items() for cell in cells if cell in SHOWN]
    titles = [f"{name}, {species} x {shots}" for name, (species, shots) in shown]
    worst = [(PLAIN, cell) for cell in ((20, 5), (20, 2))]
    titles += [f"general photographs, {species} x {shots}" for _, (species, shots) in worst]
    print("| beside familiarity | " + " | ".join(titles) + " |")
    print("|" + "---|" * (1 + len(titles)))
    choice = [one for cell in CHOICE for one in found[PLAIN][cell][:FITTED]]
    for idea, values in IDEAS.items():
        weights = fitted([0, *(1 + VALUES.index(value) for value in values)], choice)
        cells = [np.mean([one.rejected(weights) for one in found[name][cell][FITTED:]]) for name, cell in shown]
        cells += [min(one.rejected(weights, 2) for one in found[name][cell][FITTED:]) for name, cell in worst]
        print(f"| {idea} | " + " | ".join(f"{value:.1f}" for value in cells) + " |", flush=True)


if __name__ == "__main__":
    main()

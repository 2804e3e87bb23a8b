"""Photos asked of heads that have not learned them: those of one class, all of a model, and a learning curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import ClassStatistics, ClassSummary, Memory, summarize
from fiveshot.core.labels import python_labels
from fiveshot.recognizer.store.contents import KnownPhotos
from fiveshot.recognizer.store.rows import Floats

if TYPE_CHECKING:
    from fiveshot.core.scorers import Scorer

FOLDS = 10  # up to so many photos each is left out alone; of more, a tenth at a time
JOINT_FROM = 100  # known classes from which on one class more or less hardly moves what classes share
ASKED_AT_ONCE = 1024  # photos, which bounds the memory that many classes take
CURVE_SIZES = (1, 2, 4, 8, 16)  # photos a class of the points of a learning curve
CURVE_DRAWS = 2
MOST_ASKED = 2000  # photos at a point of a curve
USUAL_FALL, USUAL_WEIGHT = 0.5, 5.0  # the error of n photos falls as 1 / √n where few mistakes say otherwise

Values = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """How photos of one class score for it, and for all others."""

    own: NDArray[np.float64]  # (n,)
    others: NDArray[np.float64]  # (n, n_others), in the order of the other classes' labels
    share: NDArray[np.float64]  # (n,): probability of the own class against the strongest other one

    @property
    def recognized(self) -> NDArray[np.bool_]:
        """Whether each photo scores better for its class than for every other, (n,)."""
        better: NDArray[np.bool_] = self.own > self.others.max(axis=1)
        return better


def fold_numbers(count: int) -> NDArray[np.intp]:
    """Return the fold of each of ``count`` photos, evenly spread.

    >>> fold_numbers(3).tolist(), fold_numbers(12).tolist()
    ([0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1])
    """
    return np.arange(count) % min(max(count, 1), FOLDS)


def without_fold(X: Floats, folds: NDArray[np.intp], fold: int, known: ClassSummary | None) -> ClassSummary:
    """Return the summary of a class that lacks one fold of its photos; ``known`` are photos beside X."""
    kept = X[folds != fold]
    if not len(kept):
        if known is None:
            raise ValueError("nothing would be left of the class")
        return known
    return summarize(kept) if known is None else known.merge(summarize(kept))


def held_out_scores(
    head: Scorer, others: Memory, X: Floats, *, known: ClassSummary | None = None
) -> HeldOutScores | None:
    """Score each photo by a head that knows the other classes and this one without the photo.

    ``head`` is fitted on any memory and stays as it is. Without at least one photo to compare with, None.
    """
    folds = fold_numbers(len(X))
    if known is None and folds.max() == 0:
        return None
    embedded = head.embed(X)
    variants = [without_fold(embedded, folds, fold, known) for fold in range(folds.max() + 1)]
    joint = len(others.labels) >= JOINT_FROM
    groups = [list(range(len(variants)))] if joint else [[fold] for fold in range(len(variants))]
    own, share = np.empty(len(X)), np.empty(len(X))
    rest = np.empty((len(X), len(others.labels)))
    probe = head
    for group in groups:
        # No class name may hold a control character, so these are not names; they sort before all names.
        labels = np.array([f"\x01{fold}" for fold in group])
        present = ClassStatistics(labels, tuple(variants[fold] for fold in group))
        memory = Memory(others.base, others.new.merge(present))
        probe = head.sketch(memory) if joint else probe.adopt(memory)
        rows = np.flatnonzero(np.isin(folds, group))
        columns = np.searchsorted(group, folds[rows])
        scores = probe.scores(X[rows])
        own[rows], rest[rows] = scores[np.arange(len(rows)), columns], scores[:, len(group) :]
        share[rows] = _shares(own[rows], rest[rows], probe.softmax_factor())
    return HeldOutScores(own, rest, share)


def _shares(own: Values, others: Values, factor: float) -> Values:
    """Return the probability of the own class against the strongest other one, from their scores."""
    if not others.shape[1]:
        return np.ones(len(own))
    shares: Values = 1 / (1 + np.exp(np.clip(factor * (others.max(axis=1) - own), None, 700)))
    return shares


@dataclass(frozen=True, eq=False)
class Judged:
    """What heads that had not learned a photo say of it; NaN where that cannot be said, as of a single photo."""

    own: Values  # (n,): probability of its class
    rival: Values  # (n,): probability of the strongest other class
    taken_for: NDArray[np.intp]  # (n,): that class, by its place among the labels

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which photos could be judged."""
        return ~np.isnan(self.own)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which were recognized."""
        return self.own > self.rival


@dataclass(frozen=True)
class LearningCurve:
    """The share of mistakes as a function of the photos of each class: ``level`` · n ^ -``fall``.

    >>> curve = LearningCurve(level=0.4, fall=0.5)
    >>> curve.error(1), round(curve.error(4), 3)
    (0.4, 0.2)
    """

    level: float
    fall: float

    def error(self, photos: float) -> float:
        """Return the expected share of mistakes with so many photos of each class."""
        return float(min(1.0, self.level * max(photos, 1.0) ** -self.fall))


class Leaving:
    """The photos of a model, and heads that have learned all but some of them.

    In each turn a part of the photos of every class is left out together. ``known`` is what a class has beside
    these photos: the statistics of a base class. The head that is given is not changed.
    """

    def __init__(
        self,
        head: Scorer,
        memory: Memory,
        photos: KnownPhotos,
        known: Mapping[str, ClassSummary] | None = None,
    ) -> None:
        self.memory, self.labels, self.X = memory, memory.labels, photos.features
        self.embedded: Floats = head.embed(self.X) if len(self.X) else self.X
        self.codes: Rows = np.searchsorted(self.labels, np.asarray(photos.labels, dtype=self.labels.dtype))
        self.rows = {int(code): np.flatnonzero(self.codes == code) for code in np.unique(self.codes)}
        self._beside = {int(np.searchsorted(self.labels, name)): one for name, one in (known or {}).items()}
        self._folds = np.full(len(self.X), -1)  # -1: never left out
        for code, rows in self.rows.items():
            if len(rows) > 1 or code in self._beside:
                self._folds[rows] = fold_numbers(len(rows))
        self._head = head
        self._turns: dict[int, Scorer] = {}

    def judge(self, without: frozenset[int] = frozenset()) -> Judged:
        """Ask each photo of a head that has learned all others but those of its turn, and none of ``without``.

        What classes share is that of the turn, with photos of ``without``: leaving some out costs little so.
        """
        judged = nothing_judged(len(self.X))
        left_out = np.isin(np.arange(len(self.X)), list(without))
        for turn in range(int(self._folds.max(initial=-1)) + 1):
            asked = np.flatnonzero((self._folds == turn) & ~left_out)
            probe = self._of_turn(turn)
            changed = {int(self.codes[row]) for row in without if self._folds[row] != turn}
            if changed:
                away = left_out | (self._folds == turn)
                probe = probe.sketch(_replaced(probe.memory, self._summaries(changed, away)))
            self._ask(probe, asked, judged)
        return judged

    def curve(self, rng: np.random.Generator) -> LearningCurve | None:
        """Learn random subsets of the photos, ask about the others, and draw a curve through the mistakes."""
        most = max((len(rows) for rows in self.rows.values()), default=0)
        points = [self._mistakes(size, rng) for size in CURVE_SIZES if size < most]
        points = [point for point in points if point[2]]
        return fitted_curve(*map(np.array, zip(*points, strict=True))) if points else None

    def _mistakes(self, size: int, rng: np.random.Generator) -> tuple[int, int, int]:
        """Return the size, and how many photos were taken for another class, of how many."""
        wrong = total = 0
        able = {code: rows for code, rows in self.rows.items() if len(rows) > size and code not in self._beside}
        for _ in range(CURVE_DRAWS if able else 0):
            away = np.zeros(len(self.X), dtype=bool)
            for rows in able.values():
                away[rng.permutation(rows)[size:]] = True
            asked, judged = rng.permutation(np.flatnonzero(away))[:MOST_ASKED], nothing_judged(len(self.X))
            self._ask(self._learned(self._summaries(able, away)), asked, judged)
            wrong += int((~judged.right[asked]).sum())
            total += len(asked)
        return size, wrong, total

    def _of_turn(self, turn: int) -> Scorer:
        if turn not in self._turns:
            away = self._folds == turn
            self._turns[turn] = self._learned(self._summaries(set(self.codes[away].tolist()), away))
        return self._turns[turn]

    def _summaries(self, codes: Iterable[int], away: NDArray[np.bool_]) -> dict[str, ClassSummary]:
        """Return the statistics of classes that lack some of their photos."""
        return {
            str(self.labels[code]): without_fold(
                self.embedded[self.rows[code]], away[self.rows[code]].astype(np.intp), 1, self._beside.get(code)
            )
            for code in codes
        }

    def _learned(self, summaries: Mapping[str, ClassSummary]) -> Scorer:
        memory = _replaced(self.memory, summaries)
        many = len(self.labels) >= JOINT_FROM
        return self._head.sketch(memory) if many else self._head.adopt(memory)

    def _ask(self, probe: Scorer, asked: Rows, judged: Judged) -> None:
        """Note what a head says of photos."""
        for start in range(0, len(asked), ASKED_AT_ONCE):
            rows = asked[start : start + ASKED_AT_ONCE]
            chances = np.array(probe.answer(self.X[rows]).probabilities, dtype=np.float64)
            each, own = np.arange(len(rows)), self.codes[rows]
            judged.own[rows] = chances[each, own]
            chances[each, own] = -1.0
            judged.taken_for[rows] = chances.argmax(axis=1)
            judged.rival[rows] = chances.max(axis=1)


def nothing_judged(n: int) -> Judged:
    """Return what is known of photos that nobody was asked about."""
    return Judged(np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.intp))


def _replaced(memory: Memory, named: Mapping[str, ClassSummary]) -> Memory:
    """Return a memory in which some classes have other statistics."""

    def part(statistics: ClassStatistics) -> ClassStatistics:
        own = zip(python_labels(statistics.labels), statistics.summaries, strict=True)
        return ClassStatistics(statistics.labels, tuple(named.get(str(label), one) for label, one in own))

    return Memory(part(memory.base), part(memory.new))


def fitted_curve(sizes: NDArray[np.int64], wrong: NDArray[np.int64], total: NDArray[np.int64]) -> LearningCurve:
    """Return the curve through mistakes at some numbers of photos; few mistakes leave it at its usual fall.

    >>> curve = fitted_curve(np.array([1, 4]), np.array([400, 200]), np.array([1000, 1000]))
    >>> round(curve.level, 2), round(curve.fall, 2)
    (0.4, 0.5)
    """
    x, y = np.log(sizes), np.log((wrong + 0.5) / (total + 1))
    weights = wrong + 0.5  # log of a count has a variance of about one over it
    x0, y0 = np.average(x, weights=weights), np.average(y, weights=weights)
    spread = float((weights * (x - x0) ** 2).sum())
    slope = -float((weights * (x - x0) * (y - y0)).sum())
    fall = float(np.clip((slope + USUAL_WEIGHT * USUAL_FALL) / (spread + USUAL_WEIGHT), 0.0, 1.5))
    return LearningCurve(float(np.exp(y0 + fall * x0)), fall)

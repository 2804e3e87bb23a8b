"""Answers for learned photos by heads that have not learned them: "recognized when left out" means this."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import ClassStatistics, ClassSummary, Memory, summarize
from fiveshot.core.labels import python_labels
from fiveshot.recognizer.store.contents import Contents, KnownPhotos
from fiveshot.recognizer.store.rows import Floats, number_bytes

if TYPE_CHECKING:
    from fiveshot.core.scorers import Scorer

FOLDS = 10  # up to this number of photos each is left out alone; of more, a tenth at a time
MANY = 500  # with this number of classes, only photos of the classes in question are left out, to save time
ASKED_AT_ONCE = 1024  # photos; this limits the memory for many classes
CURVE_SIZES = (1, 2, 4, 8, 16)  # photos of each class, for the points of a learning curve
CURVE_DRAWS = 2
MOST_ASKED = 2000  # photos at a point of a curve
USUAL_FALL, USUAL_WEIGHT = 0.5, 5.0  # the error of n photos is taken to fall as 1 / √n if there are few mistakes

Values = NDArray[np.float64]
Rows = NDArray[np.intp]


def fold_numbers(count: int) -> NDArray[np.intp]:
    """Return the fold of each of ``count`` photos, evenly spread.

    >>> fold_numbers(3).tolist(), fold_numbers(12).tolist()
    ([0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1])
    """
    return np.arange(count) % min(max(count, 1), FOLDS)


def without_fold(X: Floats, folds: NDArray[np.intp], fold: int, known: ClassSummary | None) -> ClassSummary:
    """Return the summary of a class without one fold of its photos; ``known`` has further photos, beside X."""
    kept = X[folds != fold]
    if not len(kept):
        if known is None:
            raise ValueError("nothing would be left of the class")
        return known
    return summarize(kept) if known is None else known.merge(summarize(kept))


@dataclass(frozen=True, eq=False)
class Judged:
    """Answers by heads that have not learned the photo; NaN if there is none, as for a class of one photo."""

    own: Values  # (n,): probability of its class
    rival: Values  # (n,): probability of the strongest other class
    taken_for: NDArray[np.intp]  # (n,): that class, by its place among the labels

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which photos have an answer."""
        return ~np.isnan(self.own)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which were recognized."""
        return self.own > self.rival

    @property
    def share(self) -> Values:
        """Probability of the own class against the strongest other one, (n,)."""
        both = self.own + self.rival
        shares: Values = np.divide(self.own, both, out=np.full(len(both), np.nan), where=both > 0)
        return shares

    def __getitem__(self, rows: Rows) -> Judged:
        return Judged(self.own[rows], self.rival[rows], self.taken_for[rows])


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
        """Return the expected share of mistakes with this number of photos of each class."""
        return float(min(1.0, self.level * max(photos, 1.0) ** -self.fall))


class HeldOutHeads:
    """The photos of a model, and heads that have learned all but some of them.

    In each turn a part of the photos of every class is left out together, because what all classes share, such
    as a covariance, must not know them either. ``known`` has the statistics of base classes without these photos.
    The given head is not changed.
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
                # In the order of their features, so that the turns do not depend on the order of the photos.
                in_order = sorted(rows.tolist(), key=lambda row: number_bytes(self.X[row]))
                self._folds[in_order] = fold_numbers(len(rows))
        self._head = head
        self._turns: dict[int, Scorer] = {}

    def of(self, name: str) -> Rows:
        """Return the rows of a class's photos."""
        return self.rows.get(int(np.searchsorted(self.labels, name)), np.zeros(0, np.intp))

    def judge(self, names: Iterable[str] | None = None, *, without: frozenset[int] = frozenset()) -> Judged:
        """Answer each photo with a head that has learned neither the photos of its turn nor those of ``without``.

        ``names`` are the classes whose photos are answered, by default all. What the classes share still knows
        the photos of ``without``, which saves most of the time.
        """
        judged = nothing_judged(len(self.X))
        if len(self.labels) < 2:
            return judged
        left_out = np.isin(np.arange(len(self.X)), list(without))
        wanted = np.ones(len(self.X), dtype=bool)
        if names is not None:
            wanted = np.isin(np.arange(len(self.X)), np.concatenate([self.of(name) for name in names]))
        for turn in range(int(self._folds.max(initial=-1)) + 1):
            asked = np.flatnonzero((self._folds == turn) & wanted & ~left_out)
            if not len(asked):
                continue
            probe = self._of_turn(turn)
            changed = {int(self.codes[row]) for row in without if self._folds[row] != turn}
            if changed:
                away = left_out | (self._folds == turn)
                probe = probe.sketch(_replaced(probe.memory, self._summaries(changed, away)))
            self._ask(probe, asked, judged)
        return judged

    def curve(self, rng: np.random.Generator) -> LearningCurve | None:
        """Learn random subsets of the photos, answer the others, and fit a curve to the shares of mistakes."""
        most = max((len(rows) for rows in self.rows.values()), default=0)
        points = [self._mistakes(size, rng) for size in CURVE_SIZES if size < most]
        points = [point for point in points if point[2]]
        return fitted_curve(*map(np.array, zip(*points, strict=True))) if points else None

    def _mistakes(self, size: int, rng: np.random.Generator) -> tuple[int, int, int]:
        """Return the size, how many photos were taken for another class, and how many were answered."""
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
        """Return the statistics of classes without some of their photos."""
        return {
            str(self.labels[code]): without_fold(
                self.embedded[self.rows[code]], away[self.rows[code]].astype(np.intp), 1, self._beside.get(code)
            )
            for code in codes
        }

    def _learned(self, summaries: Mapping[str, ClassSummary]) -> Scorer:
        return self._head.adopt(_replaced(self.memory, summaries))

    def _ask(self, probe: Scorer, asked: Rows, judged: Judged) -> None:
        """Store the answers of a head for some photos."""
        for start in range(0, len(asked), ASKED_AT_ONCE):
            rows = asked[start : start + ASKED_AT_ONCE]
            chances = np.array(probe.answer(self.X[rows]).probabilities, dtype=np.float64)
            each, own = np.arange(len(rows)), self.codes[rows]
            judged.own[rows] = chances[each, own]
            chances[each, own] = -1.0
            judged.taken_for[rows] = chances.argmax(axis=1)
            judged.rival[rows] = chances.max(axis=1)


def leaving_of(
    head: Scorer,
    memory: Memory,
    contents: Contents,
    names: Collection[str],
    learned: Mapping[str, Floats] | None = None,
) -> HeldOutHeads:
    """Return the photos and heads that are needed to judge the photos of some classes of a model.

    ``learned`` has features of photos that are being learned, which come after the stored ones; ``memory`` knows
    them. The head may belong to another state.
    """
    few = len(memory.labels) < MANY
    parts = [
        *((one.name, one.sha256s, one.features) for one in contents.classes.values() if few or one.name in names),
        *((name, ("",) * len(rows), rows) for name, rows in (learned or {}).items()),
    ]
    photos = KnownPhotos(
        tuple(name for name, sha256s, _ in parts for _ in sha256s),
        tuple(sha256 for _, sha256s, _ in parts for sha256 in sha256s),
        np.concatenate([np.zeros((0, contents.width), np.float32), *(features for *_, features in parts)]),
    )
    known = {name: contents.base_file[name] for name, *_ in parts if name in contents.base_file}
    return HeldOutHeads(head, memory, photos, known)


def nothing_judged(n: int) -> Judged:
    """Return a result without any answer yet."""
    return Judged(np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.intp))


def _replaced(memory: Memory, named: Mapping[str, ClassSummary]) -> Memory:
    """Return a memory in which some classes have other statistics."""

    def part(statistics: ClassStatistics) -> ClassStatistics:
        own = zip(python_labels(statistics.labels), statistics.summaries, strict=True)
        return ClassStatistics(statistics.labels, tuple(named.get(str(label), one) for label, one in own))

    return Memory(part(memory.base), part(memory.new))


def fitted_curve(sizes: NDArray[np.int64], wrong: NDArray[np.int64], total: NDArray[np.int64]) -> LearningCurve:
    """Return the curve that fits mistakes at some numbers of photos; with few mistakes it has its usual fall.

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

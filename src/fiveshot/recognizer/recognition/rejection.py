"""When a photo is called unknown: a threshold on its familiarity, by how well the nearest class is known.

Thresholds are set on held-out photos of a base, or on the learned photos themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.core import ClassStatistics, ClassSummary, Memory, summarize
from fiveshot.core.labels import Label, as_labels, python_labels
from fiveshot.errors import InputError
from fiveshot.recognizer.recognition.held_out import fold_numbers, without_fold
from fiveshot.recognizer.store.contents import Contents, KnownPhotos
from fiveshot.recognizer.store.manifest import check_rate
from fiveshot.recognizer.store.rows import Floats

if TYPE_CHECKING:
    from fiveshot.heads import FewShotHead

Values = NDArray[np.float64]
SHOTS = (1, 2, 3, 5, 10, 20, 50)
LEAST_CLASSES = 10  # of a base whose classes stand for those learned later
CLASS_FOLDS = 4  # a quarter of the base classes at a time plays the new ones
HELD_OUT = 20  # photos of a class at most; a quarter of them where it has fewer than 80
SAMPLES = 200  # learned photos that are left out at most, which bounds the time that learning takes


@dataclass(frozen=True)
class Rejection:
    """Thresholds on familiarity for classes of some numbers of photos; between them, linear in log n.

    Without thresholds nothing is rejected; ``note`` says on what they rest, or why there are none.

    >>> rejection = Rejection(0.05, counts=(1, 100), thresholds=(-4.0, -2.0), note="an example")
    >>> rejection.threshold(10), rejection.threshold(1000)
    (-3.0, -2.0)
    """

    false_rejection: float
    counts: tuple[int, ...] = ()
    thresholds: tuple[float, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be interpolated."""
        check_rate(self.false_rejection)
        if len(self.counts) != len(self.thresholds) or list(self.counts) != sorted(set(self.counts)):
            raise InputError(f"thresholds {self.thresholds} do not fit the counts {self.counts}, which must rise")
        if not all(map(math.isfinite, self.thresholds)) or not all(count >= 1 for count in self.counts):
            raise InputError(f"counts {self.counts} must be positive and thresholds {self.thresholds} finite")

    def threshold(self, count: int) -> float:
        """Return the familiarity below which a photo is unknown, given the photos of its nearest class."""
        return float(self.thresholds_of(np.array([count]))[0])

    def thresholds_of(self, counts: ArrayLike) -> Values:
        """Return the thresholds for several classes at once; minus infinity rejects nothing."""
        counts = np.asarray(counts, dtype=np.float64)
        if not self.counts:
            return np.full(counts.shape, -np.inf)
        interpolated: Values = np.interp(np.log(counts), np.log(self.counts), self.thresholds)
        return interpolated

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rejection:
        """Read what ``as_dict`` wrote."""
        try:
            return cls(
                float(values["false_rejection"]),
                tuple(int(count) for count in values["counts"]),
                tuple(float(threshold) for threshold in values["thresholds"]),
                str(values["note"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"these are not the thresholds of a rejection ({error!r})") from error


def photos_needed(rate: float) -> int:
    """Return how many held-out photos a threshold needs.

    >>> photos_needed(0.05)
    19
    """
    return math.ceil(1 / rate - 1e-9) - 1


def quantile_threshold(familiarity: ArrayLike, rate: float) -> float:
    """Return the threshold below which a further photo of the same kind falls with probability ``rate`` at most.

    Among n + 1 photos in any order each rank is equally likely, so a new one falls below the k-th smallest of n
    with probability k / (n + 1): the largest such k counts, whatever the distribution.
    """
    values = np.sort(np.asarray(familiarity, dtype=np.float64))
    k = math.floor(rate * (len(values) + 1) + 1e-9)
    if k < 1:
        raise InputError(
            f"{len(values)} photos are too few for a rate of {rate:g}", hint=f"{photos_needed(rate)} are needed"
        )
    return float(values[k - 1])


@dataclass(frozen=True, eq=False)
class _BaseClass:
    kept: Floats  # (n, d): photos to learn from
    held: Floats  # (m, d): photos to be recognized
    summary: ClassSummary  # of those kept


def fit_rejection(
    head: FewShotHead, X: Floats, y: ArrayLike, *, false_rejection: float = 0.05, seed: int
) -> Rejection:
    """Return thresholds at which ``false_rejection`` of the photos of known classes are called unknown.

    ``X`` and ``y`` are training features of the base session, on which ``head`` was fitted; it is not changed.
    A quarter of each class's photos is held out. With all classes known from the others, they give the
    threshold of many-shot classes. For n = 1, 2, 3, 5, ... a quarter of the classes at a time is learned again
    from n photos, and the threshold of n-shot classes is what then makes the rate of *their* photos right,
    those taken for a many-shot class included. Few base classes say little about others, so with fewer than ten
    there are no thresholds, and the learned photos are to give them.
    """
    needed = photos_needed(check_rate(false_rejection))
    classes = dict(_split(head, X, as_labels(y), np.random.default_rng([seed, 0])))
    held = sum(len(one.held) for one in classes.values())
    if len(classes) < LEAST_CLASSES:
        note = f"a base of fewer than {LEAST_CLASSES} classes does not show how unlike new ones may be"
        return Rejection(false_rejection, note=note)
    if held < needed:
        note = f"nothing is rejected: the base leaves {held} photos to hold out, {needed} are needed"
        return Rejection(false_rejection, note=note)
    base = ClassStatistics.of({label: one.summary for label, one in classes.items()})
    probe = copy(head)  # what a head has learned is immutable and replaced, so the original keeps its own
    many = int(np.median([one.summary.count for one in classes.values()]))
    found = {many: quantile_threshold(_many_shot(probe, base, classes), false_rejection)}
    for shots in SHOTS:
        if shots < many:
            familiar, is_new = _few_shot(probe, base, classes, shots=shots, seed=seed)
            if is_new.sum() >= needed:
                found[shots] = _few_shot_threshold(familiar, is_new, found[many], false_rejection)
    counts = tuple(sorted(found))
    note = f"set on {held} held-out photos of {len(classes)} base classes"
    return Rejection(false_rejection, counts, tuple(found[count] for count in counts), note)


def known_thresholds(contents: Contents) -> Rejection | None:
    """Return the thresholds of a model where no head is needed for them; None: the learned photos give them."""
    manifest = contents.manifest
    if manifest.rejection:
        of_base = Rejection.from_dict(manifest.rejection)
        if of_base.counts:
            return of_base
    rate, held = manifest.options.false_rejection, _held_out_of(contents)
    if not len(contents.memory.labels):
        return Rejection(rate, note="nothing is rejected yet: no class is known")
    return None if held >= photos_needed(rate) else Rejection(rate, note=shots_note(rate, held))


def thresholds_note(contents: Contents) -> str:
    """Say on what the thresholds of a model rest, without computing them."""
    known = known_thresholds(contents)
    if known is not None:
        return known.note
    return shots_note(contents.manifest.options.false_rejection, _held_out_of(contents))


def shots_note(rate: float, held: int) -> str:
    """Say on what thresholds rest that the learned photos give, or why there are none."""
    needed = photos_needed(rate)
    if held < needed:
        return f"nothing is rejected yet: {needed} photos of classes with two or more are needed, not {held}"
    return f"set on {held} learned photos, left out in turn"


def rejection_from_shots(
    head: FewShotHead, memory: Memory, photos: KnownPhotos, *, false_rejection: float = 0.05
) -> Rejection:
    """Return one threshold for all classes from the learned photos, each scored by a head without it.

    It follows from the present classes and photos alone, so a forgotten class leaves no trace in it. The head is
    not changed. With fewer photos than the rate needs, nothing is rejected.
    """
    rows = _rows_by_class(memory.new, photos)
    counts = {label: len(own) for label, own in rows.items()}
    note = shots_note(check_rate(false_rejection), _held_out(counts))
    if _held_out(counts) < photos_needed(false_rejection):
        return Rejection(false_rejection, note=note)
    probe = copy(head)
    familiar = np.concatenate([_left_out(probe, memory, photos, rows, turn) for turn in _turns(counts)])
    return Rejection(false_rejection, (1,), (quantile_threshold(familiar, false_rejection),), note)


def _split(
    head: FewShotHead, X: Floats, labels: NDArray[np.generic], rng: np.random.Generator
) -> Iterator[tuple[Label, _BaseClass]]:
    for label in python_labels(np.unique(labels)):
        rows = rng.permutation(np.flatnonzero(labels == label))
        held = min(max(1, len(rows) // 4), HELD_OUT, len(rows) - 1)
        kept = X[rows[held:]]
        yield label, _BaseClass(kept, X[rows[:held]], summarize(head.embed(kept)))


def _many_shot(probe: FewShotHead, base: ClassStatistics, classes: Mapping[Label, _BaseClass]) -> Values:
    probe.adopt(Memory(base))
    familiar: Values = probe.familiarity(np.concatenate([one.held for one in classes.values()]))
    return familiar


def _few_shot(
    probe: FewShotHead, base: ClassStatistics, classes: Mapping[Label, _BaseClass], *, shots: int, seed: int
) -> tuple[Values, NDArray[np.bool_]]:
    """Return how familiar held-out photos of few-shot classes are, and whether they were taken for one."""
    rng = np.random.default_rng([seed, shots])
    able = [label for label, one in classes.items() if len(one.kept) >= shots]
    familiar: list[NDArray[Any]] = [np.empty(0)]
    is_new: list[NDArray[np.bool_]] = [np.empty(0, dtype=bool)]
    for fold in range(CLASS_FOLDS):
        new = able[fold::CLASS_FOLDS]
        if not new or len(new) == len(classes):
            continue
        drawn = {label: summarize(probe.embed(_draw(classes[label].kept, shots, rng))) for label in new}
        probe.adopt(Memory(base.drop(new), ClassStatistics.of(drawn)))
        held = np.concatenate([classes[label].held for label in new])
        answer = probe.answer(held)
        familiar.append(answer.familiarity)
        is_new.append(np.isin(probe.classes_[answer.scores.argmax(axis=1)], new))
    return np.concatenate(familiar), np.concatenate(is_new)


def _draw(rows: Floats, count: int, rng: np.random.Generator) -> Floats:
    drawn: Floats = rows[rng.permutation(len(rows))[:count]]
    return drawn


def _few_shot_threshold(familiar: Values, is_new: NDArray[np.bool_], many: float, rate: float) -> float:
    # Photos taken for a many-shot class are rejected by its threshold; the others make up the rest of the rate.
    rejected = int((familiar[~is_new] < many).sum())
    k = max(1, math.floor(rate * (len(familiar) + 1)) - rejected)
    return float(np.sort(familiar[is_new])[min(k, int(is_new.sum())) - 1])


def _rows_by_class(statistics: ClassStatistics, photos: KnownPhotos) -> dict[Label, NDArray[np.intp]]:
    """Return the photos of each class that has two or more and all of them at hand."""
    labels = np.asarray(photos.labels, dtype=np.str_)
    order = np.argsort(labels, kind="stable")
    names, starts = np.unique(labels[order], return_index=True)
    rows = dict(zip(python_labels(names), np.split(order, starts[1:]), strict=True)) if len(names) else {}
    return {
        label: own
        for label, own in rows.items()
        if label in statistics and len(own) == statistics[label].count and len(own) > 1
    }


def _turns(counts: Mapping[Label, int]) -> Iterator[list[tuple[Label, int]]]:
    """Yield the (class, fold) pairs that are left out at the same time: one fold of a class, of many classes."""
    left = SAMPLES
    folds = {label: int(fold_numbers(count).max()) + 1 for label, count in counts.items()}
    for fold in range(max(folds.values(), default=0)):
        able = [label for label, own in folds.items() if fold < own]
        turn = able[:: math.ceil(len(able) / left)]  # evenly from all classes
        yield [(label, fold) for label in turn]
        left -= len(turn)
        if 4 * left <= SAMPLES:  # a turn costs the same for a few photos as for many
            return


def _held_out_of(contents: Contents) -> int:
    counts = {one.name: len(one.sha256s) for one in contents.classes.values() if not one.base}
    return _held_out({name: counts[name] for name in sorted(counts) if counts[name] > 1})


def _held_out(counts: Mapping[Label, int]) -> int:
    """Return how many photos all turns leave out."""
    turns = (pair for turn in _turns(counts) for pair in turn)
    return sum(int((fold_numbers(counts[label]) == fold).sum()) for label, fold in turns)


def _left_out(
    probe: FewShotHead,
    memory: Memory,
    photos: KnownPhotos,
    rows: Mapping[Label, NDArray[np.intp]],
    turn: list[tuple[Label, int]],
) -> Values:
    summaries = dict(zip(python_labels(memory.new.labels), memory.new.summaries, strict=True))
    held = []
    for label, fold in turn:
        folds = fold_numbers(len(rows[label]))
        own = photos.features[rows[label]]
        summaries[label] = without_fold(probe.embed(own), folds, fold, None)
        held.append(own[folds == fold])
    probe.adopt(Memory(memory.base, ClassStatistics.of(summaries)))
    familiar: Values = probe.familiarity(np.concatenate(held))
    return familiar

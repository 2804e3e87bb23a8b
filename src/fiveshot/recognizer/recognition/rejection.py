"""When a photo is called unknown: a threshold on its familiarity, which depends on the photos of its class.

Thresholds are set on held-out photos of a base, or on the learned photos themselves. While these are too few,
general photographs help to reject photos of completely different things.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.core import ClassStatistics, ClassSummary, Memory, summarize
from fiveshot.core.arrays import TINY
from fiveshot.core.draws import hold_back
from fiveshot.core.labels import Label, as_labels, python_labels
from fiveshot.errors import InputError, counted
from fiveshot.recognizer.recognition._held_out import fold_numbers, without_fold
from fiveshot.recognizer.recognition.background import LEAST_LIKENESS, LEAST_RATE, background_fingerprint
from fiveshot.recognizer.recognition.sureness import Table, chains_of, is_table, sure_threshold
from fiveshot.recognizer.store.contents import Contents, KnownPhotos
from fiveshot.recognizer.store.manifest import Manifest, check_rate
from fiveshot.recognizer.store.rows import Floats
from fiveshot.values import Candidate

if TYPE_CHECKING:
    from fiveshot.core.scorers import Answer, Scorer

Values = NDArray[np.float64]
SHOTS = (1, 2, 3, 5, 10, 20, 50)
RATES = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.4, 0.5)
LEAST_CLASSES = 10  # base classes that are needed to stand for classes that are learned later
CLASS_FOLDS = 4  # a quarter of the base classes stands for new ones at a time
MOST_PHOTOS = 1e9  # the most that a rate can require
LEAST_HELD = 5  # left-out photos that are enough for a threshold if there are photos of none of the classes
MOST_STRANGERS = 500  # photos of none of the classes that a photo is compared with
STRANGER_FOLDS = 5
CLEARLY = 0.1  # difference of two shares that is more than chance with few photos
# Weights of the two terms of ``Strangers.standing``, chosen on training photos. The first term is the log of the
# probability that the photo shows any class. All probabilities below LEAST_CHANCE count the same: otherwise one
# learned photo that looks like a stranger would set a threshold far below all others.
CHANCE, LEAST_CHANCE = 0.3, 0.1
# The second term is the log of the length of the features: photos of learned classes have longer ones. Differences
# of more than MOST_LONGER from the strangers count alike: they have other causes.
LENGTH, MOST_LONGER = 2.0, 0.1
NO_CLASS = "nothing can be called unknown yet: no class is known"
SURE_RATES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)  # of wrong answers
SURE_SHOTS = 5  # photos of a base class that stands for one learned later, to find which answers are sure
LATER = 0.8  # part of the rate of wrong answers that the base may use; the rest is left for later classes
SAMPLES = 200  # the most learned photos that are left out; this limits the time of learning


@dataclass(frozen=True)
class Rejection:
    """Thresholds on familiarity for classes with given numbers of photos; between them, linear in log n.

    Without thresholds nothing can be called unknown. ``note`` says what they are based on, or why there are none.
    ``table`` has the thresholds at other rates. ``sure`` has the probability from which an answer is sure, by the
    rate of wrong answers. ``standing`` is the threshold on ``Strangers.standing``, for classes learned after the
    base; it is used if the model has photos of none of the classes. ``background`` is used if there is no other
    threshold: it limits ``Background.likeness``, a comparison with general photographs.

    >>> rejection = Rejection(0.05, counts=(1, 100), thresholds=(-4.0, -2.0), note="an example")
    >>> rejection.threshold(10), rejection.threshold(1000)
    (-3.0, -2.0)
    """

    false_rejection: float
    counts: tuple[int, ...] = ()
    thresholds: tuple[float, ...] = ()
    note: str = ""
    table: tuple[tuple[float, tuple[float, ...]], ...] = ()  # rate and thresholds, the rates rising
    sure: Table = ()
    standing: float | None = None
    background: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be interpolated."""
        check_rate(self.false_rejection)
        if not is_table(self.sure):
            raise InputError(f"the rates of {self.sure} must rise, and all of it must lie between 0 and 1")
        for rate, thresholds in self.table:
            check_rate(rate)
            if len(thresholds) != len(self.counts) or not all(map(math.isfinite, thresholds)):
                raise InputError(f"the thresholds {thresholds} at the rate {rate} do not fit {self.counts}")
        if list(self.table) != sorted(dict(self.table).items()):
            raise InputError("the rates of a table of thresholds must rise")
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

    def thresholds_in(self, memory: Memory, numbers: NDArray[np.intp] | slice = slice(None)) -> Values:
        """Return the familiarity below which a photo is unknown, by the class that it is taken for."""
        thresholds = self.thresholds_of(memory.statistics.counts[numbers])
        if self.standing is None:
            return thresholds
        return np.where(is_learned(memory)[numbers], self.standing, thresholds)

    def at(self, rate: float) -> Rejection:
        """Return the thresholds at another rate: those of the table, linear between its rates.

        >>> table = ((0.01, (-6.0,)), (0.05, (-4.0,)))
        >>> rejection = Rejection(0.05, (5,), (-4.0,), table=table)
        >>> rejection.at(0.02).thresholds, rejection.at(0.001).note
        ((-5.5,), 'nothing can be called unknown: the held-out photos of the base are too few for a rate of 0.1 %')
        """
        if rate == self.false_rejection or not self.counts:
            return replace(self, false_rejection=rate)
        rates = [one for one, _ in self.table]
        if not rates or rate < rates[0]:
            few = f"the held-out photos of the base are too few for a rate of {100 * rate:g} %"
            return Rejection(rate, note=f"nothing can be called unknown: {few}")
        columns = zip(*(thresholds for _, thresholds in self.table), strict=True)
        thresholds = tuple(float(np.interp(rate, rates, column)) for column in columns)
        return replace(self, false_rejection=rate, thresholds=thresholds)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values of what is stored in a model."""
        return {key: value for key, value in asdict(self).items() if key not in ("standing", "background")}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rejection:
        """Read what ``as_dict`` wrote."""
        try:
            return cls(
                float(values["false_rejection"]),
                tuple(int(count) for count in values["counts"]),
                tuple(float(threshold) for threshold in values["thresholds"]),
                str(values["note"]),
                tuple((float(rate), tuple(map(float, each))) for rate, each in values["table"]),
                tuple((float(rate), float(least)) for rate, least in values["sure"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"these are not the thresholds of a rejection ({error!r})") from error


def photos_needed(rate: float) -> int:
    """Return how many held-out photos a threshold for a rate needs.

    >>> photos_needed(0.05)
    19
    """
    return max(1, math.ceil(min(1 / rate, MOST_PHOTOS) - 1e-9) - 1)


def quantile_threshold(familiarity: ArrayLike, rate: float) -> float:
    """Return the threshold below which another photo of the same kind falls with probability ``rate`` at most.

    A new photo is equally likely to have any rank among n + 1 photos. So whatever the distribution, it falls below
    the k-th smallest of the n others with probability k / (n + 1). The largest k that ``rate`` allows is used.
    """
    values = np.sort(np.asarray(familiarity, dtype=np.float64))
    k = min(len(values), math.floor(rate * (len(values) + 1) + 1e-9))
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
    head: Scorer,
    X: Floats,
    y: ArrayLike,
    *,
    false_rejection: float = 0.05,
    seed: int,
    held: NDArray[np.bool_] | None = None,
) -> Rejection:
    """Return thresholds at which ``false_rejection`` of the photos of known classes are called unknown.

    ``X`` and ``y`` are training features of the base session, on which ``head`` was fitted; it is not changed.
    A quarter of each class's photos is held out, or those that ``held`` marks, (n,). An adapter must not have seen
    them. Recognized by a head that has learned all other photos, they give the threshold of many-shot classes.

    For n = 1, 2, 3, 5, ... a quarter of the classes at a time is learned again from n photos. The threshold of
    n-shot classes is the one at which the rate is right for *their* held-out photos, including those taken for a
    many-shot class. Fewer than ten base classes say little about other classes: then there are no thresholds here,
    and they come from the learned photos. The table has the thresholds at other rates.
    """
    needed = photos_needed(check_rate(false_rejection))
    labels = as_labels(y)
    unseen = held is not None
    held = hold_back(labels, seed=seed) if held is None else held
    classes = dict(_split(head, X, labels, held))
    held_out = sum(len(one.held) for one in classes.values())
    if len(classes) < LEAST_CLASSES:
        note = f"a base of fewer than {LEAST_CLASSES} classes does not show how unlike new ones may be"
        return Rejection(false_rejection, note=note)
    if held_out < needed:
        note = f"nothing can be called unknown: the base leaves {held_out} photos to hold out, {needed} are needed"
        return Rejection(false_rejection, note=note)
    base = ClassStatistics.of({label: one.summary for label, one in classes.items()})
    many = int(np.median([one.summary.count for one in classes.values()]))
    familiar = _many_shot(head, base, classes)
    few = {n: _few_shot(head, base, classes, shots=n, seed=seed, unseen=unseen) for n in SHOTS if n < many}
    few = {shots: played for shots, played in few.items() if played[1].sum() >= needed}
    counts = (*few, many)
    rates = sorted({false_rejection, *(rate for rate in RATES if photos_needed(rate) <= len(familiar))})
    table = tuple((rate, _thresholds(familiar, few.values(), rate)) for rate in rates)
    note = f"set on {held_out} held-out photos of {len(classes)} base classes"
    sure = _sure_table(head, base, classes, seed=seed, unseen=unseen)
    return Rejection(false_rejection, counts, dict(table)[false_rejection], note, table, sure)


def _thresholds(
    familiar: Values, few: Iterable[tuple[Values, NDArray[np.bool_]]], rate: float
) -> tuple[float, ...]:
    """Return the thresholds of few-shot classes and of many-shot ones, at one rate."""
    many = quantile_threshold(familiar, rate)
    return (*(_few_shot_threshold(each, is_new, many, rate) for each, is_new in few), many)


def sure_of_base(manifest: Manifest) -> Table:
    """Return the probabilities from which an answer is sure, chosen on the base; empty without a base."""
    return Rejection.from_dict(manifest.rejection).sure if manifest.rejection else ()


def base_thresholds(manifest: Manifest) -> Rejection | None:
    """Return the thresholds of the base at the rate in force; None if the base gave none."""
    of_base = Rejection.from_dict(manifest.rejection) if manifest.rejection else None
    return of_base.at(manifest.options.false_rejection) if of_base is not None and of_base.counts else None


def thresholds_note(contents: Contents) -> str:
    """Say what the thresholds of a model are based on, without computing them."""
    rate, of_base = contents.manifest.options.false_rejection, base_thresholds(contents.manifest)
    if not len(contents.memory.labels):
        return NO_CLASS
    held, against = _at_hand(contents)
    if of_base is not None:
        return of_base.note + _beside(held, against)
    if rejects_other_things(contents):
        return background_note(rate, held)
    return shots_note(rate, held, against)


def can_reject(contents: Contents) -> bool:
    """Tell whether a model has enough photos to call others unknown, without computing its thresholds.

    If not, it may still reject completely different things, see ``rejects_other_things``.
    """
    held, against = _at_hand(contents)
    enough = held >= photos_needed(contents.manifest.options.false_rejection) or _counts(held, against)
    return enough or base_thresholds(contents.manifest) is not None


def rejects_other_things(contents: Contents) -> bool:
    """Tell whether a model of few photos rejects only completely different things, by general photographs."""
    return fits_background(contents, contents.manifest.options.false_rejection) and not can_reject(contents)


def fits_background(contents: Contents, rate: float) -> bool:
    """Tell whether general photographs can replace thresholds: this needs their backbone and stored photos."""
    if rate < LEAST_RATE or contents.manifest.backbone.fingerprint != background_fingerprint():
        return False
    classes = contents.classes.values()
    return bool(classes) and not len(contents.base.labels) and all(one.sha256s for one in classes)


def background_note(rate: float, held: int) -> str:
    """Say what a model rejects as long as it has too few photos for thresholds of its own."""
    missing = _missing(rate, held)
    return (
        f"so far only photos of completely different things are called unknown: to reject look-alikes, {missing}"
    )


def _missing(rate: float, held: int) -> str:
    return f"{photos_needed(rate)} photos in classes of two or more are needed; the model has {held}"


def beside_background(rejection: Rejection, contents: Contents) -> Rejection:
    """Return the thresholds; if there are none, the one that general photographs give."""
    rate = rejection.false_rejection
    if rejection.counts or rejection.standing is not None or not fits_background(contents, rate):
        return rejection
    return replace(rejection, background=LEAST_LIKENESS, note=background_note(rate, _held_out_of(contents)))


def _at_hand(contents: Contents) -> tuple[int, int]:
    """Return how many learned photos can be left out, and how many show none of the classes."""
    negatives = contents.negatives
    return _held_out_of(contents), 0 if negatives is None else len(negatives.photos.ids)


def shots_note(rate: float, held: int, negatives: int = 0) -> str:
    """Say what the thresholds from learned photos are based on, or why there are none."""
    needed = photos_needed(rate)
    if held >= needed:
        return f"set on {held} learned photos, left out in turn{_beside(held, negatives)}"
    if _counts(held, negatives):
        often = f"about one known photo in {held + 1} may be rejected until there are {needed}"
        return f"set on {held} learned photos, left out in turn{_beside(held, negatives)}; {often}"
    return f"nothing can be called unknown yet: {_missing(rate, held)}"


def _counts(held: int, negatives: int) -> bool:
    return bool(negatives) and held >= LEAST_HELD


def _beside(held: int, negatives: int) -> str:
    return f", and on {counted(negatives, 'photo')} of none of these" if _counts(held, negatives) else ""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Familiarity of the learned photos, left out in turn, and of the photos of none of the classes."""

    counts: NDArray[np.int64]  # (n,): the number of photos that the class of each learned photo has
    familiar: Values  # (n,): familiarity of the learned photos
    strange: Values  # (m,): familiarity of the photos of none of the classes
    chances: NDArray[Any]  # (n, n_classes): the probability of each class for the learned photos
    truth: tuple[str, ...]  # (n,): the class of each learned photo
    standing: Values | None = None  # (n,): ``Strangers.standing``; None if the strangers do not help
    strange_standing: Values | None = None  # (m,): the same of the photos of none of the classes

    def rejected(self, rejection: Rejection) -> tuple[int, int]:
        """Return how many of the learned photos thresholds reject, and how many of the others."""
        if rejection.standing is not None and self.standing is not None:
            assert self.strange_standing is not None
            below = (self.standing < rejection.standing, self.strange_standing < rejection.standing)
        else:
            most = rejection.thresholds_of(np.max(self.counts, initial=1))
            below = (self.familiar < rejection.thresholds_of(self.counts), self.strange < most)
        return int(below[0].sum()), int(below[1].sum())


def leave_out(head: Scorer, memory: Memory, photos: KnownPhotos, negatives: Floats) -> LeftOut:
    """Return how familiar learned photos are when they are left out in turn; the head is not changed.

    The result depends only on the classes and photos that the model has now, so a forgotten class leaves no trace.
    ``negatives`` are photos of none of the classes. They are ignored if they make the two kinds harder to tell
    apart.
    """
    rows = _rows_by_class(memory.new, photos)
    turns = list(_turns({label: len(own) for label, own in rows.items()}))
    negatives = some_strangers(negatives)
    found = [_left_out(head, memory, photos, rows, turn, negatives) for turn in turns]
    none = (np.empty(0),) * 3
    counts, familiar, standing = (
        np.concatenate(column) for column in zip(none, *(one[:3] for one in found), strict=True)
    )
    chances = np.concatenate([np.empty((0, len(memory.labels))), *(one[3] for one in found)])
    truth = tuple(str(label) for turn in turns for label in _labels_of(turn, rows))
    plain = LeftOut(counts.astype(np.int64), familiar, np.empty(0), chances, truth)
    if not len(negatives) or not len(familiar):
        return plain
    strange = np.asarray(head.familiarity(negatives), dtype=np.float64)
    strange_standing = _standing_of_strangers(head, negatives)
    if len(negatives) > 1 and _separation(standing, strange_standing) < _separation(familiar, strange) - CLEARLY:
        return replace(plain, strange=strange)
    return replace(plain, strange=strange, standing=standing, strange_standing=strange_standing)


def _separation(known: Values, unknown: Values) -> float:
    """Return how often a known photo is more familiar than an unknown one."""
    below = np.searchsorted(np.sort(unknown), known)
    return float(below.mean()) / len(unknown)


def rejection_at(left: LeftOut, rate: float, of_base: Rejection | None) -> Rejection:
    """Return the thresholds from left-out photos; thresholds of the base are preferred."""
    held, strange = len(left.familiar), len(left.strange)
    standing = None
    if left.standing is not None and _counts(held, strange):
        enough = held >= photos_needed(check_rate(rate))
        standing = quantile_threshold(left.standing, rate) if enough else _middle(left)
    if of_base is not None:
        return replace(of_base.at(rate), standing=standing, note=of_base.note + _beside(held, strange))
    note = shots_note(rate, held, strange if standing is not None else 0)
    if held < photos_needed(rate):
        return Rejection(rate, note=note, standing=standing)
    return Rejection(rate, (1,), (quantile_threshold(left.familiar, rate),), note, standing=standing)


def _middle(left: LeftOut) -> float:
    """Return the middle between the least familiar learned photo and the next stranger below it, if any."""
    assert left.standing is not None
    assert left.strange_standing is not None
    least = float(left.standing.min())
    below = left.strange_standing[left.strange_standing < least]
    return (least + float(below.max())) / 2 if len(below) else least


class Strangers:
    """Photos of none of the classes, and a head that has learned each of them as a class of its own."""

    def __init__(self, head: Scorer, features: Floats) -> None:
        known = head.memory
        # No class name may hold a control character, so these are not names; they sort before all names.
        each = {f"\x01{n:06d}": summarize(row[None]) for n, row in enumerate(head.embed(features))}
        self.head = head
        self.fitted = head.adopt(Memory(known.base, known.new.merge(ClassStatistics.of(each))))
        self.strange = np.isin(self.fitted.classes, list(each))
        self.length = float(log_lengths(features).mean())

    def standing(self, X: Floats) -> Values:
        """Return the familiarity of photos compared with the strangers, (n,)."""
        standing: Values = self.head.familiarity(X) + self._beside(X)
        return standing

    def judged(self, X: Floats, answer: Answer) -> Answer:
        """Return an answer with the familiarity of ``standing`` for photos that are taken for a learned class."""
        learned = is_learned(self.head.memory)[answer.probabilities.argmax(axis=1)]
        return replace(answer, familiarity=answer.familiarity + np.where(learned, self._beside(X), 0.0))

    def _beside(self, X: Floats) -> Values:
        """Return what is added to familiarity, (n,): the terms of probability and length."""
        chance = self.fitted.probabilities(X)[:, ~self.strange].sum(axis=1)
        beside: Values = CHANCE * np.log(np.maximum(chance, LEAST_CHANCE))
        return beside + LENGTH * np.clip(log_lengths(X) - self.length, -MOST_LONGER, MOST_LONGER)


def is_learned(memory: Memory) -> NDArray[np.bool_]:
    """Tell for each class whether it was learned after the base, (n_classes,)."""
    learned: NDArray[np.bool_] = np.isin(memory.statistics.labels, memory.new.labels)
    return learned


def log_lengths(X: Floats) -> Values:
    """Return the log of the length of features, (n,)."""
    lengths: Values = np.log(np.maximum(np.linalg.norm(X, axis=1), TINY))
    return lengths


def some_strangers(features: Floats) -> Floats:
    """Return the photos to compare with: at most ``MOST_STRANGERS``, evenly spread over all."""
    return features[:: max(1, math.ceil(len(features) / MOST_STRANGERS))]


def _standing_of_strangers(head: Scorer, features: Floats) -> Values:
    """Return ``standing`` of photos of none of the classes, each left out of the strangers, (m,)."""
    if len(features) == 1:
        alone: Values = head.familiarity(features)
        return alone
    folds, found = np.arange(len(features)) % STRANGER_FOLDS, np.zeros(len(features))
    for fold in np.unique(folds):
        held = folds == fold
        found[held] = Strangers(head, features[~held]).standing(features[held])
    return found


def _split(
    head: Scorer, X: Floats, labels: NDArray[np.generic], held: NDArray[np.bool_]
) -> Iterator[tuple[Label, _BaseClass]]:
    base = head.memory.base
    for label in python_labels(np.unique(labels)):
        own = labels == label
        kept, out = X[own & ~held], X[own & held]
        if label in base and base[label].count > int(own.sum()):  # the base has seen further photos
            yield label, _BaseClass(kept, out, _without(base[label], head.embed(out)))
        else:
            yield label, _BaseClass(kept, out, summarize(head.embed(kept)))


def _without(summary: ClassSummary, held: Floats) -> ClassSummary:
    """Return a class without some of its photos, assuming that its covariance does not change."""
    count = summary.count - len(held)
    mean = (summary.count * summary.mean - held.sum(axis=0)) / count
    return replace(
        summary, count=count, mean=mean, factor=summary.factor * math.sqrt((count - 1) / (summary.count - 1))
    )


def _many_shot(head: Scorer, base: ClassStatistics, classes: Mapping[Label, _BaseClass]) -> Values:
    familiar: Values = head.adopt(Memory(base)).familiarity(np.concatenate([one.held for one in classes.values()]))
    return familiar


def _few_shot(
    head: Scorer,
    base: ClassStatistics,
    classes: Mapping[Label, _BaseClass],
    *,
    shots: int,
    seed: int,
    unseen: bool,
) -> tuple[Values, NDArray[np.bool_]]:
    """Return the familiarity of held-out photos of few-shot classes, and whether they were taken for one."""
    familiar: list[NDArray[Any]] = [np.empty(0)]
    is_new: list[NDArray[np.bool_]] = [np.empty(0, dtype=bool)]
    for probe, rest in _plays(head, base, classes, shots=shots, seed=seed, unseen=unseen):
        answer = probe.answer(np.concatenate(list(rest.values())))
        familiar.append(answer.familiarity)
        is_new.append(np.isin(probe.classes[answer.scores.argmax(axis=1)], list(rest)))
    return np.concatenate(familiar), np.concatenate(is_new)


def _sure_table(
    head: Scorer, base: ClassStatistics, classes: Mapping[Label, _BaseClass], *, seed: int, unseen: bool
) -> Table:
    """Return the probabilities from which answers are sure, for held-out photos and few-shot classes."""
    chains: list[tuple[Candidate, ...]] = []
    truth: list[str] = []
    for probe, rest in _plays(head, base, classes, shots=SURE_SHOTS, seed=seed, unseen=unseen):
        asked = {label: rest.get(label, one.held) for label, one in classes.items()}
        chances = probe.answer(np.concatenate(list(asked.values()))).probabilities
        chains += chains_of([str(label) for label in python_labels(probe.classes)], chances)
        truth += [str(label) for label, own in asked.items() for _ in own]
    found = [sure_threshold(chains, truth, LATER * rate) for rate in SURE_RATES]
    return tuple(zip(SURE_RATES, found, strict=True)) if truth else ()


def _plays(
    head: Scorer,
    base: ClassStatistics,
    classes: Mapping[Label, _BaseClass],
    *,
    shots: int,
    seed: int,
    unseen: bool,
) -> Iterator[tuple[Scorer, dict[Label, Floats]]]:
    """Yield heads that have learned a quarter of the classes again from few photos, and other photos of them.

    ``unseen`` is set for a model with an adapter. The adapter has seen the photos that were kept, but it will not
    have seen photos of later classes. So the shots, too, are held-out photos if a class has enough of them.
    """
    rng = np.random.default_rng([seed, shots])
    able = [label for label, one in classes.items() if len(one.kept) >= shots]
    for fold in range(CLASS_FOLDS):
        new = able[fold::CLASS_FOLDS]
        if not new or len(new) == len(classes):
            continue
        parts = [_drawn(classes[label], shots, rng, unseen=unseen) for label in new]
        drawn = {label: summarize(head.embed(own)) for label, (own, _) in zip(new, parts, strict=True)}
        probe = head.adopt(Memory(base.drop(new), ClassStatistics.of(drawn)))
        yield probe, {label: rest for label, (_, rest) in zip(new, parts, strict=True)}


def _drawn(one: _BaseClass, shots: int, rng: np.random.Generator, *, unseen: bool) -> tuple[Floats, Floats]:
    """Return photos to learn a class from, and other photos of it to recognize."""
    if unseen and len(one.held) > shots:
        order = rng.permutation(len(one.held))
        return one.held[order[:shots]], one.held[order[shots:]]
    return one.kept[rng.permutation(len(one.kept))[:shots]], one.held


def _few_shot_threshold(familiar: Values, is_new: NDArray[np.bool_], many: float, rate: float) -> float:
    # Photos taken for a many-shot class are rejected by its threshold; the others get the rest of the rate.
    rejected = int((familiar[~is_new] < many).sum())
    k = min(len(familiar), max(1, math.floor(rate * (len(familiar) + 1)) - rejected))
    return float(np.sort(familiar[is_new])[min(k, int(is_new.sum())) - 1])


def _rows_by_class(statistics: ClassStatistics, photos: KnownPhotos) -> dict[Label, NDArray[np.intp]]:
    """Return the rows of each class that has two or more photos, if all of them are stored."""
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
    """Yield the (class, fold) pairs that are left out at the same time: one fold each of many classes."""
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
    head: Scorer,
    memory: Memory,
    photos: KnownPhotos,
    rows: Mapping[Label, NDArray[np.intp]],
    turn: list[tuple[Label, int]],
    negatives: Floats,
) -> tuple[Values, Values, Values, NDArray[Any]]:
    """Return counts, familiarity, ``standing`` and probabilities of photos that are left out."""
    summaries = dict(zip(python_labels(memory.new.labels), memory.new.summaries, strict=True))
    held, counts = [], []
    for label, fold in turn:
        folds = fold_numbers(len(rows[label]))
        own = photos.features[rows[label]]
        summaries[label] = without_fold(head.embed(own), folds, fold, None)
        held.append(own[folds == fold])
        counts += [float(len(own))] * len(held[-1])
    probe = head.adopt(Memory(memory.base, ClassStatistics.of(summaries)))
    X = np.concatenate(held)
    answer = probe.answer(X)
    familiar = np.asarray(answer.familiarity, dtype=np.float64)
    standing = Strangers(probe, negatives).standing(X) if len(negatives) else familiar
    return np.array(counts), familiar, standing, answer.probabilities


def _labels_of(turn: list[tuple[Label, int]], rows: Mapping[Label, NDArray[np.intp]]) -> Iterator[Label]:
    """Yield the class of each photo that a turn leaves out."""
    for label, fold in turn:
        yield from [label] * int((fold_numbers(len(rows[label])) == fold).sum())

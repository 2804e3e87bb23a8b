"""Review the learned photos: confused classes, photos to move or remove, and the gain of more photos."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fiveshot.core import ClassSummary, Memory
from fiveshot.core.arrays import unit_rows
from fiveshot.core.labels import python_labels
from fiveshot.core.scorers import Scorer
from fiveshot.errors import InputError, unknown_name
from fiveshot.recognizer.advice.insight import CENTERED_FROM, OUTLIER_GAP, near_pairs, outlier_gaps
from fiveshot.recognizer.change import Change
from fiveshot.recognizer.correction import apply_changes, require_class
from fiveshot.recognizer.recognition._held_out import HeldOutHeads, Judged, LearningCurve, Rows, Values
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.contents import KnownPhotos
from fiveshot.recognizer.store.rows import Floats, photo_id
from fiveshot.values import (
    FINDINGS,
    ConfusedPair,
    PhotoChange,
    Review,
    ReviewedClass,
    ReviewFinding,
    Suggestion,
    TellingPhoto,
)
from fiveshot.work import one_thread

MORE_PHOTOS = (1, 2, 5)  # numbers of further photos whose expected gain is reported
SUSPICIOUS_BELOW = 0.2  # a photo is suggested if its own class has less than this share against the other class
# When a suggestion is firm. Chosen on half of the classes of CUB-200 and CIFAR-100, so that at least 9 of 10 firm
# suggestions are right, also for similar classes; measured on the other half (benchmarks/review.py). To move a
# photo: its own class has a share below FIRM_SHARE, FIRM_NEAREST of its NEAREST_PHOTOS are of the other class, its
# mean cosine with that class is higher by FIRM_LIKENESS, and in both classes FIRM_RECOGNIZED of the other photos
# are recognized when left out. To remove a photo: it is less like its class than the other photos by FIRM_GAP, and
# these are recognized.
FIRM_SHARE, NEAREST_PHOTOS, FIRM_NEAREST, FIRM_LIKENESS = 1 / 8000, 5, 3, 0.3
FIRM_RECOGNIZED = 0.6
FIRM_GAP = 0.7
ALIKE_FROM = 3  # two classes with fewer photos each are never called alike
LEAST_FOR_HARM = 3  # photos of a smaller class are never called harmful
MOST_TRIED, TRIED_AT_ONCE = 40, 8000  # at most this many photos are tried for harm; fewer with many classes
CURVE_WEIGHT = 2.0  # the common learning curve counts as much as this many photos of the class
NEIGHBORS = 3  # learned photos that may have caused a mistake
MOST_PAIRS, TELLING_PHOTOS = 20, 6  # confused pairs to show, and photos of each


@dataclass(frozen=True, eq=False)
class _ReviewData:
    """The values that all findings are computed from."""

    ids: Sequence[str]  # (n,)
    names: list[str]  # of the classes
    leaving: HeldOutHeads
    judged: Judged
    unit: Floats = field(repr=False)  # (n, d): centered features of length one
    files: Mapping[str, str | None]  # names of files by id

    def label(self, row: int) -> str:
        return self.names[int(self.leaving.codes[row])]

    def nearest(self, row: int, code: int, count: int = 1) -> list[int]:
        """Return the photos of a class that are most similar to a photo, without the photo itself."""
        rows = self.leaving.rows.get(code, np.zeros(0, np.intp))
        rows = rows[rows != row]
        likeness = self.unit[rows] @ self.unit[row]
        return [int(one) for one in rows[np.argsort(-likeness, kind="stable")[:count]]]

    def near(self, row: int) -> Rows:
        """Return the classes of the photos, of any class, that are most similar to a photo."""
        likeness = self.unit @ self.unit[row]
        likeness[row] = -np.inf
        nearest: Rows = self.leaving.codes[
            np.argsort(-likeness, kind="stable")[: min(NEAREST_PHOTOS, len(likeness) - 1)]
        ]
        return nearest

    def likeness(self, row: int, code: int) -> float:
        """Return the mean cosine of a photo with the photos of a class, without the photo itself."""
        rows = self.leaving.rows[code]
        return float((self.unit[rows[rows != row]] @ self.unit[row]).mean())

    def is_recognized(self, code: int, but: int) -> bool:
        """Tell whether most photos of a class, not counting ``but``, are recognized when they are left out."""
        rows = self.leaving.rows[code]
        rows = rows[(rows != but) & self.judged.known[rows]]
        return len(rows) > 0 and float(self.judged.right[rows].mean()) >= FIRM_RECOGNIZED

    def called(self, row: int) -> str:
        """Say how a photo is recognized when it is left out."""
        if not self.judged.known[row]:
            return "it cannot be left out"
        if self.judged.right[row]:
            return "left out, it is recognized"
        chance = self.judged.rival[row]
        shown = "over 99 %" if chance > 0.99 else f"{100 * chance:.0f} %"
        return f"left out, it is called {self.names[int(self.judged.taken_for[row])]!r} with {shown}"

    def beside(self, row: int, code: int) -> str | None:
        return next((self.ids[one] for one in self.nearest(row, code)), None)

    def suggestion(
        self,
        kind: ReviewFinding,
        row: int,
        strength: float,
        reason: str,
        *,
        to: str | None = None,
        beside: str | None = None,
        firm: bool = False,
    ) -> Suggestion:
        action: Literal["move", "remove"] = "remove" if to is None else "move"
        photo = self.ids[row]
        names = self.files.get(photo), None if beside is None else self.files.get(beside)
        return Suggestion(kind, photo, self.label(row), action, to, beside, strength, reason, firm, *names)

    def telling(self, row: int, code: int) -> TellingPhoto:
        photo, beside = self.ids[row], self.beside(row, code)
        names = self.files.get(photo), None if beside is None else self.files.get(beside)
        chance = float(self.judged.rival[row])
        return TellingPhoto(photo, self.label(row), self.names[code], chance, beside, *names)


def review_photos(
    head: Scorer,
    memory: Memory,
    photos: KnownPhotos,
    ids: Sequence[str],
    *,
    state: int,
    known: Mapping[str, ClassSummary] | None = None,
    kept: frozenset[str] = frozenset(),
    show_kept: bool = False,
    files: Mapping[str, str | None] | None = None,
    seed: int,
) -> Review:
    """Review all learned photos.

    ``known`` has the statistics of base classes without these photos; ``kept`` are photos that a user decided to
    keep: they are left out or, with ``show_kept``, never firm; ``files`` are names of files by id. The head is not
    changed.
    """
    leaving = HeldOutHeads(head, memory, photos, known)
    several = len(leaving.labels) > 1
    judged = leaving.judge()
    names = [str(name) for name in python_labels(leaving.labels)]
    middle = leaving.embedded.mean(axis=0) if len(ids) else 0.0
    look = _ReviewData(ids, names, leaving, judged, unit_rows(leaving.embedded - middle), files or {})
    curve = leaving.curve(np.random.default_rng(seed)) if several else None
    found = list(_duplicates(look, photos.sha256s))
    pairs = _pairs(look)
    found += _mixed_up(look, {pair.classes for pair in pairs if pair.alike})
    found += _harmful(look) if several else ()
    found += _outliers(look)
    found.sort(key=lambda one: (FINDINGS.index(one.kind), not one.firm, -one.strength))
    decided = {one.photo for one in found} & kept
    wanted = [one for one in found if one.photo not in kept]
    if show_kept:
        wanted = [replace(one, firm=False) if one.photo in kept else one for one in found]
    counts = dict(zip(names, memory.statistics.counts.tolist(), strict=True))
    classes = sorted(_classes(look, counts, curve), key=lambda one: (-one.gain, one.name))
    return Review(
        state,
        accuracy=float(judged.right[judged.known].mean()) if judged.known.any() else None,
        judged=int(judged.known.sum()),
        expected=_mean([one.expected for one in classes if one.expected]),
        classes=tuple(classes),
        pairs=tuple(pairs[:MOST_PAIRS]),
        suggestions=tuple(wanted),
        kept=0 if show_kept else len(decided),
    )


def review_model(snapshot: Snapshot, kept: frozenset[int] = frozenset(), *, show_kept: bool = False) -> Review:
    """Review all learned photos of a model; ``kept`` has the numbers of photos that a user decided to keep."""
    snapshot.require_classes()
    contents = snapshot.contents
    stored = [
        (number, one.name, sha256, feature)
        for one in contents.classes.values()
        for number, sha256, feature in zip(one.photos.ids, one.sha256s, one.features, strict=True)
    ]
    stored.sort(key=lambda one: one[0])  # so a duplicate is the photo that was learned later
    numbers, labels, sha256s, rows = zip(*stored, strict=True) if stored else ((), (), (), ())
    features = np.stack(rows) if rows else np.zeros((0, contents.width), np.float32)
    with one_thread():
        return review_photos(
            snapshot.head,
            snapshot.memory,
            KnownPhotos(labels, sha256s, features),
            [photo_id(number) for number in numbers],
            state=snapshot.state,
            known={one.name: contents.base_file[one.name] for one in contents.classes.values() if one.base},
            kept=frozenset(map(photo_id, kept)),
            show_kept=show_kept,
            files={
                photo_id(number): name
                for one in contents.classes.values()
                for number, name in zip(one.photos.ids, one.photos.names, strict=True)
            },
            seed=snapshot.manifest.options.seed,
        )


def check_kinds(kinds: Iterable[str]) -> None:
    """Raise an error for an unknown finding."""
    for kind in kinds:
        if kind not in FINDINGS:
            raise unknown_name("finding", kind, FINDINGS)


def apply_suggestions(change: Change, suggestions: Iterable[Suggestion]) -> PhotoChange:
    """Move and remove photos as suggested, as one entry of the history."""
    counts = {one.name: len(one.photos.ids) for one in change.before.classes.values()}
    chosen = applicable([one for one in suggestions if one.label in counts], counts)
    if not chosen:
        raise InputError("there is nothing to apply", hint="the model was left as it is", code="nothing_to_apply")
    by_target = defaultdict[str | None, list[str]](list)
    for one in chosen:
        require_class(change, one.photo, one.label)
        by_target[one.to].append(one.photo)
    return apply_changes(change, by_target)


def applicable(suggestions: Iterable[Suggestion], counts: Mapping[str, int]) -> list[Suggestion]:
    """Return suggestions that fit together: one for each photo, and each class keeps at least one photo.

    >>> two = [Suggestion("outliers", f"p{n}", "owl", "remove", None, None, 1.0, "") for n in (1, 2)]
    >>> [one.photo for one in applicable(two, {"owl": 2})]
    ['p1']
    """
    chosen: dict[str, Suggestion] = {}
    left = dict(counts)
    for one in suggestions:
        if one.photo not in chosen and left[one.label] > 1:
            chosen[one.photo] = one
            left[one.label] -= 1
    return list(chosen.values())


def _mean(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.mean(rows, axis=0)) if rows else ()


def _classes(look: _ReviewData, counts: Mapping[str, int], curve: LearningCurve | None) -> Iterator[ReviewedClass]:
    for code, name in enumerate(look.names):
        rows = look.leaving.rows.get(code, np.zeros(0, np.intp))
        rows = rows[look.judged.known[rows]]
        accuracy = float(look.judged.right[rows].mean()) if len(rows) else None
        if curve is None:
            yield ReviewedClass(name, counts[name], accuracy)
            continue
        # A photo that was left out met a class with one photo less.
        usual = max(curve.error(counts[name] - 1), 1e-6)
        wrong = int((~look.judged.right[rows]).sum())
        factor = (wrong + CURVE_WEIGHT * usual) / (len(rows) + CURVE_WEIGHT) / usual
        expected = tuple(1 - min(1.0, factor * curve.error(counts[name] + more)) for more in (0, *MORE_PHOTOS))
        yield ReviewedClass(name, counts[name], accuracy, expected, expected[1] - expected[0])


def _pairs(look: _ReviewData) -> list[ConfusedPair]:
    judged, found = look.judged, defaultdict[tuple[str, str], list[TellingPhoto]](list)
    wrong = np.flatnonzero(judged.known & ~judged.right)
    for row in wrong[np.argsort(judged.own[wrong], kind="stable")].tolist():
        label, code = look.label(row), int(judged.taken_for[row])
        first, second = sorted((label, look.names[code]))
        found[first, second].append(look.telling(row, code))
    pairs = [
        ConfusedPair(both, len(photos), tuple(photos[:TELLING_PHOTOS]), bool(advice), advice)
        for both, photos in found.items()
        for advice in [_advice(look, both)]
    ]
    return sorted(pairs, key=lambda pair: (not pair.alike, -pair.count, pair.classes))


def _advice(look: _ReviewData, both: tuple[str, str]) -> str:
    """Return the advice for two classes that are confused as often as by chance; empty otherwise."""
    judged, shares, right, asked = look.judged, [], 0, 0
    codes = [look.names.index(name) for name in both]
    for own, other in (codes, codes[::-1]):
        rows = look.leaving.rows.get(own, np.zeros(0, np.intp))
        rows = rows[judged.known[rows] & (judged.right[rows] | (judged.taken_for[rows] == other))]
        if len(rows) < ALIKE_FROM:
            return ""
        shares.append(float(judged.right[rows].mean()))
        right, asked = right + int(judged.right[rows].sum()), asked + len(rows)
    if sum(shares) > 1:  # each class counts the same, however many photos it has
        return ""
    return (
        f"these two are told apart no better than by chance ({right} of {asked} photos left out are called by the "
        "right one of the two names): join them, or add photos that differ"
    )


def _mixed_up(look: _ReviewData, alike: set[tuple[str, str]]) -> Iterator[Suggestion]:
    """Find photos that fit another class better, by the probability of their own class.

    For two classes that cannot be told apart, no photo is suggested.
    """
    judged, share = look.judged, look.judged.share
    for row in np.flatnonzero(share < SUSPICIOUS_BELOW).tolist():
        code = int(judged.taken_for[row])
        to, near = look.names[code], look.near(row)
        first, second = sorted((look.label(row), to))
        if (first, second) in alike:
            continue
        votes = int((near == code).sum())
        are = "is" if votes == 1 else "are"
        reason = f"{votes or 'none'} of the {len(near)} nearest photos {are} of {to!r}; {look.called(row)}"
        own = int(look.leaving.codes[row])
        firm = (
            bool(share[row] < FIRM_SHARE)
            and votes >= FIRM_NEAREST
            and look.is_recognized(own, but=row)
            and look.is_recognized(code, but=row)
            and look.likeness(row, code) - look.likeness(row, own) > FIRM_LIKENESS
        )
        strength = float(1 - judged.own[row])
        yield look.suggestion("mixed-up", row, strength, reason, to=to, beside=look.beside(row, code), firm=firm)


def _harmful(look: _ReviewData) -> Iterator[Suggestion]:
    """Find photos whose removal makes more other photos recognized, one at a time."""
    leaving, before = look.leaving, look.judged
    gone: frozenset[int] = frozenset()
    for row in _suspects(look):
        mates = set(leaving.rows[int(leaving.codes[row])].tolist()) - gone
        if len(mates) < LEAST_FOR_HARM:  # too few would be left for leaving one out
            continue
        after = leaving.judge(without=gone | {row})
        others = before.known & after.known
        gained = int(after.right[others].sum()) - int(before.right[others].sum())
        if gained < 1 or not _surer(before.own[others], after.own[others]):
            continue
        gone, before = gone | {row}, after
        photos = f"{gained} more {'photos are' if gained > 1 else 'photo is'} recognized without it"
        reason = f"of {int(others.sum())} photos left out, {photos}"
        yield look.suggestion("harmful", row, gained / (gained + 1), reason)


def _surer(before: Values, after: Values) -> bool:
    """Tell whether the mean log probability has risen by more than its standard error."""
    gains = np.log(np.maximum(after, 1e-12)) - np.log(np.maximum(before, 1e-12))
    return bool(gains.sum() > gains.std() * np.sqrt(len(gains)))


def _suspects(look: _ReviewData) -> list[int]:
    """Return the photos that may have caused mistakes, the most suspected first.

    Such a photo does not fit its own class, and photos of other classes that are similar to it are mistaken for
    its class. A photo that fits its class does no harm: if others are similar to it, the classes are close.
    """
    judged, leaving = look.judged, look.leaving
    blame = defaultdict[int, float](float)
    unfit = judged.known & ~judged.right
    for row in np.flatnonzero(unfit).tolist():
        for place, other in enumerate(look.nearest(row, int(judged.taken_for[row]), NEIGHBORS)):
            blame[other] += 1 / (1 + place)
        blame[row] += float(judged.rival[row])
    able = [row for row in blame if unfit[row] and len(leaving.rows[int(leaving.codes[row])]) >= LEAST_FOR_HARM]
    most = max(4, min(MOST_TRIED, TRIED_AT_ONCE // len(leaving.labels)))
    return sorted(able, key=lambda row: (-blame[row], row))[:most]


def _outliers(look: _ReviewData) -> Iterator[Suggestion]:
    leaving = look.leaving
    means = leaving.memory.statistics.means
    total, others = means.sum(axis=0), len(means) - 1
    for code, rows in leaving.rows.items():
        center = (total - means[code]) / others if others >= CENTERED_FROM else None
        gaps = outlier_gaps(leaving.embedded[rows], center=center)
        for place in np.flatnonzero(gaps > OUTLIER_GAP).tolist():
            row = int(rows[place])
            reason = f"it is unlike the other {len(rows) - 1} photos of {look.names[code]!r}; {look.called(row)}"
            wrong = bool(look.judged.known[row] and not look.judged.right[row])
            clear = center is not None and bool(gaps[place] > FIRM_GAP)
            firm = wrong and clear and look.is_recognized(code, but=row)
            yield look.suggestion("outliers", row, float(min(gaps[place], 1.0)), reason, firm=firm)


def _duplicates(look: _ReviewData, sha256s: Sequence[str]) -> Iterator[Suggestion]:
    """Find photos that repeat an earlier one, in the same class or in another."""
    for row, earlier, likeness in near_pairs(look.leaving.X, sha256s):
        label, of = look.label(row), look.label(earlier)
        what = "the same file as" if sha256s[row] == sha256s[earlier] else "almost identical to"
        where = "" if label == of else f" of {of!r}"
        so = "it teaches nothing new" if label == of else "one of the two is in the wrong class"
        reason = f"it is {what} {look.ids[earlier]}{where}; {so}"
        firm = label == of  # in two classes: it is not known which one is wrong
        yield look.suggestion("duplicates", row, likeness, reason, beside=look.ids[earlier], firm=firm)

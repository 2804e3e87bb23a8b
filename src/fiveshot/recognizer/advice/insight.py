"""The report on a learned class: how well it differs from others, photos to look at again, duplicates."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fiveshot.core import Memory
from fiveshot.core.arrays import squared_lengths, unit_rows
from fiveshot.core.scorers import Scorer
from fiveshot.errors import counted, some_of
from fiveshot.recognizer.names import NONE
from fiveshot.recognizer.recognition._held_out import MANY, Judged
from fiveshot.recognizer.store.contents import SAME, Contents, Twin, likest
from fiveshot.recognizer.store.rows import Floats, PhotoRecord, photo_features
from fiveshot.values import Duplicate, LearnReport

CLEAR, CLOSE = 0.8, 0.5  # least separability of a class that is clear, and of one that is close to another
CENTERED_FROM = 5  # other classes that are enough to estimate the mean of all photos
# How much less like the rest a photo may be than the others are, in cosines of centered features. Of five photos
# of one CUB-200 class, one set in 29 has such a photo; of strangers among four of a class 88 % are found.
OUTLIER_GAP = 0.4
OUTLIERS_FROM = 4  # photos: of three it is not clear which one is unlike the others
NAMED = 3  # photos that get a sentence each; of more, so many are named
_MISPLACED = "one of the two classes has it by mistake: remove it there, or move it"
_ALL_MISPLACED = "one of the two classes has them by mistake: remove them there, or move them"
# Numbers of a photo that are compared before all of its features. Most unlike photos differ in the first of them.
NUMBERS, MOST_IN_FIRST = 64, 16
SLACK = 1e-4  # more than rounding adds to a squared distance
COMPARED = 1024  # photos compared at a time with all others


class EarlierPhotos(Protocol):
    """Photos that were learned before: in memory or in the database."""

    def of(self, name: str) -> Floats:
        """Return the features of one class's photos, in order, (n, d)."""

    def twins(self, photos: Sequence[PhotoRecord]) -> list[Twin | None]:
        """Return for each photo the earlier one that is the same file or a near copy; None if there is none."""


def inspect_class(
    head: Scorer,
    memory: Memory,
    name: str,
    photos: Sequence[PhotoRecord],
    judged: Judged,
    labels: Sequence[str],
    *,
    earlier: EarlierPhotos | None = None,
) -> LearnReport:
    """Return the report on photos of a class that are about to be learned.

    ``memory`` is the one before the photos are learned; it may know the class from earlier photos. ``head`` is
    fitted on it or on a memory before it, and is not changed. ``judged`` has the answers for all photos of the
    class, the earlier ones first, each given without that photo; classes are positions in ``labels``. ``earlier``
    has all photos learned so far whose features are stored.
    """
    X = photo_features(photos)
    others = without_class(memory, name)
    before = None if others is memory else memory.statistics[name]
    rows = X if earlier is None else np.concatenate([earlier.of(name), X])
    center = _center(head, others)
    first = len(rows) - len(X)  # rows before it were learned earlier
    outliers = [photos[i - first].name for i in find_outliers(head.embed(rows), center=center) if i >= first]
    report = LearnReport(
        name,
        photos=len(X) + (before.count if before else 0),
        added=len(X),
        duplicates=find_duplicates(name, photos, earlier=earlier),
        outliers=tuple(outliers),
    )
    if len(others.labels) and judged.known.any():
        report = _with_scores(report, judged, labels, photos)
    return replace(report, warnings=tuple(warnings_of(report)))


def _center(head: Scorer, others: Memory) -> Floats | None:
    """Return the mean of all classes except one; with very many, that of the head, which is already computed."""
    if len(others.labels) < CENTERED_FROM:
        return None
    near = head.memory.statistics if len(others.labels) >= MANY else others.statistics
    center: Floats = near.center
    return center


def without_class(memory: Memory, name: str) -> Memory:
    """Return a memory without a class."""
    base = memory.base.drop([name]) if name in memory.base else memory.base
    new = memory.new.drop([name]) if name in memory.new else memory.new
    return memory if base is memory.base and new is memory.new else Memory(base, new)


def _with_scores(
    report: LearnReport, judged: Judged, labels: Sequence[str], photos: Sequence[PhotoRecord]
) -> LearnReport:
    recognized, taken_for = judged.right, judged.taken_for
    # The class that most photos are taken for; if all are right, the one that is most often second.
    taken = np.bincount(taken_for[~recognized], minlength=len(labels))
    nearest = int((taken if taken.any() else np.bincount(taken_for, minlength=len(labels))).argmax())
    separability = float(judged.share.mean())
    last = slice(len(recognized) - len(photos), None)  # rows before were learned earlier
    confused = (~recognized & (taken_for == nearest))[last]
    return replace(
        report,
        accuracy=float(recognized.mean()),
        nearest=labels[nearest],
        confusion=float(taken[nearest] / len(recognized)),
        separability=separability,
        verdict="clear" if separability >= CLEAR else "close" if separability >= CLOSE else "confused",
        confused=tuple(photo.name for photo, taken_for in zip(photos, confused, strict=True) if taken_for),
    )


def warnings_of(report: LearnReport) -> Iterator[str]:
    """Yield the warnings of a report."""
    if report.photos == 1:
        yield f"one photo tells little about {report.name!r}; five are better"
    if report.confusion:
        which = f" ({some_of(report.confused, NAMED)})" if report.confused else ""
        yield (
            f"{100 * report.confusion:.0f} % of the photos look more like {report.nearest!r} than like the others "
            f"of {report.name!r}{which}; more photos of both may help"
        )
    yield from _about_duplicates(report.name, report.duplicates)
    if len(report.outliers) > NAMED:
        yield (
            f"{counted(len(report.outliers), 'photo')} are unlike the other photos of {report.name!r} "
            f"({some_of(report.outliers, NAMED)}); are they of it?"
        )
        return
    for photo in report.outliers:
        yield f"{photo} is unlike the other photos of {report.name!r}; is it one?"


def _about_duplicates(name: str, duplicates: Sequence[Duplicate]) -> Iterator[str]:
    alike: dict[tuple[str, bool], list[Duplicate]] = {}
    for one in duplicates:
        alike.setdefault((one.label, one.same_file), []).append(one)
    for (label, same_file), group in alike.items():
        own = label == name
        if len(group) > NAMED:
            what = "the same files as" if same_file else "almost identical to"
            advice = "they teach nothing new" if own else _ALL_MISPLACED
            photos = some_of([one.photo for one in group], NAMED)
            yield f"{counted(len(group), 'photo')} are {what} photos of {label!r} ({photos}); {advice}"
            continue
        for one in group:
            what = "the same file as" if same_file else "almost identical to"
            other = one.of or f"a photo of {label!r}"
            yield f"{one.photo} is {what} {other}; {'it teaches nothing new' if own else _MISPLACED}"


def find_duplicates(
    name: str, photos: Sequence[PhotoRecord], *, earlier: EarlierPhotos | None = None
) -> tuple[Duplicate, ...]:
    """Return the photos of a class that repeat another of these photos, or one that was learned earlier.

    >>> rows = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [2.0, 0.0]}
    >>> photos = [PhotoRecord(key, np.float32(row), name=key) for key, row in rows.items()]
    >>> find_duplicates("owl", photos)
    (Duplicate(photo='c', label='owl', same_file=False, of='a'),)
    """
    sha256s = [photo.sha256 for photo in photos]
    found = [
        Duplicate(photos[row].name, name, sha256s[row] == sha256s[twin], photos[twin].name)
        for row, twin, _ in near_pairs(photo_features(photos), sha256s)
    ]
    if earlier is not None:
        repeated = {duplicate.photo for duplicate in found}
        for photo, before in zip(photos, earlier.twins(photos), strict=True):
            # A copy in another class is always reported, because one of the two is misplaced.
            if before is not None and (photo.name not in repeated or before.label != name):
                found.append(Duplicate(photo.name, before.label, before.same_file))
    return tuple(dict.fromkeys(found))


def find_outliers(X: Floats, *, center: Floats | None = None) -> list[int]:
    """Return the rows that are far less like the rest than other rows are; ``center`` is the mean of all classes.

    >>> find_outliers(np.array([[1.0, 0.1], [1.0, 0.2], [1.0, 0.0], [1.0, -0.1], [-0.2, 1.0]]))
    [4]
    """
    return [int(row) for row in np.flatnonzero(outlier_gaps(X, center=center) > OUTLIER_GAP)]


def outlier_gaps(X: Floats, *, center: Floats | None = None) -> Floats:
    """Return how much less like the rest each row is than the other rows are, (n,).

    With fewer than ``OUTLIERS_FROM`` rows it is minus infinity.

    >>> outlier_gaps(np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).round(2).tolist()
    [-0.42, -0.42, -0.42, 1.0]
    """
    n = len(X)
    if n < OUTLIERS_FROM:
        return np.full(n, -np.inf, X.dtype)
    unit = unit_rows(X if center is None else X - center)
    total = unit.sum(axis=0)
    gram, to_total = unit @ unit.T, unit @ total  # (n, n), (n,)
    # The cosine of row j with the sum of all rows except i and j; on the diagonal, of row i with all others.
    apart = 1 - np.eye(n, dtype=unit.dtype)
    products = to_total[None] - 1 - gram * apart
    squares = np.square(total - unit).sum(axis=1)[:, None] + apart * (1 - 2 * (to_total[None] - gram))
    likeness = products / np.sqrt(np.maximum(squares, 1e-12))
    own = likeness.diagonal()
    others = (likeness.sum(axis=1) - own) / (n - 1)
    gaps: Floats = others - own
    return gaps


def near_pairs(X: Floats, sha256s: Sequence[str]) -> Iterator[tuple[int, int, float]]:
    """Yield each row that repeats an earlier one, with the most similar earlier row and their likeness.

    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]], np.float32)
    >>> list(near_pairs(rows, ["a", "b", "c"]))
    [(2, 0, 1.0)]
    """
    unit, first = unit_rows(X), dict[str, int]()
    for start in range(0, len(X), COMPARED):
        products = unit[start : start + COMPARED] @ unit[: start + COMPARED].T
        for offset, likeness in enumerate(products):
            row = start + offset
            twin = first.setdefault(sha256s[row], row)
            if twin != row:
                yield row, twin, 1.0
            elif row and float(likeness[:row].max()) > SAME:
                nearest = int(likeness[:row].argmax())
                yield row, nearest, float(min(likeness[nearest], 1.0))


class DuplicateIndex:
    """Finds learned photos that may be duplicates, by a few numbers of each photo.

    The numbers are a projection of the feature, scaled to length one, on fixed directions. A projection only
    shortens distances, so no duplicate is missed. Removed photos stay; the caller must check whether a photo is
    still there.
    """

    def __init__(self) -> None:
        self._begin("")

    def _begin(self, made_by: str) -> None:
        """Start without photos; ``made_by`` is the fingerprint of the backbone."""
        self._made_by = made_by
        self._state = 0
        self._known = set[int]()
        self._ids = np.empty(0, np.int64)  # this and the next two have room for more photos than are known
        self._numbers = np.empty((0, NUMBERS), np.float32)
        # The first numbers, a row each, and a row of their squared lengths: this layout is the fastest to compare.
        self._first = np.empty((MOST_IN_FIRST + 1, 0), np.float32)

    def follow(self, contents: Contents) -> None:
        """Add the photos that were learned since the last call."""
        if contents.manifest.backbone.fingerprint != self._made_by:
            # Another backbone makes other features of every photo.
            self._begin(contents.manifest.backbone.fingerprint)
        of_all = contents.since != self._state or not self._state
        for row in contents.rows.values() if of_all else map(contents.rows.get, contents.touched):
            if row is not None and row.changed > self._state and row.name != NONE:
                fresh = [place for place, number in enumerate(row.photos.ids) if number not in self._known]
                self._add([row.photos.ids[place] for place in fresh], row.features[fresh])
        self._state = contents.state

    def near(self, rows: Floats) -> list[list[int]]:
        """Return for each row of unit features the numbers of the photos that may be near copies."""
        n = len(self._known)
        own = rows @ _directions(rows.shape[1])
        some = np.flatnonzero(_near(self._first[:, :n], own[:, :MOST_IN_FIRST]).any(axis=0))
        found: list[list[int]] = [[] for _ in rows]
        for row, place in np.argwhere(_near(_with_squares(self._numbers[some]).T, own)).tolist():
            found[row].append(int(self._ids[some[place]]))
        return found

    def _add(self, ids: Sequence[int], features: Floats) -> None:
        n, more = len(self._known), len(ids)
        if n + more > len(self._ids):
            room = max(n + more, 2 * n, 64) - n
            self._ids = np.concatenate([self._ids[:n], np.empty(room, np.int64)])
            self._numbers = np.concatenate([self._numbers[:n], np.empty((room, NUMBERS), np.float32)])
            self._first = np.concatenate(
                [self._first[:, :n], np.empty((MOST_IN_FIRST + 1, room), np.float32)], axis=1
            )
        self._ids[n : n + more] = ids
        self._numbers[n : n + more] = unit_rows(features) @ _directions(features.shape[1])
        self._first[:, n : n + more] = _with_squares(self._numbers[n : n + more, :MOST_IN_FIRST]).T
        self._known.update(ids)


class StoredPhotos:
    """The photos of a model in one state. Only the rows in question are read from the database."""

    def __init__(self, contents: Contents, duplicates: DuplicateIndex, connection: sqlite3.Connection) -> None:
        self._contents, self._duplicates, self._connection = contents, duplicates, connection

    def of(self, name: str) -> Floats:
        """Return the features of one class's photos, in order."""
        row = self._contents.by_name.get(name)
        return np.zeros((0, self._contents.width), np.float32) if row is None else row.features

    def twins(self, photos: Sequence[PhotoRecord]) -> list[Twin | None]:
        """Return for each photo the earlier one that is the same file or a near copy; None if there is none."""
        self._duplicates.follow(self._contents)
        unit = unit_rows(photo_features(photos))
        each = zip(photos, unit, self._duplicates.near(unit), strict=True)
        return [self._same_file(photo) or self._alike(row, near) for photo, row, near in each]

    def _same_file(self, photo: PhotoRecord) -> Twin | None:
        query = (
            "SELECT classes.name FROM photos JOIN classes ON classes.id = class_id "
            "WHERE sha256 = ? AND classes.name != ? ORDER BY classes.name LIMIT 1"
        )
        found = self._connection.execute(query, (photo.sha256, NONE)).fetchone()
        return None if found is None else Twin(found[0], same_file=True)

    def _alike(self, row: Floats, near: Sequence[int]) -> Twin | None:
        query = "SELECT class_id FROM photos WHERE id = ? AND class_id IS NOT NULL"
        placed = [number for one in near for (number,) in self._connection.execute(query, (one,))]
        rows = (self._contents.rows[number] for number in set(placed))
        classes = sorted((one.name, one.features) for one in rows if one.name != NONE)
        return likest((name, unit_rows(features) @ row) for name, features in classes)


def _with_squares(rows: Floats) -> Floats:
    return np.concatenate([rows, squared_lengths(rows)[:, None]], axis=1)


def _near(known: Floats, own: Floats) -> NDArray[np.bool_]:
    """Tell which of the known columns are as near to each own row as near copies are, (n, m).

    The last row of the known ones has their squared lengths.
    """
    # ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y, and that of the whole features is 2 (1 − cosine).
    products = np.concatenate([2 * own, np.full((len(own), 1), -1, own.dtype)], axis=1) @ known
    near: NDArray[np.bool_] = products >= (squared_lengths(own) - 2 * (1 - SAME) - SLACK)[:, None]
    return near


@lru_cache(maxsize=4)
def _directions(width: int) -> NDArray[np.float32]:
    """Return the orthonormal directions that all photos are projected on, (width, NUMBERS)."""
    drawn = np.random.default_rng(0).normal(size=(width, min(width, NUMBERS)))
    found: NDArray[np.float32] = np.zeros((width, NUMBERS), np.float32)
    found[:, : drawn.shape[1]] = np.linalg.qr(drawn)[0]
    return found

"""Photos that were learned before: the same file, or one that shows the same, among however many there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.arrays import squared_lengths, unit_rows
from fiveshot.recognizer.names import NONE
from fiveshot.recognizer.store.contents import SAME, Contents, Twin, likest
from fiveshot.recognizer.store.rows import Floats, PhotoRecord, photo_features

NUMBERS = 64  # of a photo: unlike photos differ in them, so that few are compared in all their features,
FIRST = 16  # and most in the first of them
SLACK = 1e-4  # more than rounding adds to a squared distance


class Looks:
    """What learned photos look like, a few numbers each: what differs in these differs in all.

    The numbers are a projection of the feature, scaled to length one, on fixed directions. Distances only become
    shorter so, and no photo is missed. Photos that were removed stay; whoever finds one must look whether it is
    still there.
    """

    def __init__(self, made_by: str = "") -> None:
        self._made_by = made_by  # fingerprint of the backbone
        self._state = 0
        self._known = set[int]()
        self._ids = np.empty(0, np.int64)  # with room for more photos,
        self._numbers = np.empty((0, NUMBERS), np.float32)  # which are as many as are known
        self._first = self._numbers[:, :FIRST]
        self._squares = np.empty(0, np.float32)  # lengths of the first ones

    def follow(self, contents: Contents) -> None:
        """Take up the photos that have come since."""
        if contents.manifest.backbone.fingerprint != self._made_by:
            # Another backbone makes other features of every photo.
            vars(self).update(vars(Looks(contents.manifest.backbone.fingerprint)))
        of_all = contents.since != self._state or not self._state
        for row in contents.rows.values() if of_all else map(contents.rows.get, contents.touched):
            if row is not None and row.changed > self._state and row.name != NONE:
                fresh = [place for place, number in enumerate(row.photos.ids) if number not in self._known]
                self._add([row.photos.ids[place] for place in fresh], row.features[fresh])
        self._state = contents.state

    def near(self, rows: Floats) -> list[list[int]]:
        """Return the photos that may show the same as each row of features of length one, by number."""
        n = len(self._known)
        own = rows @ _directions(rows.shape[1])
        some = np.flatnonzero(_near(self._first[:n], self._squares[:n], own[:, :FIRST]).any(axis=0))
        found: list[list[int]] = [[] for _ in rows]
        close = self._numbers[some]
        for row, place in np.argwhere(_near(close, squared_lengths(close), own)).tolist():
            found[row].append(int(self._ids[some[place]]))
        return found

    def _add(self, ids: Sequence[int], features: Floats) -> None:
        n, more = len(self._known), len(ids)
        if n + more > len(self._ids):
            room = max(n + more, 2 * n, 64) - n
            self._ids = np.concatenate([self._ids[:n], np.empty(room, np.int64)])
            self._numbers = np.concatenate([self._numbers[:n], np.empty((room, NUMBERS), np.float32)])
            self._first = np.concatenate([self._first[:n], np.empty((room, FIRST), np.float32)])
            self._squares = np.concatenate([self._squares[:n], np.empty(room, np.float32)])
        self._ids[n : n + more] = ids
        self._numbers[n : n + more] = unit_rows(features) @ _directions(features.shape[1])
        self._first[n : n + more] = self._numbers[n : n + more, :FIRST]
        self._squares[n : n + more] = squared_lengths(self._first[n : n + more])
        self._known.update(ids)


class StoredPhotos:
    """The photos of a model in one state, asked one by one: nothing is put together of all of them."""

    def __init__(self, contents: Contents, looks: Looks, connection: sqlite3.Connection) -> None:
        self._contents, self._looks, self._connection = contents, looks, connection

    def of(self, name: str) -> Floats:
        """Return the features of one class's photos, in order."""
        row = self._contents.by_name.get(name)
        return np.zeros((0, self._contents.width), np.float32) if row is None else row.features

    def twins(self, photos: Sequence[PhotoRecord]) -> list[Twin | None]:
        """Return for each photo the one learned earlier that is the same file, or shows the same."""
        self._looks.follow(self._contents)
        unit = unit_rows(photo_features(photos))
        each = zip(photos, unit, self._looks.near(unit), strict=True)
        return [self._same_file(photo) or self._alike(row, near) for photo, row, near in each]

    def _same_file(self, photo: PhotoRecord) -> Twin | None:
        query = (
            "SELECT name FROM photos JOIN classes ON classes.id = class_id "
            "WHERE sha256 = ? AND name != ? ORDER BY name LIMIT 1"
        )
        found = self._connection.execute(query, (photo.sha256, NONE)).fetchone()
        return None if found is None else Twin(found[0], same_file=True)

    def _alike(self, row: Floats, near: Sequence[int]) -> Twin | None:
        query = "SELECT class_id FROM photos WHERE id = ? AND class_id IS NOT NULL"
        placed = [number for one in near for (number,) in self._connection.execute(query, (one,))]
        rows = (self._contents.rows[number] for number in set(placed))
        classes = sorted((one.name, one.features) for one in rows if one.name != NONE)
        return likest((name, unit_rows(features) @ row) for name, features in classes)


def _near(known: Floats, squares: Floats, own: Floats) -> NDArray[np.bool_]:
    """Return which of the known rows are as near to each own one as photos that show the same, (n, m)."""
    # ‖x − y‖² = ‖x‖² + ‖y‖² − 2 x·y, and that of the whole features is 2 (1 − cosine).
    products = (2 * own) @ known.T  # few rows, each of all photos: that is how memory is read fastest
    products -= squares
    near: NDArray[np.bool_] = products >= (squared_lengths(own) - 2 * (1 - SAME) - SLACK)[:, None]
    return near


@lru_cache(maxsize=4)
def _directions(width: int) -> NDArray[np.float32]:
    """Return directions that all photos are projected on, orthonormal, (width, NUMBERS)."""
    drawn = np.random.default_rng(0).normal(size=(width, min(width, NUMBERS)))
    found: NDArray[np.float32] = np.zeros((width, NUMBERS), np.float32)
    found[:, : drawn.shape[1]] = np.linalg.qr(drawn)[0]
    return found

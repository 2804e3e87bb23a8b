"""Sort photos without labels: recognize known classes, group the rest, and choose what to ask first.

Groups come from Ward's agglomerative clustering, after each vector has been moved toward its neighbors. The number
of groups is not given: two groups are joined if their means are closer than a fixed part of the usual distance
between a photo and its neighbors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.arrays import unit_rows
from fiveshot.core.scorers import Scorer
from fiveshot.recognizer.answers.folders import ClassFolders, Placed, Way
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.rows import Floats
from fiveshot.storage import FilePath
from fiveshot.values import BadImage, KnownPhoto, PhotoGroup, Question, Sorting

# Neighbors that a vector is moved toward, how often, and the power of their cosines.
MOVED_TOWARD, MOVES, COSINE_POWER = 5, 2, 3
LINKED = 10  # neighbors that a photo may be grouped with; so memory grows linearly with the photos
# Two groups are joined below this distance of their means. It is a part of the distance to the neighbor with this
# rank, and grows with this power of the mean group size. Chosen on training photos of half of the classes of
# CUB-200, as they are and with their means moved together. Pure groups are preferred: two groups can get the same
# name, but a group of two things teaches something wrong.
APART, AROUND, LARGER = 0.3, 30, 0.075
FINE = 0.7  # the same part for the photos of one question, relative to APART
LEAST_DISTANCE = 0.35  # smaller distances are of copies, which do not show how alike photos of a thing are
LEAST_AROUND = 0.5  # the same limit for the distance to the neighbor of rank AROUND
COMPANIONS = 19  # photos shown in one question
LEAST_ALIKE = 0.1  # part of the learned photos that are least like the others of their class
ASKED = 0.1  # known photos with more doubt are asked about
COMPARED = 1024  # photos compared at a time

Rows = NDArray[np.intp]


def place_sorted(
    sorting: Sorting,
    folder: FilePath,
    way: Way = "copy",
    *,
    names: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> Placed:
    """Put sorted photos into folders: one for each class, and one for each group of the others.

    ``fiveshot put-back`` takes it back.

    Parameters
    ----------
    sorting : Sorting
        What ``sort_photos`` returned.
    folder : str or path
        The folder for the results; unknown photos go to ``_unknown/g3`` and so on, unsure ones to ``_unknown``.
    way : {"copy", "link", "move"}
        What happens to the photos.
    names : mapping of str to str, optional
        Class names for groups, questions or photos; they go to the folder of that class.
    dry_run : bool
        Whether to change nothing, and only say what would be done.

    Returns
    -------
    Placed
        The number of photos in each folder, and the photos that could not be placed.

    Raises
    ------
    InputError
        If ``names`` has an unknown group, question or photo.
    StorageError
        If the folder cannot be written to. Its journal lists the photos placed before.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.recognizer import place_sorted
    >>> from fiveshot.values import Sorting
    >>> place_sorted(Sorting((), (), (), ()), tempfile.mkdtemp(), dry_run=True).there
    0
    """
    labels: dict[int, str | None] = {one.photo: one.place for one in sorting.known}
    labels |= {photo: name for place, name in (names or {}).items() for photo in sorting.photos_of(place)}
    groups = {photo: group.id for group in sorting.groups for photo in group.photos}
    folders = ClassFolders(folder, way, dry_run=dry_run)
    try:
        for number, photo in enumerate(sorting.sources):
            folders.put(photo, labels.get(number), groups.get(number, ""))
    finally:
        folders.close()
    return folders.placed


@dataclass(frozen=True, eq=False)
class LikenessSpace:
    """The space in which photos are compared: there, the photos of a class vary equally in all directions.

    For a model that has not learned such a space, it is the space of the features.
    """

    head: Scorer | None = None

    @classmethod
    def of(cls, snapshot: Snapshot) -> LikenessSpace:
        """Return the metric of a head."""
        return cls(snapshot.head if len(snapshot.memory.labels) else None)

    def __call__(self, X: Floats) -> Floats:
        """Return vectors of length one."""
        unit: Floats = unit_rows(X)
        white = self.head.whiten(unit.copy()) if self.head is not None else None
        return unit if white is None else unit_rows(np.asarray(white, dtype=np.float32))


def sort_rows(
    snapshot: Snapshot,
    X: Floats,
    *,
    photos: Sequence[str],
    numbers: Sequence[int] | None = None,
    bad: Sequence[BadImage] = (),
    ask: bool = True,
) -> Sorting:
    """Recognize the features of known classes and group the rest; a model without classes groups all.

    ``numbers`` are numbers for the rows, if their positions are not used. Without ``ask`` the queue is empty.
    """
    metric = LikenessSpace.of(snapshot)
    V = metric(X)
    known, doubt, guesses = _recognized(snapshot, X)
    unknown = np.setdiff1d(np.arange(len(X)), [one.photo for one in known])
    groups = _groups(V, unknown, group_rows(V[unknown]))
    queue = _queue(V, doubt, _unlike(snapshot, V, metric), guesses) if ask else ()
    found = Sorting(tuple(photos), tuple(known), groups, queue, tuple(bad), snapshot.state)
    return found if numbers is None else _renumbered(found, numbers)


def known_labels(snapshot: Snapshot, X: Floats) -> list[str | None]:
    """Return the class that each row shows, as sorting sees it; None for what is unknown."""
    known = {one.photo: one.label for one in _recognized(snapshot, X)[0]}
    return [known.get(row) for row in range(len(X))]


def _renumbered(found: Sorting, numbers: Sequence[int]) -> Sorting:
    def group(one: PhotoGroup) -> PhotoGroup:
        photos = tuple(numbers[photo] for photo in one.photos)
        return PhotoGroup(f"g{min(photos)}", photos)

    def question(one: Question) -> Question:
        return replace(one, photo=numbers[one.photo], companions=tuple(numbers[place] for place in one.companions))

    return replace(
        found,
        known=tuple(replace(one, photo=numbers[one.photo]) for one in found.known),
        groups=tuple(map(group, found.groups)),
        queue=tuple(map(question, found.queue)),
    )


def _recognized(snapshot: Snapshot, X: Floats) -> tuple[list[KnownPhoto], NDArray[np.float64], list[str | None]]:
    """Return which photos are known, the doubt about every photo, and the class of known ones."""
    doubt, guesses = np.ones(len(X)), list[str | None]([None] * len(X))
    if not len(snapshot.memory.labels):
        return [], doubt, guesses
    limit = _limits(snapshot)
    known = []
    for start in range(0, len(X), COMPARED):
        part = slice(start, start + COMPARED)
        for place, one in enumerate(snapshot.predict_features(X[part], 2)):
            row, best = start + place, one.candidates[0]
            if one.unknown or (limit is not None and _likeness(snapshot, X[row], best.label) < limit):
                continue
            guesses[row] = best.label
            chances = [each.probability for each in one.candidates if each.probability is not None]
            doubt[row] = 1 - (chances[0] - chances[1]) if chances else 0.0  # between the two most probable classes
            known.append(KnownPhoto(row, best.label, best.probability, one.between))
    return sorted(known, key=lambda one: (-(one.probability or 0.0), one.photo)), doubt, guesses


def _limits(snapshot: Snapshot) -> float | None:
    """Return how similar a photo must be to one of its class, for a model that has no rejection thresholds yet.

    Nine in ten learned photos are that similar to another photo of their class; the others may be misplaced.
    """
    if snapshot.rejection.counts:
        return None
    alike: list[float] = []
    for one in snapshot.contents.classes.values():
        unit = unit_rows(one.features)
        likeness = unit @ unit.T - 2 * np.eye(len(unit), dtype=np.float32)
        alike += likeness.max(axis=1).tolist() if len(unit) > 1 else []
    return float(np.quantile(alike, LEAST_ALIKE)) if alike else 1 - LEAST_DISTANCE**2 / 2


def _likeness(snapshot: Snapshot, x: Floats, label: str) -> float:
    """Return the similarity of a photo to the most similar one of a class."""
    row = snapshot.contents.by_name.get(label)
    if row is None or row.base:
        return 1.0  # photos of base classes are not stored
    return float((unit_rows(row.features) @ unit_rows(x[None])[0]).max())


def _unlike(snapshot: Snapshot, V: Floats, metric: LikenessSpace) -> NDArray[np.float64]:
    """Return the distance of each photo from the most similar learned one, from 0 to 1."""
    learned = snapshot.contents.photos.features
    if not len(learned):
        return np.ones(len(V))
    known = metric(learned)
    parts = [(V[start : start + COMPARED] @ known.T).max(axis=1) for start in range(0, len(V), COMPARED)]
    unlike: NDArray[np.float64] = np.clip(1 - np.concatenate([*parts, np.zeros(0)]), 0, 1)
    return unlike


def _groups(V: Floats, rows: Rows, labels: Rows) -> tuple[PhotoGroup, ...]:
    found = []
    for members in _members(labels):
        photos = rows[members]
        typical = photos[_by_typical(V[photos])]
        found.append(PhotoGroup(f"g{photos.min()}", tuple(typical.tolist())))
    return tuple(sorted(found, key=lambda group: (-len(group.photos), min(group.photos))))


def _queue(
    V: Floats,
    doubt: NDArray[np.float64],
    unlike: NDArray[np.float64],
    guesses: Sequence[str | None],
) -> tuple[Question, ...]:
    """Return the questions: small groups of photos, ordered by doubt plus distance from what was learned."""
    rows = np.flatnonzero(doubt > ASKED)
    found = []
    for members in _members(group_rows(V[rows], fine=FINE)):
        photos = rows[members]
        first, *others = photos[_by_typical(V[photos])].tolist()
        value = float((doubt[photos] * unlike[photos]).sum())
        found.append(Question(first, tuple(others[:COMPANIONS]), value, guesses[first]))
    return tuple(sorted(found, key=lambda one: (-one.value, one.photo)))


def _members(labels: Rows) -> Iterator[Rows]:
    order = np.argsort(labels, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(labels) else ()


def _by_typical(V: Floats) -> Rows:
    order: Rows = np.argsort(-(V @ V.mean(axis=0)), kind="stable")
    return order


def group_rows(V: Floats, *, fine: float = 1.0) -> Rows:
    """Return the group of each row of unit vectors; the number of groups follows from the rows.

    A smaller ``fine`` gives smaller groups.

    >>> rows = np.float32([[1, 0, 0], [0.99, 0.1, 0], [0, 1, 0], [0.1, 0.99, 0], [0, 0, 1]])
    >>> group_rows(rows).tolist()
    [0, 0, 1, 1, 2]
    """
    n = len(V)
    if n < 2:
        return np.zeros(n, np.intp)
    farthest = neighbors(V, AROUND)[1][:, -1]
    around = max(float(np.median(np.sqrt(np.maximum(2 - 2 * farthest, 0)))), LEAST_AROUND)
    drawn = V
    for _ in range(MOVES):
        drawn = _drawn_together(drawn)
    merges, heights = _ward(drawn)
    size = n / (n - np.arange(len(heights)))  # mean size of the groups before each merge
    limit = fine * APART * around * size**LARGER
    # h² = 2 a b / (a + b) · ‖μₐ − μ_b‖² for groups of a and b rows; so h = √m · ‖μₐ − μ_b‖ for two groups of m.
    over = np.flatnonzero(np.maximum.accumulate(heights) >= limit * np.sqrt(size))
    return _after(merges, int(over[0]) if len(over) else len(merges), n)


def neighbors(V: Floats, count: int) -> tuple[Rows, Floats]:
    """Return the most similar other rows of each row and their cosines, both (n, count)."""
    n = len(V)
    count = min(count, n - 1)
    places, likeness = np.empty((n, count), np.intp), np.empty((n, count), np.float32)
    for start in range(0, n, COMPARED):
        products = V[start : start + COMPARED] @ V.T
        each = np.arange(len(products))
        products[each, start + each] = -np.inf
        best = np.argpartition(-products, count - 1, axis=1)[:, :count]
        values = np.take_along_axis(products, best, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        places[start : start + COMPARED] = np.take_along_axis(best, order, axis=1)
        likeness[start : start + COMPARED] = np.take_along_axis(values, order, axis=1)
    return places, likeness


def _drawn_together(V: Floats) -> Floats:
    places, likeness = neighbors(V, MOVED_TOWARD - 1)
    total = V.copy()
    for place in range(places.shape[1]):
        total += np.maximum(likeness[:, place, None], 0) ** COSINE_POWER * V[places[:, place]]
    drawn: Floats = unit_rows(total)
    return drawn


def _ward(V: Floats) -> tuple[Rows, NDArray[np.float64]]:
    """Return the merges of Ward's clustering in order, with their heights; only neighbors are merged."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components
    from sklearn.cluster import ward_tree

    n = len(V)
    places, _ = neighbors(V, LINKED)
    ends = [np.repeat(np.arange(n), places.shape[1]), places.ravel()]
    graph = coo_matrix((np.ones(len(ends[0])), (ends[0], ends[1])), shape=(n, n))
    _, parts = connected_components(graph, directed=False)
    _, first = np.unique(parts, return_index=True)
    if len(first) > 1:  # link one row of each part to the next part and to the nearest one
        nearest = first[neighbors(V[first], 1)[0][:, 0]]
        more = [np.concatenate([first[:-1], first]), np.concatenate([first[1:], nearest])]
        ends = [np.concatenate(pair) for pair in zip(ends, more, strict=True)]
    link = coo_matrix(
        (np.ones(2 * len(ends[0])), (np.concatenate(ends), np.concatenate(ends[::-1]))), shape=(n, n)
    )
    merges, _, _, _, heights = ward_tree(V.astype(np.float64), connectivity=link.tocsr(), return_distance=True)
    return merges, heights


def _after(merges: Rows, count: int, n: int) -> Rows:
    """Return the groups after ``count`` merges, numbered by their first rows."""
    parent = np.arange(n + count)
    for number in range(count):
        parent[merges[number]] = n + number
    for number in range(n + count - 1, -1, -1):  # a merge has a higher number than its two parts
        parent[number] = parent[parent[number]]
    _, first, labels = np.unique(parent[:n], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.intp)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[labels]

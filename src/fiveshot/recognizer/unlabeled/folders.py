"""Sort a folder without labels, in parts, with cached vectors; learn its groups by name.

Vectors are stored in a file of the cache, by the SHA-256 of the photos. So an interrupted sorting continues, a
larger folder costs only its new photos, and changes since the last time are reported.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fiveshot.backbones import Embedder
from fiveshot.data import BadImage, ImageError, Photo
from fiveshot.errors import InputError, StorageError, counted
from fiveshot.features import default_cache_folder
from fiveshot.recognizer._learning import checked_features, learn_classes, records_to_store
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.photos.embedding import records_or_bad
from fiveshot.recognizer.photos.inputs import PhotoInputs, gather_photos
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.rows import Floats, PhotoRecord, number_bytes, storable, stored_numbers
from fiveshot.recognizer.unlabeled.sorting import sort_rows
from fiveshot.values import FolderChanges, LearnReport, Sorting
from fiveshot.work import Progress, one_thread

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer

PART = 128  # photos whose vectors are stored together: the most that an interruption can lose
MOST_KEPT = 100_000  # vectors in the file; the oldest are deleted
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (sha256 TEXT PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS folders (folder TEXT, photo TEXT, sha256 TEXT, PRIMARY KEY (folder, photo));
"""


class KeptVectors:
    """Vectors of one backbone by the content of photos, and the photos of each folder at the last time.

    Parameters
    ----------
    file : path
        The database; created if it does not exist.
    width : int
        Length of a vector.
    """

    def __init__(self, file: Path, width: int) -> None:
        self.file, self._width = file, width
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(file, timeout=10)
            self._connection.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise self._failed(error) from error

    @classmethod
    def of(cls, embedder: Embedder) -> KeptVectors:
        """Open the vectors of a backbone, in the cache."""
        return cls(default_cache_folder() / f"sorted-{embedder.fingerprint[:32]}.sqlite", embedder.width)

    def vectors(self, sha256s: Iterable[str]) -> dict[str, Floats]:
        """Return the stored vectors of photos."""
        query = "SELECT vector FROM vectors WHERE sha256 = ?"
        try:
            rows = {one: self._connection.execute(query, (one,)).fetchone() for one in sha256s}
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return {one: stored_numbers(row[0], self._width)[0] for one, row in rows.items() if row is not None}

    def keep(self, photos: Iterable[PhotoRecord]) -> None:
        """Store vectors; delete the oldest if there are too many."""
        rows = [(photo.sha256, number_bytes(photo.feature)) for photo in photos]
        old = "DELETE FROM vectors WHERE rowid <= (SELECT max(rowid) FROM vectors) - ?"
        self._write([("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows), (old, [(MOST_KEPT,)])])

    def since(self, folder: str, photos: Mapping[str, str]) -> FolderChanges | None:
        """Return the changes in a folder since the last time, and remember its present photos."""
        folder, photos = storable(folder), {storable(name): sha256 for name, sha256 in photos.items()}
        query = "SELECT photo, sha256 FROM folders WHERE folder = ?"
        try:
            before = dict(self._connection.execute(query, (folder,)))
        except sqlite3.Error as error:
            raise self._failed(error) from error
        rows = [(folder, name, sha256) for name, sha256 in photos.items()]
        self._write(
            [("DELETE FROM folders WHERE folder = ?", [(folder,)]), ("INSERT INTO folders VALUES (?, ?, ?)", rows)]
        )
        if not before:
            return None
        both = before.keys() & photos.keys()
        return FolderChanges(
            new=len(photos.keys() - before.keys()),
            gone=len(before.keys() - photos.keys()),
            changed=sum(before[name] != photos[name] for name in both),
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _write(self, statements: Iterable[tuple[str, Sequence[tuple[object, ...]]]]) -> None:
        try:
            with self._connection:
                for statement, rows in statements:
                    self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StorageError:
        return StorageError(
            f"cannot store the vectors of photos in {self.file} ({error})",
            hint="sort without it: resume=False (--no-resume); or set FIVESHOT_CACHE to another folder",
            code="not_kept",
        )


def sort_photos(
    model: Recognizer, photos: PhotoInputs, *, resume: bool = True, progress: Progress | None = None
) -> Sorting:
    """Sort photos without labels: known classes, groups of the others, and what to name first.

    Nothing is moved or learned; ``learn_sorted`` learns groups by name. A model without classes puts all photos
    into groups.

    Parameters
    ----------
    model : Recognizer
        The model.
    photos : photos
        As in ``learn``, for example a folder.
    resume : bool
        Whether to store the vectors of photos in the cache, so that sorting can be interrupted and repeated.
    progress : callable, optional
        Called with the number of photos done and the number of all photos.

    Returns
    -------
    Sorting
        The photos, sorted; those that cannot be used are in ``bad``.

    Raises
    ------
    InputError
        If there are no photos.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import sort_photos
    >>> shades = ("darkred", "firebrick", "red", "midnightblue", "navy", "darkblue")
    >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
    ...     sorting = sort_photos(colors, [Image.new("RGB", (64, 64), shade) for shade in shades], resume=False)
    >>> len(sorting.photos), sorting.known, sum(len(group.photos) for group in sorting.groups)
    (6, (), 6)
    """
    gathered, snapshot = gather_photos(photos), model.refresh()
    embedder = model.embedder_of(snapshot)
    # Photos of a folder are remembered by folder, and listed again at the end.
    folder = Path(photos) if isinstance(photos, str | Path) and Path(photos).is_dir() else None
    with closing(KeptVectors.of(embedder)) if resume else nullcontext() as kept:
        seen, bad = _compute_missing(embedder, gathered, kept, progress)
        names = {gathered[place].name: photo.sha256 for place, photo in seen}
        since = kept.since(str(folder.resolve()), names) if kept is not None and folder is not None else None
    return replace(_sorted(snapshot, gathered, seen, bad), since=since, meanwhile=_meanwhile(gathered, folder))


def sort_features(model: Recognizer, X: ArrayLike, *, photos: Sequence[str] | None = None) -> Sorting:
    """Sort features of photos without labels by known classes, and group the others.

    Parameters
    ----------
    model : Recognizer
        The model.
    X : array of shape (n, d)
        Features that this model's backbone has made.
    photos : sequence of str, optional
        Names of the photos.

    Returns
    -------
    Sorting
        Photos of known classes, groups of the others, and what to name first.

    Raises
    ------
    InputError
        If the features do not fit the model.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import sort_features
    >>> rng = np.random.default_rng(0)
    >>> owls, wrens = rng.normal(size=(2, 1, 320)) + 0.3 * rng.normal(size=(2, 6, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls[:3])
    ...     sorting = sort_features(birds, [*owls[3:], *wrens])
    >>> [one.label for one in sorting.known], [len(group.photos) for group in sorting.groups]
    (['owl', 'owl', 'owl'], [6])
    """
    snapshot = model.refresh()
    rows = checked_features(X, snapshot.contents.width)
    names = [f"photo {number}" for number in range(1, len(rows) + 1)] if photos is None else photos
    return sort_rows(snapshot, rows, photos=names)


NumberedPhotos = list[tuple[int, PhotoRecord]]  # positions among the photos


def _compute_missing(
    embedder: Embedder, photos: Sequence[Photo], kept: KeptVectors | None, progress: Progress | None
) -> tuple[NumberedPhotos, list[BadImage]]:
    seen: NumberedPhotos = []
    bad: list[BadImage] = []
    for start in range(0, len(photos), PART):
        places = range(start, min(start + PART, len(photos)))
        known = _known(kept, {place: photos[place] for place in places}, bad) if kept is not None else {}
        refused = {one.name for one in bad}
        left = [place for place in places if place not in known and photos[place].name not in refused]

        def report(done: int, _: int, before: int = start + len(places) - len(left)) -> None:
            if progress is not None:
                progress(before + done, len(photos))

        found = records_or_bad(embedder, [photos[place] for place in left], progress=report) if left else []
        fresh = [(place, one) for place, one in zip(left, found, strict=True) if isinstance(one, PhotoRecord)]
        bad += [one for one in found if isinstance(one, BadImage)]
        if kept is not None:
            kept.keep(photo for _, photo in fresh)
        seen += sorted([*known.items(), *fresh], key=lambda one: one[0])
        report(len(left), 0)
    return seen, bad


def _known(kept: KeptVectors, photos: Mapping[int, Photo], bad: list[BadImage]) -> dict[int, PhotoRecord]:
    """Return the stored vectors of photos by their content; photos that cannot be read are added to ``bad``."""
    digests = {}
    for place, photo in photos.items():
        try:
            digests[place] = Photo(photo.source, photo.box).sha256  # of the present file
        except ImageError as error:
            bad.append(BadImage(error.name, error.reason, error.code))
    vectors = kept.vectors(digests.values())
    return {
        place: PhotoRecord(sha256, vectors[sha256], name=photos[place].name)
        for place, sha256 in digests.items()
        if sha256 in vectors
    }


def _sorted(snapshot: Snapshot, photos: Sequence[Photo], seen: NumberedPhotos, bad: list[BadImage]) -> Sorting:
    once = {photo.sha256: place for place, photo in reversed(seen)}  # the first of equal photos
    chosen = [(place, photo) for place, photo in seen if once[photo.sha256] == place]
    width = snapshot.contents.width
    X = np.stack([photo.feature for _, photo in chosen]) if chosen else np.zeros((0, width), np.float32)
    with one_thread():
        found = sort_rows(snapshot, X, photos=[photo.name for _, photo in chosen], bad=bad)
    return replace(
        found,
        sha256s=tuple(photo.sha256 for _, photo in chosen),
        copies=len(seen) - len(chosen),
        sources=tuple(photos[place] for place, _ in chosen),
    )


def _meanwhile(photos: Sequence[Photo], folder: Path | None) -> tuple[str, ...]:
    """Return the photos that were added during the sorting."""
    if folder is None:
        return ()
    known = {photo.name for photo in photos}
    try:
        return tuple(photo.name for photo in gather_photos(folder) if photo.name not in known)
    except InputError:  # the folder is gone or empty now
        return ()


def learn_sorted(
    model: Recognizer, sorting: Sorting, names: Mapping[str, str], *, progress: Progress | None = None
) -> list[LearnReport]:
    """Learn sorted photos by the names of their groups, in one change.

    Parameters
    ----------
    model : Recognizer
        The model.
    sorting : Sorting
        The result of ``sort_photos``.
    names : mapping of str to str
        Names of classes, known or new, by the id of a group (``g3``), by a question of the queue (``q3``, with
        its companions) or by the number of a photo (``3``).
    progress : callable, optional
        Called with the number of photos done and the number of all photos.

    Returns
    -------
    list of LearnReport
        One for each class.

    Raises
    ------
    InputError
        If there is no such group, or a photo has changed since it was sorted.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import learn_sorted, sort_photos
    >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
    ...     sorting = sort_photos(colors, [Image.new("RGB", (64, 64), "red")], resume=False)
    ...     [report.name for report in learn_sorted(colors, sorting, {"g0": "red"})]
    ['red']
    """
    wanted = _named(sorting, names)
    snapshot = model.refresh()
    embedder = model.embedder_of(snapshot)
    numbers = [number for own in wanted.values() for number in own]
    photos = [Photo(sorting.sources[number].source, sorting.sources[number].box) for number in numbers]
    seen = dict(zip(numbers, records_to_store(snapshot, embedder, photos, progress), strict=True))
    changed = [photo.name for number, photo in seen.items() if photo.sha256 != sorting.sha256s[number]]
    if changed:
        raise InputError(
            f"{counted(len(changed), 'photo')} changed since they were sorted ({', '.join(changed[:3])})",
            hint="nothing was learned: sort the folder again",
            code="photo_changed",
        )
    by_class = {name: [seen[number] for number in own] for name, own in wanted.items()}
    with model.live.change() as change:
        return learn_classes(change, by_class, add=True, made_by=embedder.fingerprint)


def _named(sorting: Sorting, names: Mapping[str, str]) -> dict[str, list[int]]:
    """Return the photos by their given names."""
    if not names:
        raise InputError("no names were given", hint="name a group, such as g3=wren", code="no_names")
    by_name: dict[str, list[int]] = {}
    taken: dict[int, str] = {}
    for place, given in names.items():
        name = check_name(given)
        for number in sorting.photos_of(place):
            if taken.setdefault(number, name) != name:
                raise InputError(
                    f"photo {number} would be {taken[number]!r} and {name!r}",
                    hint="give it one name",
                    code="two_names",
                )
            if number not in by_name.setdefault(name, []):
                by_name[name].append(number)
    return by_name

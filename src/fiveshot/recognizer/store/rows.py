"""Stored classes and photos: the records, their bytes and checksums, and the rows of the database."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fiveshot.core import ClassSummary, summarize
from fiveshot.data import Box, is_image
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.store.manifest import Options

Floats = NDArray[np.float32]
CHECK = "run: fiveshot check MODEL, or restore the model from a copy"
MAX_THUMBNAIL = 1 << 18  # bytes
MAX_FILE_NAME = 255  # characters
MAX_KEPT_PHOTO = 1 << 28  # limits in bytes: of one stored photo,
MAX_KEPT_CLASS = 1 << 31  # of the stored photos of a class,
MAX_KEPT_MODEL = 1 << 35  # and of the database with its history, before photos are added
# Number, date, digest, whether a small copy and the file are stored, name of the file.
PhotoFacts = tuple[int, str, str, int, int, str | None]
LITTLE = np.dtype("<f4")  # the number format of the database, on every machine
_CLASS = "SELECT id, name, base, created, changed, count, digest, mean, factor FROM classes"


@dataclass(frozen=True, eq=False)
class PhotoRecord:
    """A learned photo: its feature and, depending on the options of the model, its picture.

    Attributes
    ----------
    sha256 : str
        Digest of the given file. It shows whether a file is learned twice.
    feature : ndarray of shape (d,)
        The feature from the backbone.
    thumbnail : bytes or None
        A small copy.
    original : bytes or None
        The file, or a copy of it without metadata if the service stored it; ``photo_digest`` protects its bytes.
    added : str
        When it was learned, in UTC.
    id : int or None
        Its number in the database; None until it is stored.
    name : str
        While it is learned, its name for messages, such as a path. Of a stored photo, the name of its file, or an
        empty text if that was not kept.
    box : Box or None
        The part of the file that was used; not stored.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.recognizer import PhotoRecord
    >>> PhotoRecord(sha256=64 * "0", feature=np.ones(320, np.float32), name="owl.jpg").feature.shape
    (320,)
    """

    sha256: str
    feature: Floats  # (d,)
    thumbnail: bytes | None = None
    original: bytes | None = None
    added: str = ""
    id: int | None = None
    name: str = ""
    box: Box | None = None


@dataclass(frozen=True, eq=False)
class ClassRecord:
    """A class with all its data; ``base`` marks photos that were added to a base class."""

    name: str
    summary: ClassSummary
    photos: tuple[PhotoRecord, ...] = ()
    base: bool = False
    created: str = ""
    id: int | None = None
    changed: int = 0  # the state in which it was last written


def photo_id(number: int) -> str:
    """Return the id that users see.

    >>> photo_id(17)
    'p17'
    """
    return f"p{number}"


def photo_features(photos: Sequence[PhotoRecord]) -> Floats:
    """Return the features of photos, (n, d)."""
    return np.stack([photo.feature for photo in photos])


def file_name(text: str) -> str | None:
    """Return the name of a photo's file from its path, or None if this is not the name of an image file.

    Only the name alone is kept: no folders, and no characters that a screen does not show.

    >>> file_name("photos/owl/1.jpg"), file_name("C:\\\\fakepath\\\\a\\x1b[31m.PNG"), file_name("photo 3")
    ('1.jpg', 'a[31m.PNG', None)
    >>> file_name("http://camera/snapshot.jpg") is None  # the camera's address, not the name of a photo
    True
    """
    if "://" in text:
        return None
    last = text.replace("\\", "/").rpartition("/")[2]
    shown = "".join(" " if one.isspace() else one for one in last if one.isprintable() or one.isspace()).strip()
    suffix = PurePosixPath(shown).suffix
    name = shown if len(shown) <= MAX_FILE_NAME else shown[: MAX_FILE_NAME - len(suffix)] + suffix
    return name if is_image(name) else None


def storable(text: str) -> str:
    """Return text that a database can hold: a path may have bytes that are not characters.

    >>> storable("a\\udcff.jpg")
    'a\\\\udcff.jpg'
    """
    return text.encode(errors="backslashreplace").decode()


def kept_photos(photos: Iterable[PhotoRecord], options: Options) -> tuple[PhotoRecord, ...]:
    """Return photos as they are stored: with their file names, without the pictures that the model leaves out."""
    return tuple(
        replace(
            photo,
            thumbnail=photo.thumbnail if options.thumbnails else None,
            original=photo.original if options.keep_photos else None,
            name=(file_name(photo.name) if options.names else None) or "",
        )
        for photo in photos
    )


def number_bytes(values: Floats) -> bytes:
    """Return numbers in the stored format: 32-bit floats, little-endian, row after row."""
    return np.ascontiguousarray(values, dtype=LITTLE).tobytes()


def stored_numbers(data: bytes, width: int) -> Floats:
    """Return stored numbers as a read-only array (n, width); a wrong length is damage."""
    if len(data) % (4 * width):
        raise StorageError(f"{len(data)} bytes of numbers do not make rows of {width}")
    rows: Floats = np.frombuffer(data, dtype=LITTLE).astype(np.float32, copy=False).reshape(-1, width)
    return rows


def photo_digest(photo: PhotoRecord) -> bytes:
    """Return a checksum of all stored data of a photo, including the original if it is stored."""
    kept = () if photo.original is None else (photo.original,)
    return digest(number_bytes(photo.feature), photo.thumbnail, *kept)


def digest(*parts: bytes | None) -> bytes:
    """Return a checksum of parts in a fixed order; a missing part differs from an empty one."""
    sum_ = hashlib.sha256()  # most processors have instructions for SHA-256
    for part in parts:
        sum_.update(b"-" if part is None else b"%d:" % len(part))
        sum_.update(part or b"")
    return sum_.digest()[:16]


def summary_to_bytes(summary: ClassSummary) -> bytes:
    """Return mean and factor as bytes, exactly reversible by ``summary_from_bytes``."""
    arrays = {"mean": summary.mean, "factor": summary.factor}
    return save({key: np.ascontiguousarray(array) for key, array in arrays.items()})


def summary_from_bytes(count: int, data: bytes) -> ClassSummary:
    """Read the bytes of ``summary_to_bytes`` for a class with this number of photos."""
    try:
        arrays = load(data)
        return ClassSummary(count, arrays["mean"], arrays["factor"])
    except (SafetensorError, KeyError) as error:
        raise StorageError(f"an entry of the history is damaged ({error!r})", hint=CHECK) from error


@dataclass(frozen=True, eq=False)
class Tables:
    """Classes and photos as rows, read and written within a transaction."""

    connection: sqlite3.Connection
    width: int  # of a feature
    state: int = 1  # that rows are written in

    def insert_class(self, record: ClassRecord) -> ClassRecord:
        """Store a new class with its photos, under its own number if it has one."""
        row = self.connection.execute(
            "INSERT INTO classes (id, base, name, created, changed, count, digest, mean, factor) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (record.id, int(record.base), record.name, record.created, *self._statistics(record.summary)),
        ).lastrowid
        assert row is not None
        return replace(record, id=row, photos=self.insert_photos(row, record.photos))

    def update_class(self, number: int, summary: ClassSummary) -> None:
        """Replace the statistics of a stored class."""
        self.connection.execute(
            "UPDATE classes SET changed = ?, count = ?, digest = ?, mean = ?, factor = ? WHERE id = ?",
            (*self._statistics(summary), number),
        )

    def _statistics(self, summary: ClassSummary) -> tuple[int, int, bytes, bytes, bytes]:
        mean, factor = number_bytes(summary.mean), number_bytes(summary.factor)
        return self.state, summary.count, digest(str(summary.count).encode(), mean, factor), mean, factor

    def rename_class(self, number: int, name: str) -> None:
        """Give a stored class another name."""
        self.connection.execute(
            "UPDATE classes SET changed = ?, name = ? WHERE id = ?", (self.state, name, number)
        )

    def delete_class(self, number: int) -> None:
        """Delete a class and, by the foreign keys, its photos."""
        self.connection.execute("DELETE FROM classes WHERE id = ?", (number,))

    def read_class(self, number: int, *, originals: bool = False) -> ClassRecord:
        """Return a class with its photos and their small copies; on request also the stored photos themselves."""
        record = self.class_alone(number)
        return replace(record, photos=tuple(self.read_photos(number, originals=originals)))

    def class_alone(self, number: int) -> ClassRecord:
        """Return a class without its photos."""
        row = self.connection.execute(f"{_CLASS} WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise StorageError(f"class number {number} is no longer in the model", hint="open the model again")
        return class_of(row)

    def insert_photos(self, class_number: int, photos: Iterable[PhotoRecord]) -> tuple[PhotoRecord, ...]:
        """Store photos of a class in order; refuse more bytes of photos than a model may hold."""
        photos, stored = tuple(photos), []
        self._check_room(class_number, [len(photo.original) for photo in photos if photo.original is not None])
        for photo in photos:
            summed = photo_digest(photo), number_bytes(photo.feature)
            row = self.connection.execute(
                "INSERT INTO photos (id, class_id, sha256, name, added, digest, feature) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (photo.id, class_number, photo.sha256, photo.name or None, photo.added, *summed),
            ).lastrowid
            if photo.thumbnail is not None or photo.original is not None:
                self.connection.execute(
                    "INSERT INTO images VALUES (?, ?, ?)", (row, photo.thumbnail, photo.original)
                )
            stored.append(replace(photo, id=row))
        return tuple(stored)

    def _check_room(self, class_number: int, sizes: Sequence[int]) -> None:
        if not sizes:
            return
        query = "SELECT total(length(original)) FROM photos JOIN images ON photo_id = photos.id WHERE class_id = ?"
        (kept,) = self.connection.execute(query, (class_number,)).fetchone()
        pages, free, page = (
            self.connection.execute(f"PRAGMA {key}").fetchone()[0]
            for key in ("page_count", "freelist_count", "page_size")
        )
        in_class, in_model = kept + sum(sizes), (pages - free) * page + sum(sizes)
        for size, limit, text, hint in (
            (max(sizes), MAX_KEPT_PHOTO, "a photo of {} MB", "make it smaller"),
            (
                in_class,
                MAX_KEPT_CLASS,
                "a class with {} MB of photos",
                "learn it from fewer photos, or smaller ones",
            ),
            (
                in_model,
                MAX_KEPT_MODEL,
                "a model of {} MB",
                "forget classes for good, or create another model",
            ),
        ):
            if size > limit:
                raise InputError(
                    f"{text.format(f'{size / 1e6:,.0f}')} is too large for stored photos: "
                    f"the limit is {limit / 1e6:,.0f} MB",
                    hint=f"{hint}; nothing was stored",
                    code="too_much_kept",
                )

    def give_photos(self, class_number: int, photos: Iterable[int]) -> None:
        """Move photos to a class; they keep their numbers."""
        rows = [(class_number, photo) for photo in photos]
        self.connection.executemany("UPDATE photos SET class_id = ?, held_by = NULL WHERE id = ?", rows)

    def return_photos(self, change: int, class_number: int) -> int:
        """Restore removed photos from the history to their class; return their number."""
        query = "UPDATE photos SET class_id = ?, held_by = NULL WHERE held_by = ?"
        return self.connection.execute(query, (class_number, change)).rowcount

    def delete_photos(self, photos: Iterable[int]) -> None:
        """Delete photos and, by the foreign keys, their pictures and their history."""
        self.connection.executemany("DELETE FROM photos WHERE id = ?", [(photo,) for photo in photos])

    def erase_names(self) -> None:
        """Delete the names of all files, also of photos in the history."""
        self.connection.execute("UPDATE photos SET name = NULL WHERE name IS NOT NULL")
        self.connection.execute("UPDATE classes SET changed = ?", (self.state,))  # so that readers read them again

    def find_photo(self, photo: int) -> tuple[int | None, int | None] | None:
        """Return the class of a photo, or the change that removed it; None if there is no such photo."""
        query = "SELECT class_id, held_by FROM photos WHERE id = ?"
        found: tuple[int | None, int | None] | None = self.connection.execute(query, (photo,)).fetchone()
        return found

    def read_photos(
        self, number: int, *, originals: bool = False, owner: Literal["class_id", "held_by"] = "class_id"
    ) -> Iterator[PhotoRecord]:
        """Yield the photos of a class, or those that a change removed, in the order of their numbers."""
        rows = self.connection.execute(
            f"SELECT id, sha256, name, added, feature, thumbnail, {'original' if originals else 'NULL'} "
            f"FROM photos LEFT JOIN images ON photo_id = photos.id WHERE {owner} = ? ORDER BY id",
            (number,),
        )
        for photo, sha256, name, added, feature, thumbnail, original in rows:
            vectors = stored_numbers(feature, self.width)
            if len(vectors) != 1:
                raise StorageError(f"a photo's feature has {len(vectors)} rows", hint=CHECK)
            yield PhotoRecord(sha256, vectors[0], thumbnail, original, added, photo, name or "")


def class_rows(connection: sqlite3.Connection, *, since: int = 0) -> list[tuple[Any, ...]]:
    """Return the rows of the classes changed after a state, for ``class_of``."""
    if not since:
        return connection.execute(f"{_CLASS} ORDER BY id").fetchall()
    # The sign stops SQLite from reading all classes in the order of their numbers to avoid sorting.
    return connection.execute(f"{_CLASS} WHERE changed > ? ORDER BY +id", (since,)).fetchall()


def class_of(row: tuple[Any, ...]) -> ClassRecord:
    """Return the class in a row, without its photos; refuse damage."""
    number, name, base, created, changed, count, checksum, mean, factor = row
    if digest(str(count).encode(), mean, factor) != checksum:
        raise StorageError(f"the statistics of the class {name!r} are damaged", hint=CHECK)
    # The statistics of a head may be of longer vectors than the features: the mean has their length.
    width = len(mean) // 4
    summary = ClassSummary(count, stored_numbers(mean, width)[0], stored_numbers(factor, width))
    return ClassRecord(name, summary, base=bool(base), created=created, id=number, changed=changed)


def read_thumbnail(connection: sqlite3.Connection, class_number: int, number: int) -> bytes | None:
    """Return one small copy of a class, counted from 0, without reading other pictures."""
    row = connection.execute(
        "SELECT CASE WHEN length(thumbnail) <= ? THEN thumbnail END "
        "FROM photos JOIN images ON photo_id = photos.id "
        "WHERE class_id = ? AND thumbnail IS NOT NULL ORDER BY photos.id LIMIT 1 OFFSET ?",
        (MAX_THUMBNAIL, class_number, number),
    ).fetchone()
    return None if row is None else row[0]


def photo_facts(connection: sqlite3.Connection, class_number: int) -> list[PhotoFacts]:
    """Return number, date and digest of the photos of a class, and whether a small copy and the file exist."""
    rows = connection.execute(
        "SELECT id, added, sha256, typeof(thumbnail) = 'blob', typeof(original) = 'blob', name FROM photos "
        "LEFT JOIN images ON photo_id = photos.id WHERE class_id = ? ORDER BY id",
        (class_number,),
    )
    return rows.fetchall()


def read_picture(connection: sqlite3.Connection, photo: int, *, kept: bool = False) -> bytes | None:
    """Return the small copy of a photo in a class, or the file itself if it is stored."""
    row = connection.execute(
        f"SELECT {'original' if kept else 'thumbnail'} FROM photos JOIN images ON photo_id = photos.id "
        "WHERE photos.id = ? AND class_id IS NOT NULL",
        (photo,),
    ).fetchone()
    return None if row is None else row[0]


def decide(connection: sqlite3.Connection, class_number: int, photos: Iterable[int], finding: str) -> None:
    """Note that a user keeps photos in their class, with the number of photos of the class."""
    connection.executemany(
        "INSERT OR REPLACE INTO kept SELECT ?, id, ?, count FROM classes WHERE id = ?",
        [(photo, finding, class_number) for photo in photos],
    )


def read_kept(connection: sqlite3.Connection) -> frozenset[int]:
    """Return the photos that a user keeps in their class.

    This is valid while the photo is in that class, and the class has more than half and less than twice as many
    photos.
    """
    rows = connection.execute(
        "SELECT photo_id FROM kept JOIN photos ON photos.id = photo_id AND photos.class_id = kept.class_id "
        "JOIN classes ON classes.id = kept.class_id "
        "WHERE classes.count < 2 * kept.photos AND 2 * classes.count > kept.photos"
    )
    return frozenset(photo for (photo,) in rows)


def count_thumbnails(connection: sqlite3.Connection, class_number: int) -> int:
    """Return how many photos of a class have a small copy, without reading any."""
    joined = "photos JOIN images ON photo_id = photos.id"
    query = f"SELECT COUNT(thumbnail) FROM {joined} WHERE class_id = ?"
    (count,) = connection.execute(query, (class_number,)).fetchone()
    return int(count)


def count_pictures(connection: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Return by class how many photos have a small copy, and how many are stored themselves."""
    joined = "images JOIN photos ON photos.id = photo_id"
    # SQLite knows the type of a value without reading it: no stored photo is read.
    small, whole = (f"SUM(typeof({column}) = 'blob')" for column in ("thumbnail", "original"))
    query = f"SELECT class_id, {small}, {whole} FROM {joined} WHERE class_id IS NOT NULL GROUP BY class_id"
    return {number: (small, whole) for number, small, whole in connection.execute(query)}


@dataclass(frozen=True, eq=False)
class ClassPhotos:
    """The photos of a stored class without their pictures, sorted by their features.

    So every result depends only on the photos, to the last bit.
    """

    ids: tuple[int, ...]  # (n,)
    sha256s: tuple[str, ...]  # (n,)
    features: Floats  # (n, d)
    names: tuple[str | None, ...] = ()  # (n,): of their files, if they were kept


def read_features(
    connection: sqlite3.Connection, width: int, classes: Iterable[int] | None = None
) -> dict[int, ClassPhotos]:
    """Return all photos, or those of some classes, by class."""
    query = "SELECT class_id, feature, id, sha256, name FROM photos"
    if classes is None:
        rows = connection.execute(f"{query} WHERE class_id IS NOT NULL").fetchall()
    else:
        each = f"{query} WHERE class_id = ?"
        rows = [row for number in classes for row in connection.execute(each, (number,))]
    parts: dict[int, list[tuple[int, bytes, int, str, str | None]]] = {}
    for row in rows:
        parts.setdefault(row[0], []).append(row)
    found = {}
    for number, own in parts.items():
        _, features, ids, sha256s, names = zip(*sorted(own), strict=True)
        found[number] = ClassPhotos(ids, sha256s, stored_numbers(b"".join(features), width), names)
    return found


def photo_summary(embed: Callable[[Floats], Floats], features: Floats) -> ClassSummary:
    """Return the statistics of a class's photos: the same bits in every order of the photos.

    >>> X = np.float32([[1, 2], [3, 5], [4, 4]])
    >>> one, other = (photo_summary(lambda rows: rows, rows) for rows in (X, X[::-1]))
    >>> bool((one.mean == other.mean).all() and (one.factor == other.factor).all())
    True
    """
    order = sorted(range(len(features)), key=[number_bytes(row) for row in features].__getitem__)
    return summarize(embed(features[order]))

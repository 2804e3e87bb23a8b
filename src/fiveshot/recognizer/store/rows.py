"""Classes and photos as they are stored: the records, their bytes and check sums, and the rows of the database."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fiveshot.core import ClassSummary, summarize
from fiveshot.data import Box
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.store.manifest import Options

Floats = NDArray[np.float32]
CHECK = "run: fiveshot check MODEL, or restore the model from a copy"
MAX_THUMBNAIL = 1 << 18  # bytes
MAX_KEPT_PHOTO = 1 << 28  # bytes of one kept photo,
MAX_KEPT_CLASS = 1 << 31  # of those of a class,
MAX_KEPT_MODEL = 1 << 35  # and of the database that they are to be added to, its history included
PhotoFacts = tuple[int, str, str, int, int]  # number, date, digest, whether a small copy and the file are there
LITTLE = np.dtype("<f4")  # as numbers lie in the database, on every machine
_CLASS = "SELECT id, name, base, count, created, mean, factor, digest FROM classes"


@dataclass(frozen=True, eq=False)
class PhotoRecord:
    """A photo that was learned: its feature, and as much of the picture as the owner wants kept.

    Attributes
    ----------
    sha256 : str
        Digest of the file that was given, which tells the same file learned twice.
    feature : ndarray of shape (d,)
        What the backbone made of it.
    thumbnail : bytes or None
        A small copy.
    original : bytes or None
        The file, or a copy of it without metadata as the service keeps it; ``photo_digest`` guards its bytes.
    added : str
        When it was learned, in UTC.
    id : int or None
        Its number in the database; None until it is stored.
    name : str
        To speak of it while it is learned; not stored.
    box : Box or None
        The part of the file that was looked at; not stored.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.recognizer import PhotoRecord
    >>> PhotoRecord(sha256=64 * "0", feature=np.ones(1664, np.float32), name="owl.jpg").feature.shape
    (1664,)
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
    """A class with everything that is known about it; ``base`` marks what was added to a base class."""

    name: str
    summary: ClassSummary
    photos: tuple[PhotoRecord, ...] = ()
    base: bool = False
    created: str = ""
    id: int | None = None


def photo_id(number: int) -> str:
    """Return the id that people see.

    >>> photo_id(17)
    'p17'
    """
    return f"p{number}"


def photo_features(photos: Sequence[PhotoRecord]) -> Floats:
    """Return the features of photos, (n, d)."""
    return np.stack([photo.feature for photo in photos])


def kept_photos(photos: Iterable[PhotoRecord], options: Options) -> tuple[PhotoRecord, ...]:
    """Return photos without the pictures that the owner of the model does not want kept."""
    return tuple(
        replace(
            photo,
            thumbnail=photo.thumbnail if options.thumbnails else None,
            original=photo.original if options.keep_photos else None,
        )
        for photo in photos
    )


def number_bytes(values: Floats) -> bytes:
    """Return the numbers as they are stored: 32-bit floats, little-endian, row after row."""
    return np.ascontiguousarray(values, dtype=LITTLE).tobytes()


def stored_numbers(data: bytes, width: int) -> Floats:
    """Return stored numbers as rows of ``width``, (n, width), not to be written to; another length is damage."""
    if len(data) % (4 * width):
        raise StorageError(f"{len(data)} bytes of numbers do not make rows of {width}")
    rows: Floats = np.frombuffer(data, dtype=LITTLE).astype(np.float32, copy=False).reshape(-1, width)
    return rows


def summary_digest(summary: ClassSummary) -> bytes:
    """Return a check sum over a class's statistics."""
    return digest(str(summary.count).encode(), number_bytes(summary.mean), number_bytes(summary.factor))


def photo_digest(photo: PhotoRecord) -> bytes:
    """Return a check sum over all that is stored of a photo, the original among it where one is kept."""
    kept = () if photo.original is None else (photo.original,)
    return digest(number_bytes(photo.feature), photo.thumbnail, *kept)


def digest(*parts: bytes | None) -> bytes:
    """Return a check sum over parts of known order; a missing part differs from an empty one."""
    sum_ = hashlib.sha256()  # which most processors have instructions for
    for part in parts:
        sum_.update(b"-" if part is None else b"%d:" % len(part))
        sum_.update(part or b"")
    return sum_.digest()[:16]


def stored_summary(count: int, mean: bytes, factor: bytes, width: int) -> ClassSummary:
    """Return the statistics that lie in these bytes."""
    (row,) = stored_numbers(mean, width)
    return ClassSummary(count, row, stored_numbers(factor, width))


def class_to_bytes(record: ClassRecord) -> bytes:
    """Return a class without its photos as bytes that ``class_from_bytes`` reads back to the bit."""
    arrays = {"mean": record.summary.mean, "factor": record.summary.factor}
    header: dict[str, Any] = {key: getattr(record, key) for key in ("id", "name", "base", "created")}
    header["count"] = record.summary.count
    contiguous = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
    return save(contiguous, metadata={"class": json.dumps(header)})


def class_from_bytes(data: bytes) -> ClassRecord:
    """Read what ``class_to_bytes`` wrote."""
    try:
        arrays = load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["class"])
        summary = ClassSummary(header.pop("count"), arrays["mean"], arrays["factor"])
        return ClassRecord(summary=summary, **header)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"an entry of the history is damaged ({error!r})", hint=CHECK) from error


def insert_class(connection: sqlite3.Connection, record: ClassRecord, *, state: int) -> ClassRecord:
    """Store a class that is not stored yet, under its own number where it has one, with its photos."""
    summary = record.summary
    values = (record.id, state, int(record.base), record.name, summary.count, record.created)
    row = connection.execute(
        "INSERT INTO classes (id, changed, base, name, count, created, digest, mean, factor) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, summary_digest(summary), number_bytes(summary.mean), number_bytes(summary.factor)),
    ).lastrowid
    stored = replace(record, id=row)
    return replace(stored, photos=insert_photos(connection, row, record.photos))


def update_class(connection: sqlite3.Connection, number: int, summary: ClassSummary, *, state: int) -> None:
    """Replace the statistics of a stored class."""
    connection.execute(
        "UPDATE classes SET changed = ?, count = ?, digest = ?, mean = ?, factor = ? WHERE id = ?",
        (
            state,
            summary.count,
            summary_digest(summary),
            number_bytes(summary.mean),
            number_bytes(summary.factor),
            number,
        ),
    )


def rename_class(connection: sqlite3.Connection, number: int, name: str, *, state: int) -> None:
    """Give a stored class another name."""
    connection.execute("UPDATE classes SET changed = ?, name = ? WHERE id = ?", (state, name, number))


def delete_class(connection: sqlite3.Connection, number: int) -> None:
    """Delete a class and, by the foreign keys, its photos."""
    connection.execute("DELETE FROM classes WHERE id = ?", (number,))


def insert_photos(
    connection: sqlite3.Connection, class_number: int | None, photos: Iterable[PhotoRecord]
) -> tuple[PhotoRecord, ...]:
    """Store photos of a class in their order; more bytes of kept photos than a model holds are refused."""
    photos, stored = tuple(photos), []
    _check_room(connection, class_number, photos)
    for photo in photos:
        row = connection.execute(
            "INSERT INTO photos (id, class_id, sha256, added, digest, feature) VALUES (?, ?, ?, ?, ?, ?)",
            (
                photo.id,
                class_number,
                photo.sha256,
                photo.added,
                photo_digest(photo),
                number_bytes(photo.feature),
            ),
        ).lastrowid
        if photo.thumbnail is not None or photo.original is not None:
            connection.execute("INSERT INTO images VALUES (?, ?, ?)", (row, photo.thumbnail, photo.original))
        stored.append(replace(photo, id=row))
    return tuple(stored)


def _check_room(connection: sqlite3.Connection, class_number: int | None, photos: Sequence[PhotoRecord]) -> None:
    sizes = [len(photo.original) for photo in photos if photo.original is not None]
    if not sizes:
        return
    if max(sizes) > MAX_KEPT_PHOTO:
        raise _too_much(f"a photo of {max(sizes) / 1e6:,.0f} MB", MAX_KEPT_PHOTO, "make it smaller")
    query = "SELECT total(length(original)) FROM photos JOIN images ON photo_id = photos.id WHERE class_id = ?"
    (kept,) = connection.execute(query, (class_number,)).fetchone()
    if kept + sum(sizes) > MAX_KEPT_CLASS:
        text = f"a class with {(kept + sum(sizes)) / 1e6:,.0f} MB of photos"
        raise _too_much(text, MAX_KEPT_CLASS, "learn it from fewer photos, or smaller ones")
    pages, free, size = (
        connection.execute(f"PRAGMA {key}").fetchone()[0] for key in ("page_count", "freelist_count", "page_size")
    )
    if (pages - free) * size + sum(sizes) > MAX_KEPT_MODEL:
        text = f"a model of {((pages - free) * size + sum(sizes)) / 1e6:,.0f} MB"
        raise _too_much(text, MAX_KEPT_MODEL, "forget classes without history, or begin another model")


def _too_much(text: str, limit: int, hint: str) -> InputError:
    return InputError(
        f"{text} is too large where photos are kept: the limit is {limit / 1e6:,.0f} MB",
        hint=f"{hint}; nothing was stored",
        code="too_much_kept",
    )


def hold_photos(
    connection: sqlite3.Connection, class_number: int, seq: int, photos: Iterable[int] | None = None
) -> None:
    """Let the history hold photos that an entry takes from a class, or all of a class that it removes.

    No picture is read or copied.
    """
    kind = "removed" if photos is None else "reduced"
    change = f"SELECT id FROM changes WHERE seq = ? AND kind = '{kind}' AND class_id = ?"
    held = f"UPDATE photos SET class_id = NULL, held_by = ({change}) WHERE class_id = ?"
    row = (seq, class_number, class_number)
    if photos is None:
        connection.execute(held, row)
    else:
        connection.executemany(f"{held} AND id = ?", [(*row, photo) for photo in photos])


def give_photos(connection: sqlite3.Connection, class_number: int, photos: Iterable[int]) -> None:
    """Give photos to a class; they keep their numbers."""
    connection.executemany(
        "UPDATE photos SET class_id = ?, held_by = NULL WHERE id = ?", [(class_number, photo) for photo in photos]
    )


def delete_photos(connection: sqlite3.Connection, photos: Iterable[int]) -> None:
    """Delete photos and, by the foreign keys, their pictures and what the history knows of them."""
    connection.executemany("DELETE FROM photos WHERE id = ?", [(photo,) for photo in photos])


def touched_photos(connection: sqlite3.Connection, change: int) -> list[int]:
    """Return the photos that a change added, or gave to another class."""
    rows = connection.execute("SELECT photo_id FROM touched WHERE change_id = ? ORDER BY photo_id", (change,))
    return [photo for (photo,) in rows]


def find_photo(connection: sqlite3.Connection, photo: int) -> tuple[int | None, int | None] | None:
    """Return the class of a photo, or the change that holds it; None for one that is not there."""
    found = connection.execute("SELECT class_id, held_by FROM photos WHERE id = ?", (photo,)).fetchone()
    return None if found is None else (found[0], found[1])


def return_photos(connection: sqlite3.Connection, change: int, class_number: int) -> int:
    """Give photos that the history holds back to their class; return how many they are."""
    return connection.execute(
        "UPDATE photos SET class_id = ?, held_by = NULL WHERE held_by = ?", (class_number, change)
    ).rowcount


def summary_rows(connection: sqlite3.Connection, *, since: int = 0) -> list[tuple[Any, ...]]:
    """Return the rows of the classes changed after a state, for ``read_summaries``."""
    return connection.execute(f"{_CLASS} WHERE changed > ?", (since,)).fetchall()


def read_summaries(rows: Iterable[tuple[Any, ...]]) -> dict[int, tuple[str, bool, ClassSummary]]:
    """Return name, whether it belongs to a base class, and statistics of classes, by number; damage is refused."""
    return {
        number: (name, bool(base), _checked_summary(name, count, mean, factor, checksum))
        for number, name, base, count, _, mean, factor, checksum in rows
    }


def read_class(connection: sqlite3.Connection, number: int, width: int, *, originals: bool = False) -> ClassRecord:
    """Return a class with its photos and their small copies; the kept photos themselves where asked for."""
    record = stored_class(connection, number)
    return replace(record, photos=tuple(read_photos(connection, number, width, originals=originals)))


def stored_class(connection: sqlite3.Connection, number: int) -> ClassRecord:
    """Return a class without its photos."""
    row = connection.execute(f"{_CLASS} WHERE id = ?", (number,)).fetchone()
    if row is None:
        raise StorageError(f"class number {number} is not in the model any more", hint="open the model again")
    number, name, base, count, created, mean, factor, checksum = row
    summary = _checked_summary(name, count, mean, factor, checksum)
    return ClassRecord(name, summary, base=bool(base), created=created, id=number)


def read_photos(
    connection: sqlite3.Connection, class_number: int, width: int, *, originals: bool = False
) -> Iterator[PhotoRecord]:
    """Yield the photos of a class in the order of their numbers, one at a time."""
    return _read_photos(connection, width, "class_id", class_number, originals=originals)


def read_held_photos(connection: sqlite3.Connection, change: int, width: int) -> Iterator[PhotoRecord]:
    """Yield the photos that the history holds for a change, with all that was kept of them."""
    return _read_photos(connection, width, "held_by", change, originals=True)


def _read_photos(
    connection: sqlite3.Connection, width: int, owner: str, number: int, *, originals: bool
) -> Iterator[PhotoRecord]:
    rows = connection.execute(
        f"SELECT id, sha256, added, feature, thumbnail{', original' if originals else ', NULL'} FROM photos "
        f"LEFT JOIN images ON photo_id = photos.id WHERE {owner} = ? ORDER BY id",
        (number,),
    )
    for photo, sha256, added, feature, thumbnail, original in rows:
        yield PhotoRecord(sha256, _vector(feature, width), thumbnail, original, added, photo)


def read_thumbnail(connection: sqlite3.Connection, class_number: int, number: int) -> bytes | None:
    """Return one small copy of a class, counted from 0, without reading the other ones or any kept photo."""
    row = connection.execute(
        "SELECT CASE WHEN length(thumbnail) <= ? THEN thumbnail END "
        "FROM photos JOIN images ON photo_id = photos.id "
        "WHERE class_id = ? AND thumbnail IS NOT NULL ORDER BY photos.id LIMIT 1 OFFSET ?",
        (MAX_THUMBNAIL, class_number, number),
    ).fetchone()
    return None if row is None else row[0]


def photo_facts(connection: sqlite3.Connection, class_number: int) -> list[PhotoFacts]:
    """Return number, date and digest of the photos of a class, and whether a small copy and the file were kept."""
    rows = connection.execute(
        "SELECT id, added, sha256, typeof(thumbnail) = 'blob', typeof(original) = 'blob' FROM photos "
        "LEFT JOIN images ON photo_id = photos.id WHERE class_id = ? ORDER BY id",
        (class_number,),
    )
    return rows.fetchall()


def read_picture(connection: sqlite3.Connection, photo: int, *, kept: bool = False) -> bytes | None:
    """Return the small copy of a photo that is in a class, or the file itself where it was kept."""
    row = connection.execute(
        f"SELECT {'original' if kept else 'thumbnail'} FROM photos JOIN images ON photo_id = photos.id "
        "WHERE photos.id = ? AND class_id IS NOT NULL",
        (photo,),
    ).fetchone()
    return None if row is None else row[0]


def read_kept(connection: sqlite3.Connection) -> frozenset[tuple[int, str]]:
    """Return the photos that somebody decided to keep, each with the finding that it was kept against."""
    return frozenset(
        (photo, finding) for photo, finding in connection.execute("SELECT photo_id, finding FROM kept")
    )


def count_thumbnails(connection: sqlite3.Connection, class_number: int) -> int:
    """Return how many photos of a class have a small copy, without reading one."""
    joined = "photos JOIN images ON photo_id = photos.id"
    query = f"SELECT COUNT(thumbnail) FROM {joined} WHERE class_id = ?"
    (count,) = connection.execute(query, (class_number,)).fetchone()
    return int(count)


def count_pictures(connection: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Return by class how many photos have a small copy, and how many were kept themselves."""
    joined = "images JOIN photos ON photos.id = photo_id"
    # The type of a value is known without the value: no kept photo is read to be counted.
    small, whole = (f"SUM(typeof({column}) = 'blob')" for column in ("thumbnail", "original"))
    query = f"SELECT class_id, {small}, {whole} FROM {joined} WHERE class_id IS NOT NULL GROUP BY class_id"
    return {number: (small, whole) for number, small, whole in connection.execute(query)}


@dataclass(frozen=True, eq=False)
class ClassPhotos:
    """The photos of a stored class without their pictures, in the order of their features, not of learning.

    So whatever is computed of them depends on the photos alone, to the bit.
    """

    ids: tuple[int, ...]  # (n,)
    sha256s: tuple[str, ...]  # (n,)
    features: Floats  # (n, d)


def read_features(
    connection: sqlite3.Connection, width: int, classes: Iterable[int] | None = None
) -> dict[int, ClassPhotos]:
    """Return all photos, or those of some classes, by class."""
    query = "SELECT class_id, feature, id, sha256 FROM photos"
    if classes is None:
        rows = connection.execute(f"{query} WHERE class_id IS NOT NULL").fetchall()
    else:
        each = f"{query} WHERE class_id = ?"
        rows = [row for number in classes for row in connection.execute(each, (number,))]
    parts: dict[int, list[tuple[int, bytes, int, str]]] = {}
    for row in rows:
        parts.setdefault(row[0], []).append(row)
    found = {}
    for number, own in parts.items():
        _, features, ids, sha256s = zip(*sorted(own), strict=True)
        found[number] = ClassPhotos(ids, sha256s, stored_numbers(b"".join(features), width))
    return found


def photo_summary(embed: Callable[[Floats], Floats], features: Floats) -> ClassSummary:
    """Return the statistics of a class's photos: the same bits in whatever order they come.

    >>> X = np.float32([[1, 2], [3, 5], [4, 4]])
    >>> one, other = (photo_summary(lambda rows: rows, rows) for rows in (X, X[::-1]))
    >>> bool((one.mean == other.mean).all() and (one.factor == other.factor).all())
    True
    """
    order = sorted(range(len(features)), key=[number_bytes(row) for row in features].__getitem__)
    return summarize(embed(features[order]))


def _vector(feature: bytes, width: int) -> Floats:
    rows = stored_numbers(feature, width)
    if len(rows) != 1:
        raise StorageError(f"a photo's feature has {len(rows)} rows", hint=CHECK)
    vector: Floats = rows[0]
    return vector


def _checked_summary(name: str, count: int, mean: bytes, factor: bytes, checksum: bytes) -> ClassSummary:
    if digest(str(count).encode(), mean, factor) != checksum:
        raise StorageError(f"the statistics of the class {name!r} are damaged", hint=CHECK)
    # A head may keep statistics of longer vectors than the features are: the mean says how long.
    return stored_summary(count, mean, factor, len(mean) // 4)

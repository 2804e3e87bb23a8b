"""Classes and photos to and from the rows of the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import replace

from fiveshot.errors import StorageError
from fiveshot.recognizer.class_record import (
    ClassRecord,
    Floats,
    PhotoRecord,
    digest,
    number_bytes,
    photo_digest,
    stored_numbers,
    stored_summary,
    summary_digest,
)
from fiveshot.recognizer.photo import MAX_THUMBNAIL
from fiveshot.statistics import ClassSummary

_CLASS = "SELECT id, name, base, count, created, mean, factor, digest FROM classes"


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
    """Store photos of a class in their order."""
    stored = []
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


def read_summaries(connection: sqlite3.Connection, *, since: int = 0) -> dict[int, tuple[str, bool, ClassSummary]]:
    """Return name, whether it belongs to a base class, and statistics of the classes changed after a state."""
    found = {}
    rows = connection.execute(f"{_CLASS} WHERE changed > ?", (since,))
    for number, name, base, count, _, mean, factor, checksum in rows:
        found[number] = (name, bool(base), _checked_summary(name, count, mean, factor, checksum))
    return found


def read_class(connection: sqlite3.Connection, number: int, width: int, *, pictures: bool = True) -> ClassRecord:
    """Return a class with its photos; with their pictures, where they were kept, unless told otherwise."""
    row = connection.execute(f"{_CLASS} WHERE id = ?", (number,)).fetchone()
    if row is None:
        raise StorageError(f"class number {number} is not in the model any more; open the model again")
    number, name, base, count, created, mean, factor, checksum = row
    summary = _checked_summary(name, count, mean, factor, checksum)
    photos = read_photos(connection, number, width, pictures=pictures)
    return ClassRecord(name, summary, photos, base=bool(base), created=created, id=number)


def read_photos(
    connection: sqlite3.Connection, class_number: int, width: int, *, pictures: bool = True
) -> tuple[PhotoRecord, ...]:
    """Return the photos of a class in the order they were learned."""
    columns = "thumbnail, original" if pictures else "NULL, NULL"
    joined = "LEFT JOIN images ON photo_id = photos.id" if pictures else ""
    rows = connection.execute(
        f"SELECT id, sha256, added, feature, {columns} FROM photos {joined} WHERE class_id = ? ORDER BY id",
        (class_number,),
    )
    return tuple(
        PhotoRecord(sha256, _vector(feature, width), thumbnail, original, added, number)
        for number, sha256, added, feature, thumbnail, original in rows
    )


def read_thumbnail(connection: sqlite3.Connection, class_number: int, number: int) -> bytes | None:
    """Return one small copy of a class, counted from 0, without reading the other ones or any kept photo."""
    row = connection.execute(
        "SELECT CASE WHEN length(thumbnail) <= ? THEN thumbnail END "
        "FROM photos JOIN images ON photo_id = photos.id "
        "WHERE class_id = ? AND thumbnail IS NOT NULL ORDER BY photos.id LIMIT 1 OFFSET ?",
        (MAX_THUMBNAIL, class_number, number),
    ).fetchone()
    return None if row is None else row[0]


def count_thumbnails(connection: sqlite3.Connection, class_number: int) -> int:
    """Return how many photos of a class have a small copy, without reading one."""
    joined = "photos JOIN images ON photo_id = photos.id"
    query = f"SELECT COUNT(thumbnail) FROM {joined} WHERE class_id = ?"
    (count,) = connection.execute(query, (class_number,)).fetchone()
    return int(count)


def count_pictures(connection: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Return by class how many photos have a small copy, and how many were kept themselves."""
    joined = "images JOIN photos ON photos.id = photo_id"
    query = f"SELECT class_id, COUNT(thumbnail), COUNT(original) FROM {joined} GROUP BY class_id"
    return {number: (small, whole) for number, small, whole in connection.execute(query)}


def read_features(
    connection: sqlite3.Connection, width: int, classes: Iterable[int] | None = None
) -> dict[int, tuple[tuple[str, ...], Floats]]:
    """Return digests and features, (n, width), of all photos, or of those of some classes, by class."""
    query = "SELECT class_id, sha256, feature FROM photos"
    if classes is None:
        rows = connection.execute(f"{query} ORDER BY id").fetchall()
    else:
        each = f"{query} WHERE class_id = ? ORDER BY id"
        rows = [row for number in classes for row in connection.execute(each, (number,))]
    parts: dict[int, list[tuple[str, bytes]]] = {}
    for number, sha256, feature in rows:
        parts.setdefault(number, []).append((sha256, feature))
    return {
        number: (tuple(sha256 for sha256, _ in own), stored_numbers(b"".join(f for _, f in own), width))
        for number, own in parts.items()
    }


def _vector(feature: bytes, width: int) -> Floats:
    rows = stored_numbers(feature, width)
    if len(rows) != 1:
        raise StorageError(f"a photo's feature has {len(rows)} rows; run: fiveshot check MODEL")
    vector: Floats = rows[0]
    return vector


def _checked_summary(name: str, count: int, mean: bytes, factor: bytes, checksum: bytes) -> ClassSummary:
    if digest(str(count).encode(), mean, factor) != checksum:
        raise StorageError(
            f"the statistics of the class {name!r} are damaged; run: fiveshot check MODEL, "
            "or restore the model from a copy"
        )
    # A head may keep statistics of longer vectors than the features are: the mean says how long.
    return stored_summary(count, mean, factor, len(mean) // 4)

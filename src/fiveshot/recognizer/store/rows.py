"""Classes and photos as they are stored: the records, their bytes and check sums, and the rows of the database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fiveshot.core import ClassSummary
from fiveshot.errors import StorageError
from fiveshot.recognizer.store.manifest import Options

Floats = NDArray[np.float32]
CHECK = "run: fiveshot check MODEL, or restore the model from a copy"
MAX_THUMBNAIL = 1 << 18  # bytes
LITTLE = np.dtype("<f4")  # as numbers lie in the database, on every machine
_CLASS = "SELECT id, name, base, count, created, mean, factor, digest FROM classes"


@dataclass(frozen=True, eq=False)
class PhotoRecord:
    """A photo that was learned: its feature, and as much of the picture as the owner wants kept.

    ``sha256`` names the file that was given, and so tells the same file learned twice. ``original`` need not
    be that file: the service keeps a copy without metadata. What guards its bytes is ``photo_digest``.

    >>> import numpy as np
    >>> from fiveshot.recognizer import PhotoRecord
    >>> PhotoRecord(sha256=64 * "0", feature=np.ones(384, np.float32), name="owl.jpg").feature.shape
    (384,)
    """

    sha256: str
    feature: Floats  # (d,)
    thumbnail: bytes | None = None
    original: bytes | None = None
    added: str = ""
    id: int | None = None  # None until it is stored
    name: str = ""  # to speak of it while it is learned; not stored


@dataclass(frozen=True, eq=False)
class ClassRecord:
    """A class with everything that is known about it; ``base`` marks what was added to a base class."""

    name: str
    summary: ClassSummary
    photos: tuple[PhotoRecord, ...] = ()
    base: bool = False
    created: str = ""
    id: int | None = None


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
    """Return stored numbers as rows of ``width``, (n, width); another length is damage."""
    if len(data) % (4 * width):
        raise StorageError(f"{len(data)} bytes of numbers do not make rows of {width}")
    rows: Floats = np.frombuffer(data, dtype=LITTLE).astype(np.float32, copy=True).reshape(-1, width)
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
    sum_ = blake2b(digest_size=16)
    for part in parts:
        sum_.update(b"-" if part is None else b"%d:" % len(part))
        sum_.update(part or b"")
    return sum_.digest()


def stored_summary(count: int, mean: bytes, factor: bytes, width: int) -> ClassSummary:
    """Return the statistics that lie in these bytes."""
    (row,) = stored_numbers(mean, width)
    return ClassSummary(count, row, stored_numbers(factor, width))


def class_to_bytes(record: ClassRecord) -> bytes:
    """Return a class as bytes that ``class_from_bytes`` reads back to the bit: what ``undo`` needs."""
    arrays: dict[str, NDArray[Any]] = {"mean": record.summary.mean, "factor": record.summary.factor}
    entries = []
    for number, photo in enumerate(record.photos):
        arrays[f"photo.{number}.feature"] = photo.feature
        for part in ("thumbnail", "original"):
            data = getattr(photo, part)
            if data is not None:
                arrays[f"photo.{number}.{part}"] = np.frombuffer(data, dtype=np.uint8)
        entries.append({key: getattr(photo, key) for key in ("id", "sha256", "added")})
    header: dict[str, Any] = {key: getattr(record, key) for key in ("id", "name", "base", "created")}
    header |= {"count": record.summary.count, "photos": entries}
    contiguous = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
    return save(contiguous, metadata={"class": json.dumps(header)})


def class_from_bytes(data: bytes) -> ClassRecord:
    """Read what ``class_to_bytes`` wrote."""
    try:
        arrays = load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["class"])
        summary = ClassSummary(header["count"], arrays["mean"], arrays["factor"])
        photos = tuple(
            PhotoRecord(
                feature=arrays[f"photo.{number}.feature"],
                thumbnail=_bytes(arrays.get(f"photo.{number}.thumbnail")),
                original=_bytes(arrays.get(f"photo.{number}.original")),
                **entry,
            )
            for number, entry in enumerate(header["photos"])
        )
        return ClassRecord(
            header["name"], summary, photos, base=header["base"], created=header["created"], id=header["id"]
        )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"an entry of the history is damaged ({error!r})", hint=CHECK) from error


def _bytes(array: NDArray[np.uint8] | None) -> bytes | None:
    return None if array is None else array.tobytes()


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


def read_class(connection: sqlite3.Connection, number: int, width: int) -> ClassRecord:
    """Return a class with its photos, and their pictures where they were kept."""
    row = connection.execute(f"{_CLASS} WHERE id = ?", (number,)).fetchone()
    if row is None:
        raise StorageError(f"class number {number} is not in the model any more", hint="open the model again")
    number, name, base, count, created, mean, factor, checksum = row
    summary = _checked_summary(name, count, mean, factor, checksum)
    photos = read_photos(connection, number, width)
    return ClassRecord(name, summary, photos, base=bool(base), created=created, id=number)


def read_photos(connection: sqlite3.Connection, class_number: int, width: int) -> tuple[PhotoRecord, ...]:
    """Return the photos of a class in the order they were learned."""
    rows = connection.execute(
        "SELECT id, sha256, added, feature, thumbnail, original FROM photos "
        "LEFT JOIN images ON photo_id = photos.id WHERE class_id = ? ORDER BY id",
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
        raise StorageError(f"a photo's feature has {len(rows)} rows", hint=CHECK)
    vector: Floats = rows[0]
    return vector


def _checked_summary(name: str, count: int, mean: bytes, factor: bytes, checksum: bytes) -> ClassSummary:
    if digest(str(count).encode(), mean, factor) != checksum:
        raise StorageError(f"the statistics of the class {name!r} are damaged", hint=CHECK)
    # A head may keep statistics of longer vectors than the features are: the mean says how long.
    return stored_summary(count, mean, factor, len(mean) // 4)

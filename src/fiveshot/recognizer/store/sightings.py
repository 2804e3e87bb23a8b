"""Sightings as rows: photos without a name that a watch has kept. They belong to no state of the model.

Their numbers count up and give their order. ``clock`` is the time that the age of a sighting is counted from. It
is never earlier than that of the sighting before. So a jump backwards of the system's clock lets sightings stay
longer, and none is erased too early. A watch that sees the clock jump ahead moves it along (``move_clocks``). The
limits on number and size hold whatever the clock says.

A sighting that was learned or dismissed stays, hidden, with the number of that entry in the history
(``hidden_by``), so that ``undo`` brings it back. It counts for the limits. A learned one goes when its photo is
erased for good.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.store.rows import (
    CHECK,
    Floats,
    PhotoRecord,
    number_bytes,
    photo_digest,
    storable,
    stored_numbers,
)
from fiveshot.values import Candidate, Prediction, SightingInfo, SightingLimits, from_json, to_json

DAY = 86_400.0  # seconds
MEGABYTE = 1_000_000


def sighting_id(number: int) -> str:
    """Return the id that users see.

    >>> sighting_id(17)
    's17'
    """
    return f"s{number}"


def insert_sighting(
    connection: sqlite3.Connection,
    photo: PhotoRecord,
    prediction: Prediction,
    *,
    seen: str,
    source: str,
    region: str,
    now: float,
) -> int:
    """Store a sighting and return its number; ``now`` is the present time in seconds."""
    assert photo.thumbnail is not None
    assert photo.original is not None
    feature = number_bytes(photo.feature)
    (last,) = connection.execute("SELECT max(clock) FROM sightings").fetchone()
    row = connection.execute(
        "INSERT INTO sightings (clock, bytes, seen, source, region, prediction, sha256, digest, feature) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            now if last is None else max(now, last),
            len(photo.thumbnail) + len(photo.original) + len(feature),
            seen,
            storable(source),
            region,
            _prediction_text(prediction),
            photo.sha256,
            photo_digest(photo),
            feature,
        ),
    ).lastrowid
    assert row is not None
    connection.execute("INSERT INTO sighting_images VALUES (?, ?, ?)", (row, photo.thumbnail, photo.original))
    return row


def same_sighting(connection: sqlite3.Connection, sha256: str) -> int | None:
    """Return the number of the sighting of a photo, open or hidden."""
    row = connection.execute("SELECT id FROM sightings WHERE sha256 = ?", (sha256,)).fetchone()
    return None if row is None else row[0]


def beyond_limits(connection: sqlite3.Connection, limits: SightingLimits, now: float) -> list[int]:
    """Return the sightings beyond the limits: always the oldest ones."""
    room = limits.megabytes * MEGABYTE
    beyond = list[int]()
    rows = connection.execute("SELECT id, clock, bytes FROM sightings ORDER BY id DESC")
    for place, (number, clock, size) in enumerate(rows):
        room -= size
        if beyond or place >= limits.number or room < 0 or clock < now - limits.days * DAY:
            beyond.append(number)
    return beyond


def move_clocks(connection: sqlite3.Connection, jump: float, now: float) -> None:
    """Move the clocks of sightings from before a jump of the system's clock: so many seconds ahead, to ``now``."""
    connection.execute("UPDATE sightings SET clock = clock + ? WHERE clock <= ?", (jump, now - jump))


def delete_sightings(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Delete sightings with their pictures."""
    connection.executemany("DELETE FROM sightings WHERE id = ?", [(number,) for number in numbers])


def count_sightings(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return the open sightings, the number of the last one, and the bytes of all."""
    query = "SELECT count(*), coalesce(max(id), 0) FROM sightings WHERE hidden_by IS NULL"
    count, last = connection.execute(query).fetchone()
    (size,) = connection.execute("SELECT coalesce(sum(bytes), 0) FROM sightings").fetchone()
    return count, last, size


def read_sightings(connection: sqlite3.Connection, width: int) -> tuple[list[SightingInfo], Floats]:
    """Return the open sightings, the newest first, and their features (n, width)."""
    rows = connection.execute(
        "SELECT id, seen, source, region, prediction, feature FROM sightings "
        "WHERE hidden_by IS NULL ORDER BY id DESC"
    ).fetchall()
    found = [
        SightingInfo(sighting_id(number), seen, source, region, _prediction_of(text))
        for number, seen, source, region, text, _ in rows
    ]
    return found, stored_numbers(b"".join(row[-1] for row in rows), width)


def sighting_records(
    connection: sqlite3.Connection, width: int, numbers: Sequence[int] | None = None, *, hidden_too: bool = False
) -> Iterator[tuple[int, PhotoRecord]]:
    """Yield numbers of open sightings, and the photos with their pictures; refuse a number that is not there."""
    which = "TRUE" if hidden_too else "hidden_by IS NULL"
    everything = f"SELECT id FROM sightings WHERE {which} ORDER BY id"
    query = (
        "SELECT sha256, feature, thumbnail, original, prediction FROM sightings "
        f"JOIN sighting_images ON sighting_id = id WHERE id = ? AND {which}"
    )
    wanted = [row[0] for row in connection.execute(everything)] if numbers is None else numbers
    for number in wanted:
        row = connection.execute(query, (number,)).fetchone()
        if row is None:
            raise no_sighting(number)
        sha256, feature, thumbnail, original, text = row
        (vector,) = stored_numbers(feature, width)
        yield number, PhotoRecord(sha256, vector, thumbnail, original, name=_prediction_of(text).photo)


def require_open(connection: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Raise an error for a number without an open sighting."""
    query = "SELECT count(*) FROM sightings WHERE id = ? AND hidden_by IS NULL"
    for number in numbers:
        if not connection.execute(query, (number,)).fetchone()[0]:
            raise no_sighting(number)


def no_sighting(number: int) -> InputError:
    """Return the error for a sighting that is not there."""
    return InputError(
        f"there is no sighting {sighting_id(number)}: it has a name by now, or it was erased",
        hint="list the sightings again; nothing was changed",
        code="no_sighting",
    )


def read_sighting_picture(connection: sqlite3.Connection, number: int, *, kept: bool = False) -> bytes | None:
    """Return the small copy of an open sighting, or the photo itself."""
    row = connection.execute(
        f"SELECT {'original' if kept else 'thumbnail'} FROM sightings JOIN sighting_images ON sighting_id = id "
        "WHERE id = ? AND hidden_by IS NULL",
        (number,),
    ).fetchone()
    return None if row is None else row[0]


def hide_sightings(connection: sqlite3.Connection, numbers: Iterable[int], seq: int) -> None:
    """Note that an entry of the history learned or dismissed sightings."""
    rows = [(seq, number) for number in numbers]
    connection.executemany("UPDATE sightings SET hidden_by = ? WHERE id = ?", rows)


def show_again(connection: sqlite3.Connection, seq: int) -> None:
    """Bring back the sightings that an entry of the history has hidden, as it is undone."""
    connection.execute("UPDATE sightings SET hidden_by = NULL WHERE hidden_by = ?", (seq,))


def update_features(connection: sqlite3.Connection, photos: Mapping[int, PhotoRecord]) -> None:
    """Replace the features of sightings, given by number."""
    rows = [(number_bytes(photo.feature), photo_digest(photo), number) for number, photo in photos.items()]
    connection.executemany("UPDATE sightings SET feature = ?, digest = ? WHERE id = ?", rows)


def drop_erased_sightings(connection: sqlite3.Connection) -> None:
    """Delete learned sightings whose photos were erased for good."""
    connection.execute(
        "DELETE FROM sightings WHERE hidden_by IN (SELECT seq FROM history WHERE action != 'dismiss') "
        "AND sha256 NOT IN (SELECT sha256 FROM photos)"
    )


def name_only(connection: sqlite3.Connection, is_known: Callable[[str], bool]) -> None:
    """Remove all names but those of known classes from the predictions of sightings."""
    rows = connection.execute("SELECT id, prediction FROM sightings").fetchall()
    for number, text in rows:
        before = _prediction_of(text)
        label = before.label if before.label is not None and is_known(before.label) else None
        after = replace(before, label=label, **_known_candidates(before, is_known))
        if after != before:
            connection.execute(
                "UPDATE sightings SET prediction = ? WHERE id = ?", (_prediction_text(after), number)
            )


def erase_sighting_names(connection: sqlite3.Connection) -> None:
    """Delete the names of the files of sightings."""
    for number, text in connection.execute("SELECT id, prediction FROM sightings").fetchall():
        after = replace(_prediction_of(text), photo="")
        connection.execute("UPDATE sightings SET prediction = ? WHERE id = ?", (_prediction_text(after), number))


def _known_candidates(prediction: Prediction, is_known: Callable[[str], bool]) -> dict[str, Any]:
    """Return the fields of a prediction that hold candidates, with known ones alone."""
    values = {field.name: getattr(prediction, field.name) for field in fields(prediction)}
    return {
        name: tuple(one for one in value if is_known(one.label))
        for name, value in values.items()
        if isinstance(value, tuple) and value and isinstance(value[0], Candidate)
    }


def check_sightings(connection: sqlite3.Connection, width: int) -> Iterator[str]:
    """Yield what is wrong with stored sightings."""
    numbers = [number for (number,) in connection.execute("SELECT id FROM sightings ORDER BY id")]
    for number in numbers:
        (checksum,) = connection.execute("SELECT digest FROM sightings WHERE id = ?", (number,)).fetchone()
        try:
            ((_, photo),) = sighting_records(connection, width, [number], hidden_too=True)
            if photo_digest(photo) != checksum:
                raise StorageError("it is damaged (its checksum differs)")
        except (StorageError, InputError) as error:
            yield f"sighting {sighting_id(number)}: {error.message}"


def _prediction_text(prediction: Prediction) -> str:
    return json.dumps(to_json(replace(prediction, why=())), allow_nan=False)


def _prediction_of(text: str) -> Prediction:
    try:
        return from_json(Prediction, json.loads(text))
    except (ValueError, InputError) as error:
        raise StorageError(f"the prediction of a sighting is damaged ({error})", hint=CHECK) from error

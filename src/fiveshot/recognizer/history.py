"""The append-only history of a model: what was done, and what it takes to undo it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fiveshot.recognizer.lineage import read_lineages

Kind = Literal["added", "grown", "removed", "renamed"]

_ENTRY = "SELECT seq, at, action, undoable, undone_by, detail FROM history"


@dataclass(frozen=True, eq=False)
class ClassChange:
    """What one change did to one class. ``base`` marks a change of the base file instead of a row."""

    kind: Kind
    name: str  # afterwards; of a removed class the last one
    class_id: int | None = None
    base: bool = False
    old_name: str | None = None
    photos: int = 0
    first_photo: int | None = None  # number of the first photo added; the others have higher ones
    before: bytes | None = None  # the class as it was, packed


@dataclass(frozen=True)
class HistoryEntry:
    """A change as it is shown; ``classes`` are the names it touched.

    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 384))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     entry = birds.history(1)[0]
    >>> entry.action, entry.classes, entry.photos, entry.undoable
    ('learn', ('owl',), 5, True)
    """

    seq: int
    at: str  # UTC
    action: str
    classes: tuple[str, ...]
    photos: int
    undoable: bool
    undone_by: int | None
    detail: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def record(
    connection: sqlite3.Connection,
    action: str,
    changes: Iterable[ClassChange] = (),
    *,
    at: str,
    undoable: bool = True,
    detail: Mapping[str, Any] | None = None,
) -> int:
    """Append an entry and return its number."""
    seq = connection.execute(
        "INSERT INTO history (at, action, undoable, detail) VALUES (?, ?, ?, ?)",
        (at, action, int(undoable), json.dumps(dict(detail or {}), allow_nan=False)),
    ).lastrowid
    assert seq is not None
    connection.executemany(
        "INSERT INTO changes (seq, kind, base, class_id, name, old_name, photos, first_photo, before) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (seq, c.kind, int(c.base), c.class_id, c.name, c.old_name, c.photos, c.first_photo, c.before)
            for c in changes
        ],
    )
    return seq


def read_history(connection: sqlite3.Connection, *, limit: int | None = None) -> list[HistoryEntry]:
    """Return the entries, the latest first."""
    rows = connection.execute(f"{_ENTRY} ORDER BY seq DESC LIMIT ?", (-1 if limit is None else limit,)).fetchall()
    return [_entry(connection, row) for row in rows]


def read_entry(connection: sqlite3.Connection, seq: int) -> HistoryEntry:
    """Return one entry."""
    return _entry(connection, connection.execute(f"{_ENTRY} WHERE seq = ?", (seq,)).fetchone())


def _entry(connection: sqlite3.Connection, row: tuple[Any, ...]) -> HistoryEntry:
    seq, at, action, undoable, undone_by, detail = row
    touched = connection.execute("SELECT name, photos FROM changes WHERE seq = ? ORDER BY id", (seq,)).fetchall()
    names = tuple(dict.fromkeys(name for name, _ in touched))
    photos = sum(count for _, count in touched)
    return HistoryEntry(seq, at, action, names, photos, bool(undoable), undone_by, json.loads(detail))


def changes_of(connection: sqlite3.Connection, seq: int) -> list[ClassChange]:
    """Return what an entry did, in its order."""
    rows = connection.execute(
        "SELECT kind, name, class_id, base, old_name, photos, first_photo, before "
        "FROM changes WHERE seq = ? ORDER BY id",
        (seq,),
    )
    return [ClassChange(k, name, number, bool(base), *rest) for k, name, number, base, *rest in rows]


def last_to_undo(connection: sqlite3.Connection, *, past_forget: bool = False) -> tuple[int, str, bool] | None:
    """Return number, action and whether it can be undone, of the last change that stands; None: there is none.

    ``past_forget`` passes over classes that were forgotten without history.
    """
    row = connection.execute(
        "SELECT seq, action, undoable FROM history "
        "WHERE undone_by IS NULL AND action NOT IN ('undo', 'create', 'import') "
        "AND NOT (? AND action = 'forget' AND NOT undoable) ORDER BY seq DESC LIMIT 1",
        (past_forget,),
    ).fetchone()
    return None if row is None else (row[0], row[1], bool(row[2]))


def erase(connection: sqlite3.Connection, name: str, base: Iterable[str]) -> bool:
    """Delete all that the history holds of the class of this name, and of those that bore it when they ended.

    Where there is none, of those that ever bore it and are no more. ``base`` are the names in the base file.
    An entry that touched other classes too keeps those; one that touched no other is deleted. Returns whether
    there was such a class.
    """
    lineages = read_lineages(connection, base)
    found = [one for one in lineages if one.name == name]
    found = found or [one for one in lineages if name in one.names and not one.in_force]
    rows = [(number,) for one in found for number in one.changes]
    connection.executemany("DELETE FROM changes WHERE id = ?", rows)
    connection.execute(
        "DELETE FROM history WHERE action IN ('learn', 'add', 'rename', 'merge', 'forget') AND undoable = 1 "
        "AND seq NOT IN (SELECT seq FROM changes)"
    )
    connection.execute(
        "DELETE FROM history WHERE action = 'undo' "
        "AND seq NOT IN (SELECT undone_by FROM history WHERE undone_by IS NOT NULL)"
    )
    return bool(found)

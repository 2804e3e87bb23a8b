"""The append-only history of a model: its changes, the data to undo them, and the class of each row."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from fiveshot.values import HistoryEntry

# A class was added, got new photos, lost photos, got photos from other classes, gave photos to another class, was
# removed, or was renamed.
Kind = Literal["added", "grown", "reduced", "came", "left", "removed", "renamed"]

_ENTRY = "SELECT seq, at, action, undoable, undone_by, detail FROM history"


@dataclass(frozen=True, eq=False)
class ClassChange:
    """The effect of one change on one class. ``base`` marks a change of the base file instead of a row.

    Statistics of a row follow from its photos, so they are not stored here. Removed photos stay in the database
    and belong to this entry.
    """

    kind: Kind
    name: str  # after the change; for a removed class its last name
    class_id: int | None = None
    base: bool = False
    old_name: str | None = None
    photos: int = 0
    created: str | None = None  # of a removed row
    before: bytes | None = None  # statistics of a class that was removed from the base file
    id: int | None = None  # None until it is stored
    touched: tuple[int, ...] = ()  # numbers of photos that were added, moved to another class or removed


def timestamp() -> str:
    """Return the present time in UTC, in the format of the history."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


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
    for c in changes:
        number = connection.execute(
            "INSERT INTO changes (seq, kind, base, class_id, name, old_name, photos, created, before) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (seq, c.kind, int(c.base), c.class_id, c.name, c.old_name, c.photos, c.created, c.before),
        ).lastrowid
        held = "UPDATE photos SET class_id = NULL, held_by = ? WHERE id = ?"  # no picture is read or copied
        noted = held if c.kind == "reduced" else "INSERT INTO touched VALUES (?, ?)"
        connection.executemany(noted, [(number, photo) for photo in c.touched])
    return seq


def read_history(connection: sqlite3.Connection, *, limit: int | None = None) -> list[HistoryEntry]:
    """Return the entries, the latest first."""
    rows = connection.execute(f"{_ENTRY} ORDER BY seq DESC LIMIT ?", (-1 if limit is None else limit,)).fetchall()
    return [_entry(connection, row) for row in rows]


def _entry(connection: sqlite3.Connection, row: tuple[Any, ...]) -> HistoryEntry:
    seq, at, action, undoable, undone_by, detail = row
    touched = connection.execute("SELECT name, photos FROM changes WHERE seq = ? ORDER BY id", (seq,)).fetchall()
    names = tuple(dict.fromkeys(name for name, _ in touched))
    photos = sum(count for _, count in touched)
    return HistoryEntry(seq, at, action, names, photos, bool(undoable), undone_by, json.loads(detail))


def changes_of(connection: sqlite3.Connection, seq: int) -> list[ClassChange]:
    """Return the changes of an entry, in order."""
    rows = connection.execute(
        "SELECT kind, name, class_id, base, old_name, photos, created, before, id "
        "FROM changes WHERE seq = ? ORDER BY id",
        (seq,),
    )
    done = [ClassChange(*row) for row in rows]
    query = "SELECT photo_id FROM touched WHERE change_id = ? ORDER BY photo_id"
    return [replace(one, touched=tuple(n for (n,) in connection.execute(query, (one.id,)))) for one in done]


def last_to_undo(connection: sqlite3.Connection, *, past_forget: bool = False) -> HistoryEntry | None:
    """Return the last change that was not undone, even if it cannot be undone; None if there is none.

    ``past_forget`` skips changes that erased classes, photos or names for good.
    """
    row = connection.execute(
        f"{_ENTRY} WHERE undone_by IS NULL AND action NOT IN ('undo', 'create', 'import') "
        "AND NOT (? AND action IN ('forget', 'remove', 'set') AND NOT undoable) ORDER BY seq DESC LIMIT 1",
        (past_forget,),
    ).fetchone()
    return None if row is None else _entry(connection, row)


def next_to_undo(connection: sqlite3.Connection) -> HistoryEntry | None:
    """Return the change that ``undo`` would revert; None if there is none, or it cannot be undone."""
    found = last_to_undo(connection)
    return found if found is not None and found.undoable else None


def erase(connection: sqlite3.Connection, name: str, base: Iterable[str]) -> bool:
    """Delete everything about a class from the history; return whether there was such a class.

    This includes the class of this name, and classes that had the name when they were deleted. If there are none,
    it includes every deleted class that ever had the name. ``base`` are the names in the base file. An entry about
    other classes as well keeps those; ``drop_erased`` deletes an entry about no other class.
    """
    lineages = read_lineages(connection, base)
    found = [one for one in lineages if one.name == name]
    found = found or [one for one in lineages if name in one.names and not one.in_force]
    rows = [(number,) for one in found for number in one.changes]
    connection.executemany("DELETE FROM changes WHERE id = ?", rows)
    return bool(found)


def drop_erased(connection: sqlite3.Connection) -> None:
    """Delete history that can no longer be undone because classes or photos were erased."""
    stands = "seq IN (SELECT seq FROM history WHERE undone_by IS NULL)"
    counted = "(SELECT COUNT(*) FROM photos WHERE held_by = changes.id)"
    connection.execute(f"UPDATE changes SET photos = {counted} WHERE kind = 'reduced' AND {stands}")
    connection.execute(f"DELETE FROM changes WHERE kind = 'reduced' AND photos = 0 AND {stands}")
    emptied = "kind IN ('grown', 'left') AND id NOT IN (SELECT change_id FROM touched)"
    connection.execute(f"DELETE FROM changes WHERE {emptied} AND {stands}")
    # If one side of a move is erased, the photos stay in their present class, which the move may have created.
    sides = [f"(SELECT seq FROM changes WHERE kind = '{kind}')" for kind in ("came", "left")]
    half = " OR ".join(f"seq IN {one} AND seq NOT IN {other}" for one, other in (sides, sides[::-1]))
    connection.execute(f"DELETE FROM changes WHERE kind IN ('came', 'left', 'added') AND ({half}) AND {stands}")
    connection.execute(
        "DELETE FROM changes WHERE kind = 'removed' AND NOT base "
        f"AND seq NOT IN (SELECT seq FROM changes WHERE kind IN ('left', 'reduced')) AND {stands}"
    )
    connection.execute(
        "DELETE FROM history WHERE action IN ('learn', 'add', 'rename', 'merge', 'forget', 'remove', 'move', "
        "'correct', 'none', 'review') AND undoable = 1 AND seq NOT IN (SELECT seq FROM changes)"
    )
    connection.execute(
        "DELETE FROM history WHERE action = 'undo' "
        "AND seq NOT IN (SELECT undone_by FROM history WHERE undone_by IS NOT NULL)"
    )


@dataclass(eq=False)
class Lineage:
    """One class with all its names; for a base class, with everything that was ever added to it."""

    name: str  # the present name, or the last one
    in_force: bool
    names: set[str] = field(default_factory=set)  # all names in the history
    changes: list[int] = field(default_factory=list)  # numbers of its rows in the history


class _Row(NamedTuple):
    id: int
    kind: str
    base: int
    class_id: int | None
    name: str
    old_name: str | None

    @property
    def name_before(self) -> str:
        return self.name if self.old_name is None else self.old_name


def read_lineages(connection: sqlite3.Connection, base: Iterable[str]) -> list[Lineage]:
    """Return the present classes and those that are only in the history; ``base``: the names in the base file."""
    rows = defaultdict[int, list[_Row]](list)
    for seq, *row in connection.execute("SELECT seq, id, kind, base, class_id, name, old_name FROM changes"):
        rows[seq].append(_Row(*row))
    in_force = connection.execute("SELECT id, name FROM classes WHERE NOT base").fetchall()
    walk = _Walk(
        {name: Lineage(name, True) for name in base}, {id_: Lineage(name, True) for id_, name in in_force}
    )
    entries = connection.execute("SELECT seq, undone_by FROM history").fetchall()
    undone = {undo: seq for seq, undo in entries if undo is not None}
    for seq, undone_by in sorted(entries, reverse=True):
        if seq in undone:
            walk.before_undo(undone[seq], rows[undone[seq]])
        else:
            walk.before(seq, rows[seq], stands=undone_by is None)
    return walk.found


class _Walk:
    """Walks back through the history and tracks the name of each base class at every step."""

    def __init__(self, base: dict[str, Lineage], learned: dict[int, Lineage]) -> None:
        self.found = [*base.values(), *learned.values()]
        self._base, self._learned = base, learned
        self._removed: dict[int, Lineage] = {}  # by the entry that removed them

    def before_undo(self, undid: int, rows: list[_Row]) -> None:
        """Go back to the time before an entry was undone."""
        for row in rows:
            if row.base and row.kind == "renamed":
                self._base[row.name] = self._taken(row.name_before)
            elif row.base:
                self._removed[undid] = self._taken(row.name)

    def before(self, seq: int, rows: list[_Row], *, stands: bool) -> None:
        """Go back to the time before an entry, and note the class of each of its rows."""
        for row in rows:
            if row.base and row.kind == "renamed":
                self._base[row.name_before] = self._taken(row.name)
            elif row.base:
                is_back = seq in self._removed  # undone later
                self._base[row.name] = self._removed.pop(seq) if is_back else self._new(row.name)
        for row in rows:
            # A base class and a learned class never have the same name at the same time.
            lineage = self._base.get(row.name_before)
            if lineage is None:
                lineage = self._of_number(row)
                if row.kind == ("removed" if stands else "added"):  # this entry deleted the class
                    lineage.name = row.name
            lineage.names |= {row.name, row.name_before}
            lineage.changes.append(row.id)

    def _of_number(self, row: _Row) -> Lineage:
        assert row.class_id is not None
        if row.class_id not in self._learned:
            self._learned[row.class_id] = self._new(row.name)
        return self._learned[row.class_id]

    def _taken(self, name: str) -> Lineage:
        # None: its rows were erased when a class of the same name was forgotten
        return self._base.pop(name, None) or self._new(name)

    def _new(self, name: str) -> Lineage:
        self.found.append(Lineage(name, in_force=False))
        return self.found[-1]

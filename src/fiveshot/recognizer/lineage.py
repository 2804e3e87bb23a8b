"""Which class each row of the history is of: names pass from class to class, so it takes the order of time."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(eq=False)
class Lineage:
    """One class through all its names; a base class with whatever was added to it at any time."""

    name: str  # now, or the last one
    in_force: bool
    names: set[str] = field(default_factory=set)  # all that the history knows
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
    """Return the classes in force and those that the history alone knows; ``base``: the names in the base file."""
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
    """A way back through the history that knows at every step which base class bears which name."""

    def __init__(self, base: dict[str, Lineage], learned: dict[int, Lineage]) -> None:
        self.found = [*base.values(), *learned.values()]
        self._base, self._learned = base, learned
        self._removed: dict[int, Lineage] = {}  # by the entry that removed them

    def before_undo(self, undid: int, rows: list[_Row]) -> None:
        """Go back to where an entry was not undone yet."""
        for row in rows:
            if row.base and row.kind == "renamed":
                self._base[row.name] = self._taken(row.name_before)
            elif row.base:
                self._removed[undid] = self._taken(row.name)

    def before(self, seq: int, rows: list[_Row], *, stands: bool) -> None:
        """Go back to before an entry, and note whose its rows are."""
        for row in rows:
            if row.base and row.kind == "renamed":
                self._base[row.name_before] = self._taken(row.name)
            elif row.base:
                is_back = seq in self._removed  # undone later
                self._base[row.name] = self._removed.pop(seq) if is_back else self._new(row.name)
        for row in rows:
            # A base class and a learned one never bear the same name at the same time.
            lineage = self._base.get(row.name_before)
            if lineage is None:
                lineage = self._of_number(row)
                if row.kind == ("removed" if stands else "added"):  # this ended it
                    lineage.name = row.name
            lineage.names |= {row.name, row.name_before}
            lineage.changes.append(row.id)

    def _of_number(self, row: _Row) -> Lineage:
        assert row.class_id is not None
        if row.class_id not in self._learned:
            self._learned[row.class_id] = self._new(row.name)
        return self._learned[row.class_id]

    def _taken(self, name: str) -> Lineage:
        # None: an earlier release may have deleted a part of its history.
        return self._base.pop(name, None) or self._new(name)

    def _new(self, name: str) -> Lineage:
        self.found.append(Lineage(name, in_force=False))
        return self.found[-1]

"""The classes of a snapshot as a list that can be searched, made once for each state."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from fiveshot.recognizer.snapshot import Snapshot
from fiveshot.service.schemas import ClassEntry
from fiveshot.statistics.labels import python_labels


@dataclass(frozen=True, eq=False)
class Listing:
    """All classes, sorted as people sort names, with what is searched for."""

    snapshot: Snapshot
    entries: tuple[ClassEntry, ...]
    keys: tuple[str, ...]  # (n,)

    def page(self, search: str, offset: int, limit: int) -> tuple[list[ClassEntry], int]:
        """Return a part of the classes whose names hold the text, and how many there are."""
        wanted = search.strip().casefold()
        found = (
            [entry for entry, key in zip(self.entries, self.keys, strict=True) if wanted in key]
            if wanted
            else self.entries
        )
        return list(found[offset : offset + limit]), len(found)


def list_classes(snapshot: Snapshot) -> Listing:
    """Return the classes of a snapshot; their pictures are counted when they are shown, because they are read."""
    contents = snapshot.contents
    statistics = contents.memory.statistics
    entries = []
    for label, summary in zip(python_labels(statistics.labels), statistics.summaries, strict=True):
        name = str(label)
        row = contents.by_name.get(name)
        entries.append(
            ClassEntry(
                name=name,
                photos=summary.count,
                base=name in contents.base_file,
                thumbnails=0,
                version=row.changed if row is not None else 0,
            )
        )
    entries.sort(key=lambda entry: (entry.name.casefold(), entry.name))
    return Listing(snapshot, tuple(entries), tuple(entry.name.casefold() for entry in entries))


class Listings:
    """Keeps the list of the state that was asked for last."""

    def __init__(self) -> None:
        self._last: Listing | None = None
        self._lock = threading.Lock()

    def of(self, snapshot: Snapshot) -> Listing:
        """Return the list of a snapshot."""
        with self._lock:
            if self._last is None or self._last.snapshot is not snapshot:
                self._last = list_classes(snapshot)
            return self._last

"""The classes as a list that can be searched, and the small copies of their photos."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fiveshot.core.labels import python_labels
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.rows import count_thumbnails, read_thumbnail
from fiveshot.service.engine import Engine
from fiveshot.service.errors import not_found

MOST_BYTES = 32 * 1024 * 1024  # of the small copies that are kept in memory
NOT_COUNTED = (0, 0)


@dataclass(frozen=True)
class ClassEntry:
    """A class: photos it was learned from, small copies that can be had, and the state it last changed in."""

    name: str
    photos: int
    base: bool  # whether it belongs to the base of the model
    thumbnails: int
    version: int


@dataclass(frozen=True, eq=False)
class Listing:
    """All classes of one state, sorted as people sort names, with what is searched for."""

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
    """Return the classes of a snapshot. Small copies are counted when a class is shown, because that reads."""
    contents = snapshot.contents
    statistics = contents.memory.statistics
    entries = []
    for label, summary in zip(python_labels(statistics.labels), statistics.summaries, strict=True):
        name = str(label)
        row = contents.by_name.get(name)
        version = row.changed if row is not None else 0
        entries.append(ClassEntry(name, summary.count, name in contents.base_file, 0, version))
    entries.sort(key=lambda entry: (entry.name.casefold(), entry.name))
    return Listing(snapshot, tuple(entries), tuple(entry.name.casefold() for entry in entries))


class Catalog:
    """The classes that can be listed, and small copies of their photos.

    The list is made once for each state. Pictures are read one at a time, and the last ones are kept for a while.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listing: Listing | None = None  # of the state that was asked for last
        # By class and number: the class's row and version, and the picture.
        self._known: OrderedDict[tuple[str, int], tuple[tuple[int, int], bytes]] = OrderedDict()
        self._bytes = 0
        self._counts: dict[str, tuple[int, int]] = {}  # by class: its version and its pictures
        self._opening = engine.openings

    async def page(self, snapshot: Snapshot, search: str, offset: int, limit: int) -> tuple[list[ClassEntry], int]:
        """Return a part of the classes whose names hold the text, and how many there are."""
        if self._listing is None or self._listing.snapshot is not snapshot:
            self._listing = list_classes(snapshot)
        self._forget_earlier_model()
        classes, total = self._listing.page(search, offset, limit)
        return await self._counted(snapshot, classes), total

    async def thumbnail(self, name: str, number: int) -> bytes:
        """Return the small copy of a photo of a class, counted from 0."""
        contents = self._engine.serving.snapshot.contents
        self._forget_earlier_model()
        if name not in contents:
            raise not_found(f"there is no class {name!r}")
        row = contents.by_name.get(name)
        picture = None
        if row is not None:  # a base class as it was made has no row, and no photos
            version = (row.id, row.changed)
            known, picture = self._known.get((name, number), (None, None))
            if known == version:
                self._known.move_to_end((name, number))
            else:
                picture = await self._engine.read(lambda database: read_thumbnail(database, row.id, number))
                self._keep((name, number), version, picture)
        if picture is None:
            raise not_found(f"there is no picture {number} of {name!r}")
        return picture

    async def _counted(self, snapshot: Snapshot, classes: Sequence[ClassEntry]) -> list[ClassEntry]:
        """Return classes of a snapshot with the number of their pictures; what has changed is counted again."""
        stored = {one.name: one.version for one in classes if one.version}  # 0: a base class as it was made
        fresh = {
            name: version for name, version in stored.items() if self._counts.get(name, NOT_COUNTED)[0] != version
        }
        if fresh:
            known = snapshot.contents.by_name
            rows = [known[name].id for name in fresh]
            found = await self._engine.read(lambda database: [count_thumbnails(database, row) for row in rows])
            counts = {name: kept for name, kept in self._counts.items() if name in known}
            fresh_counts = zip(fresh.values(), found, strict=True)
            self._counts = counts | dict(zip(fresh, fresh_counts, strict=True))
        pictures = {name: self._counts.get(name, NOT_COUNTED)[1] for name in stored}
        return [replace(entry, thumbnails=pictures.get(entry.name, 0)) for entry in classes]

    def forget(self, name: str | None = None) -> None:
        """Drop what is kept of a class, or of all."""
        for known in [known for known in self._counts if name in (None, known)]:
            del self._counts[known]
        for key in [key for key in self._known if name in (None, key[0])]:
            self._drop(key)

    def _forget_earlier_model(self) -> None:
        if self._opening != self._engine.openings:
            self._opening = self._engine.openings
            self.forget()

    def _keep(self, key: tuple[str, int], version: tuple[int, int], picture: bytes | None) -> None:
        self._drop(key)
        if picture is None:
            return
        self._known[key] = (version, picture)
        self._bytes += len(picture)
        while self._bytes > MOST_BYTES and len(self._known) > 1:
            self._drop(next(iter(self._known)))

    def _drop(self, key: tuple[str, int]) -> None:
        _, picture = self._known.pop(key, (None, b""))
        self._bytes -= len(picture)

"""The small copies of learned photos, read from the model and kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from fiveshot.recognizer.rows import count_thumbnails, read_photos
from fiveshot.recognizer.snapshot import Snapshot
from fiveshot.service.engine import Engine
from fiveshot.service.errors import not_found
from fiveshot.service.schemas import ClassEntry

MOST_BYTES = 32 * 1024 * 1024
NONE = (0, 0)  # version and pictures of a class that was not counted


class Pictures:
    """Thumbnails by class; what has changed is read anew, what has not been asked for the longest goes first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[str, tuple[object, list[bytes]]] = OrderedDict()
        self._bytes = 0
        self._counts: dict[str, tuple[int, int]] = {}  # by class: its version and its pictures

    async def one(self, name: str, number: int) -> bytes:
        """Return the small copy of a photo of a class, counted from 0."""
        pictures = await self._of(name)
        if not 0 <= number < len(pictures):
            raise not_found(f"there is no picture {number} of {name!r}")
        return pictures[number]

    async def counted(self, snapshot: Snapshot, classes: Sequence[ClassEntry]) -> list[ClassEntry]:
        """Return classes of a snapshot with the number of their pictures; what has changed is counted anew."""
        stored = {
            entry.name: entry.version for entry in classes if entry.version
        }  # 0: a base class as it was made
        fresh = {name: version for name, version in stored.items() if self._counts.get(name, NONE)[0] != version}
        if fresh:
            known = snapshot.contents.by_name
            rows = [known[name].id for name in fresh]
            found = await self._engine.read(lambda database: [count_thumbnails(database, row) for row in rows])
            counts = {name: kept for name, kept in self._counts.items() if name in known}
            fresh_counts = zip(fresh.values(), found, strict=True)
            self._counts = counts | dict(zip(fresh, fresh_counts, strict=True))
        pictures = {name: self._counts.get(name, NONE)[1] for name in stored}
        return [entry.model_copy(update={"thumbnails": pictures.get(entry.name, 0)}) for entry in classes]

    async def _of(self, name: str) -> list[bytes]:
        contents = self._engine.serving.snapshot.contents
        if name not in contents:
            raise not_found(f"there is no class {name!r}")
        row = contents.by_name.get(name)
        if row is None:
            return []
        version, pictures = self._known.get(name, (None, []))
        if version == (row.id, row.changed):
            self._known.move_to_end(name)
            return pictures
        photos = await self._engine.read(lambda database: read_photos(database, row.id, contents.width))
        pictures = [photo.thumbnail for photo in photos if photo.thumbnail is not None]
        self._keep(name, (row.id, row.changed), pictures)
        return pictures

    def _keep(self, name: str, version: object, pictures: list[bytes]) -> None:
        self.forget(name)
        self._known[name] = (version, pictures)
        self._bytes += sum(map(len, pictures))
        while self._bytes > MOST_BYTES and len(self._known) > 1:
            self.forget(next(iter(self._known)))

    def forget(self, name: str) -> None:
        """Drop what is kept of a class."""
        self._counts.pop(name, None)
        _, pictures = self._known.pop(name, (None, []))
        self._bytes -= sum(map(len, pictures))

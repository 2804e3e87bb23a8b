"""One change of a model: a transaction, its files, and the resulting state."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiveshot.core import ClassStatistics
from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer.advice.insight import DuplicateIndex
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.contents import Contents, StoredClass, file_sha256, read_contents, write_base
from fiveshot.recognizer.store.folder import ModelFolder
from fiveshot.recognizer.store.history import ClassChange, record, timestamp
from fiveshot.recognizer.store.manifest import MANIFEST, Manifest
from fiveshot.recognizer.store.rows import Tables, photo_summary, read_features
from fiveshot.recognizer.store.schema import LostModelError
from fiveshot.work import one_thread

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer


class ConflictError(InputError):
    """Raised when another process changed the model in the meantime; nothing was done.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.recognizer import ConflictError, Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     seen = birds.snapshot.state
    ...     _ = birds.learn_features("wren", -owls)  # by somebody else, say
    ...     try:
    ...         birds.undo(state=seen)
    ...     except ConflictError as error:
    ...         print(error)
    the model was changed since state 2, it is in state 3 now; nothing was undone: look at the model first
    """

    default_code = "conflict"


RETRIES = 3


class NotErasedError(StorageError):
    """Raised when a class or photos are removed, but their traces are still in the files. Do not repeat the
    change.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.recognizer import NotErasedError, Recognizer
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", np.random.default_rng(0).normal(size=(5, 320)))
    ...     try:
    ...         birds.forget("owl", for_good=True)
    ...     except NotErasedError:  # another process reads the model, say: the next change erases them
    ...         print("forgotten, and not erased yet")
    """

    default_code = "not_erased"


@dataclass(eq=False)
class Change:
    """A change in progress: the state before, and what will change."""

    folder: Path
    connection: sqlite3.Connection
    before: Contents
    snapshot: Snapshot  # of the state before
    at: str
    written: list[Path]  # new files, removed if the change fails
    duplicates: DuplicateIndex  # of the photos learned before
    base: ClassStatistics | None = None  # the new content of the base file, if it changes
    manifest: Manifest | None = None  # if more than the base file changes
    erases: bool = False  # whether all traces of deleted data must be erased
    done: list[ClassChange] = field(default_factory=list)

    @property
    def state(self) -> int:
        """Number of the resulting state."""
        return self.before.state + 1

    @property
    def base_file(self) -> ClassStatistics:
        """The classes of the base file, as changed so far."""
        return self.before.base_file if self.base is None else self.base

    @property
    def tables(self) -> Tables:
        """The rows of classes and photos."""
        return Tables(self.connection, self.before.width, self.state)

    def lose(self, row: StoredClass, photos: Sequence[int], *, to_another: bool = False) -> None:
        """Note that a class loses photos, to another class or to the history. Without photos it is deleted."""
        if len(photos) == len(row.photos.ids):
            created = self.tables.class_alone(row.id).created
            self.done.append(ClassChange("removed", row.name, row.id, created=created))
        if to_another:
            self.done.append(ClassChange("left", row.name, row.id, touched=tuple(photos)))
        else:
            self.done.append(ClassChange("reduced", row.name, row.id, photos=len(photos), touched=tuple(photos)))

    def restate(self, classes: Iterable[int]) -> None:
        """Compute the statistics of stored classes from their present photos; delete a class without photos."""
        for number in sorted(set(classes)):
            photos = read_features(self.connection, self.before.width, [number]).get(number)
            if photos is None:
                self.tables.delete_class(number)
            else:
                self.tables.update_class(number, photo_summary(self.snapshot.embed, photos.features))

    def record(self, action: str, *, undoable: bool = True, detail: Mapping[str, Any] | None = None) -> int:
        """Append the change to the history, which keeps removed photos."""
        seq = record(self.connection, action, self.done, at=self.at, undoable=undoable, detail=detail)
        moved = (one.class_id for one in self.done if one.kind in ("reduced", "came", "left"))
        self.restate(number for number in moved if number is not None)
        return seq


class LiveModel:
    """An open model: its folder and its present snapshot, which every change replaces."""

    def __init__(self, path: Path, *, readonly: bool, timeout: float) -> None:
        self.folder = ModelFolder(path, readonly=readonly, timeout=timeout)
        try:
            self.snapshot: Snapshot = Snapshot(self._read(None))
        except BaseException:
            self.folder.close()
            raise
        self._duplicates = DuplicateIndex()

    def refresh(self) -> Snapshot:
        """Read the changes of other processes, and return the present snapshot."""
        with self.folder.lock:
            contents = self._read(self.snapshot.contents)
            if contents is not self.snapshot.contents:
                self.snapshot = self.snapshot.next(contents)
            return self.snapshot

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Make one change, all of it or nothing. It is on the disk when the block has ended."""
        folder, written = self.folder, list[Path]()
        with folder.lock:
            try:
                with folder.writing() as connection:
                    contents = self._seen(connection, self.snapshot.contents)
                    same = contents.state == self.snapshot.state
                    snapshot = self.snapshot if same else self.snapshot.next(contents)
                    now, duplicates = timestamp(), self._duplicates
                    change = Change(folder.path, connection, snapshot.contents, snapshot, now, written, duplicates)
                    with one_thread():  # the matrices are small: several threads would wait for each other
                        yield change
                        self._follow(change)
                        after = snapshot.next(read_contents(connection, folder.path, snapshot.contents))
            except BaseException:  # of the commit too
                folder.discard(written)
                raise
            self.snapshot = after
            folder.try_confirm()
            if change.erases:
                self._erase()
            else:
                folder.try_settle()

    @contextmanager
    def aside(self, *, erases: bool = False) -> Iterator[sqlite3.Connection]:
        """Write rows that belong to no state, in one transaction: sightings. What was learned stays as it is.

        Deleted rows are overwritten with zeros, and the log is cut to zero bytes once no process reads it.
        ``erases`` rewrites the database as well, as forgetting for good does.
        """
        folder = self.folder
        with folder.lock:
            with folder.writing() as connection:
                contents = self._seen(connection, self.snapshot.contents)
                if contents is not self.snapshot.contents:
                    self.snapshot = self.snapshot.next(contents)
                yield connection
                if erases:
                    folder.set_meta("unsettled", "erase")
            folder.try_confirm()
            if erases:
                self._erase()

    def _erase(self) -> None:
        try:
            self.folder.settle()
        except LostModelError:
            raise
        except StorageError as error:
            reason = f"the data are gone from the model, but {error.message}"
            raise NotErasedError(reason, hint=error.hint) from error

    def _follow(self, change: Change) -> None:
        """Write the base file and the entries that name it, in an order that is safe if the process is killed."""
        folder, before = self.folder, change.before.manifest
        manifest = change.manifest or before
        if change.base is not None:
            base = write_base(folder.path, change.base)
            if base.file and base.file != before.base.file:
                change.written.append(folder.path / base.file)
            manifest = manifest.with_base(base)
        folder.set_meta("state", str(change.state))
        if manifest != before:
            folder.set_meta("manifest", manifest.to_toml())
            folder.set_meta("manifest_before", file_sha256(folder.path / MANIFEST))
        if change.erases:
            folder.set_meta("unsettled", "erase")
        elif manifest != before and folder.meta("unsettled") is None:  # a pending erase also removes files
            folder.set_meta("unsettled", "files")

    def _read(self, previous: Contents | None) -> Contents:
        for left in reversed(range(RETRIES + 1)):
            try:
                with self.folder.reading() as connection:
                    return self._seen(connection, previous)
            except StorageError:
                # A writer may have replaced the base file after we read the database and before we read the
                # folder.
                if not left:
                    raise
                with self.folder.reading():  # unless the database itself cannot be read
                    pass
        raise AssertionError("the last time returns or raises")

    def _seen(self, connection: sqlite3.Connection, previous: Contents | None) -> Contents:
        if previous is not None and self.folder.meta("state") == str(previous.state):
            return previous
        return read_contents(connection, self.folder.path, previous)


def erase_pending(model: Recognizer) -> bool:
    """Erase remaining traces of forgotten data, if no other process reads them now.

    Every ``open`` to write and every change does so by itself; a process that waits for work may ask now and
    then.

    Parameters
    ----------
    model : Recognizer
        The model.

    Returns
    -------
    bool
        Whether no traces are left.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import erase_pending
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     erase_pending(birds)
    True
    """
    folder = model.live.folder
    with folder.reading():  # gives a clear error for a closed or damaged model
        pending = folder.unsettled()
    if pending is not None:
        folder.try_settle()
        pending = folder.unsettled()
    return pending is None

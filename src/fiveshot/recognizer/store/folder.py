"""The directory of a model: its database, the files next to it, and the order in which they change."""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from fiveshot.core import NO_CLASSES, ClassStatistics
from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.recognizer.store._confirmed import (
    CONFIRMED,
    Confirmed,
    lost_changes,
    read_confirmed,
    write_confirmed,
)
from fiveshot.recognizer.store.contents import file_sha256, state_number, write_base
from fiveshot.recognizer.store.history import record, timestamp
from fiveshot.recognizer.store.manifest import (
    MANIFEST,
    REPAIR,
    Manifest,
    check_folder,
    read_manifest,
    read_manifest_text,
)
from fiveshot.recognizer.store.rows import ClassRecord, Tables
from fiveshot.recognizer.store.schema import (
    DATABASE,
    UNCONFIRMED,
    LostModelError,
    ModelConnection,
    changed_meanwhile,
    create_database,
    gone,
    open_database,
    replaced,
    storage_error,
    vacuum,
)
from fiveshot.storage import FilePath, atomic_path, confirm_place, part_beside

TIMEOUT = 10.0  # seconds that a writer waits for another writer, and an erase for readers
PASSING = 0.1  # seconds that a change waits for readers that block an earlier erase
PAUSE = 300.0  # seconds to wait before a failed erase is tried again
_OURS = re.compile(
    r"(base|adapter)-[0-9a-f]{16}\.safetensors|\.(base|adapter|model\.toml|confirmed\.txt)[^/]*\.part|"
    r"\.tmp[0-9A-Za-z]{6}"  # temporary files of safetensors
)
_log = logging.getLogger(__name__)


class _ReaderError(StorageError):
    """A reader still needs the log that should be erased."""


class ModelFolder:
    """An open model directory. The database is authoritative; ``model.toml`` repeats it for people.

    A change writes new files first, commits, and only then replaces ``model.toml`` and deletes old files. If the
    process is killed in between, the next writer finishes the work. ``repair`` accepts a damaged ``model.toml``
    and a database that has lost changes.
    """

    def __init__(
        self, path: Path, *, readonly: bool = False, timeout: float = TIMEOUT, repair: bool = False
    ) -> None:
        self.path: Path = path.absolute()
        self.readonly = readonly
        self.lock = threading.RLock()
        self.timeout, self._is_closed = timeout, False
        self._paused_until = 0.0  # when a failed erase is tried again
        self._in_doubt = False  # whether the log may contain an unconfirmed commit
        if not repair:
            check_folder(path)
            manifest = read_manifest_text(path)
        confirmed = None if repair else read_confirmed(path)
        self.connection = self._opened()
        try:
            self.id: str = self._stored_id()
            if not repair:
                with self.reading():
                    self._check_manifest(manifest)
                    self._refuse_lost_changes(confirmed)
                if not readonly:
                    self.try_settle()
        except BaseException:
            self.connection.close()
            raise

    def _opened(self) -> ModelConnection:
        return open_database(self.path / DATABASE, readonly=self.readonly, timeout=self.timeout)

    def _stored_id(self) -> str:
        try:
            found = self.meta("id")
        except sqlite3.Error as error:
            raise storage_error(self.path / DATABASE, error) from error
        if not found:
            raise StorageError(f"{self.path / DATABASE} is damaged: it has no id", hint="restore it from a copy")
        return found

    def _require_in_place(self) -> None:
        """Refuse to continue if the database at the path is not the opened one."""
        self.connection.require_in_place(self.path)
        if self.meta("id") != self.id:  # the file itself was overwritten with another database
            raise replaced(self.path)

    def _is_outdated(self) -> bool:
        return not self._is_closed and self.connection.is_outdated()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a view of one state, without changes that are committed in the meantime."""
        with self.lock:
            if self._is_outdated():
                if not (self.path / DATABASE).exists():
                    raise gone(self.path)
                outdated, self.connection = self.connection, self._opened()
                outdated.close()
            try:
                with self._transaction("BEGIN") as connection:
                    self._require_in_place()
                    yield connection
            except LostModelError:
                raise
            except Exception as error:
                if self._is_outdated():
                    raise changed_meanwhile(self.path / DATABASE) from error
                raise
            if self._is_outdated():
                raise changed_meanwhile(self.path / DATABASE)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Give the transaction of the only writer. When the block succeeds, all of it is on the disk."""
        if self.readonly:
            raise InputError(
                f"{self.path} was opened read-only",
                hint="open it without readonly to change it",
                code="readonly",
            )
        with self._transaction("PRAGMA shrink_memory", "BEGIN IMMEDIATE") as connection:  # the id in the file
            self._require_in_place()
            yield connection
            self.connection.require_in_place(self.path)

    @contextmanager
    def _transaction(self, *begin: str) -> Iterator[sqlite3.Connection]:
        with self.lock:
            if self._is_closed:
                raise InputError(f"the model {self.path} is closed", hint="open it again", code="closed")
            try:
                for statement in begin:
                    self.connection.execute(statement)
                try:
                    yield self.connection
                    self.connection.execute("COMMIT")
                except BaseException:
                    if self.connection.in_transaction:
                        self.connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                found = storage_error(self.path / DATABASE, error)
                self._in_doubt |= found.code == UNCONFIRMED
                raise found from error

    def meta(self, key: str) -> str | None:
        """Return an entry of the table ``meta``."""
        row = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str | None) -> None:
        """Set an entry of the table ``meta`` within a transaction; None deletes it."""
        if value is None:
            self.connection.execute("DELETE FROM meta WHERE key = ?", (key,))
        else:
            self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def unsettled(self) -> str | None:
        """Return what is left to do after a commit: ``files``, or ``erase`` for free pages and the log as well."""
        with self.lock:
            return self.meta("unsettled")

    def confirm(self) -> None:
        """Move commits from the log to the database, and note the confirmed state in a file."""
        with self.lock:
            with suppress(_ReaderError):  # a reader needs the log: the next change moves the commits
                self._truncate_log(0)
            with self.writing():  # one process at a time, so that the number never decreases
                write_confirmed(self.path, Confirmed(self.id, state_number(self.meta("state"))))

    def try_confirm(self) -> None:
        """Confirm after a change. The change is stored in any case; if this fails, the next change confirms it."""
        try:
            self.confirm()
        except (FiveshotError, OSError, sqlite3.Error) as error:
            _log.warning("a change of %s is stored, but %s could not be written: %s", self.path, CONFIRMED, error)

    def settle(self, patience: float | None = None) -> None:
        """Update the files after a commit. After forgetting, also erase free pages and the log.

        ``patience`` is the number of seconds to wait for readers that need the log; by default ``TIMEOUT``.
        """
        with self.lock:
            try:
                self._update_files(TIMEOUT if patience is None else patience)
            except _ReaderError as error:
                raise self._traces_remain(error, "opened or changed") from error
            except LostModelError:
                raise
            except (FiveshotError, OSError, sqlite3.Error) as error:
                self._paused_until = time.monotonic() + PAUSE
                reason = error.__cause__ or error  # the message of a transaction would say that nothing is stored
                when = f"opened, or changed more than {PAUSE / 60:.0f} minutes from now"
                raise self._traces_remain(reason, when) from error
            self._paused_until = 0.0

    def _traces_remain(self, reason: BaseException, when: str) -> StorageError:
        return StorageError(
            f"traces of forgotten or replaced data remain in the files of {self.path} ({reason})",
            hint=f"they are removed when the model is next {when}",
            code="not_erased",
        )

    def try_settle(self) -> None:
        """Finish the work that an earlier change left, if that is possible now.

        After a failure that no reader caused, wait for a while: each try may rewrite the whole database.
        """
        if self.unsettled() and time.monotonic() >= self._paused_until:
            try:
                self.settle(PASSING)
            except LostModelError:
                raise
            except StorageError as error:
                _log.warning("%s", error)

    def _confirm_state(self) -> None:
        """Commit the present state again, over an unconfirmed commit in the log.

        Otherwise a crash could bring back the unconfirmed commit, which names files that are deleted by then.
        """
        with self.writing():
            self.set_meta("state", self.meta("state"))
        self._in_doubt = False

    def _update_files(self, patience: float) -> None:
        self._confirm_state()
        with self.writing():  # no other process is between writing a file and naming it in the database
            state, pending, text = self.meta("state"), self.meta("unsettled"), self.meta("manifest") or ""
            write_manifest_file(self.path, text)
            for orphan in orphans(self.path, Manifest.from_toml(text)):
                orphan.unlink(missing_ok=True)
        if pending == "erase":
            self._erase(patience)
        with self.writing():
            if self.meta("state") == state:  # otherwise another change may have left work since
                self.set_meta("unsettled", None)
                self.set_meta("manifest_before", None)
        if pending == "erase":
            with suppress(StorageError):  # the log holds only that
                self._truncate_log(0)

    def _erase(self, patience: float) -> None:
        # Do this first: otherwise a log that a reader needs would grow by the whole database.
        left = self._truncate_log(patience)
        vacuum(self.connection, self.path / DATABASE)
        self._truncate_log(left)

    def _truncate_log(self, patience: float) -> float:
        """Move the log into the database and cut it to zero bytes; return the remaining seconds of patience.

        Waits for readers that need the log.
        """
        began = time.monotonic()
        (usual,) = self.connection.execute("PRAGMA busy_timeout").fetchone()
        self.connection.execute("PRAGMA busy_timeout = 0")  # the waiting is done here
        try:
            while self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                if time.monotonic() - began > patience:
                    since = f"has been reading for more than {patience:.0f} s" if patience >= 1 else "is reading"
                    raise _ReaderError(f"another process {since}")
                time.sleep(0.01)
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {usual}")
        return max(0.0, patience - (time.monotonic() - began))

    def discard(self, files: Sequence[Path]) -> None:
        """Delete the files of a failed change, except files that the database names."""
        if not files:
            return
        # Lock as the writer, so that no other process names a file of the same content. If this fails, the files
        # stay and do no harm.
        with suppress(FiveshotError, OSError):
            if self._in_doubt:
                self._confirm_state()
            with self.writing():
                manifest = Manifest.from_toml(self.meta("manifest") or "")
                for file in set(orphans(self.path, manifest)) & set(files):
                    file.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the database."""
        with self.lock:
            self._is_closed = True
            self.connection.close()

    def _refuse_lost_changes(self, confirmed: Confirmed | None) -> None:
        if confirmed is None or confirmed.model != self.id:  # nothing was confirmed
            return
        error = lost_changes(self.path, confirmed, state_number(self.meta("state")))
        if error is not None:
            raise error

    def _check_manifest(self, found: str) -> None:
        """Refuse a ``model.toml`` that is not as the database has it, now or before the present change."""
        for _ in range(3):
            wanted = self.meta("manifest")
            if found == wanted or sha256(found.encode()).hexdigest() == self.meta("manifest_before"):
                return
            found = read_manifest_text(self.path)  # a writer may have replaced it just now
        read_manifest(self.path)  # says what is damaged
        raise StorageError(
            f"{self.path / MANIFEST} is not the one this model was made with", hint=REPAIR, code="damaged_manifest"
        )


def write_manifest_file(path: Path, text: str) -> None:
    """Write ``model.toml``, whole or not at all."""
    with atomic_path(path / MANIFEST) as temporary:
        temporary.write_bytes(text.encode())


def orphans(path: Path, manifest: Manifest) -> list[Path]:
    """Return files of earlier states and incomplete files that a killed process left behind."""
    wanted = {manifest.base.file, manifest.backbone.adapter}
    return sorted(file for file in path.iterdir() if _OURS.fullmatch(file.name) and file.name not in wanted)


def create_model(
    path: FilePath,
    manifest: Manifest,
    *,
    base: ClassStatistics = NO_CLASSES,
    adapter: FilePath | None = None,
    classes: Iterable[ClassRecord] = (),
    action: str = "create",
) -> Manifest:
    """Write a model to a directory that does not exist yet, or is empty, and return its manifest.

    It is written to a temporary directory and moved to its path when it is complete.
    """
    target = free_folder(path)
    work = part_beside(target)
    try:
        work.mkdir()
        if adapter is not None:
            name, content = place_adapter(work, adapter)
            backbone = replace(manifest.backbone, adapter=name, adapter_sha256=content)
            manifest = replace(manifest, backbone=backbone)
        manifest = manifest.with_base(write_base(work, base))
        with closing(create_database(work / DATABASE)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            first = Confirmed(secrets.token_hex(16), 1)
            notes = {"id": first.model, "state": str(first.state), "manifest": manifest.to_toml()}
            connection.executemany("INSERT INTO meta VALUES (?, ?)", notes.items())
            for one in classes:
                Tables(connection, manifest.backbone.width).insert_class(one)
            record(connection, action, at=timestamp(), undoable=False)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        write_manifest_file(work, manifest.to_toml())
        write_confirmed(work, first)
        work.replace(target)
    except StorageError:
        raise
    except sqlite3.Error as error:
        where = target / DATABASE
        raise storage_error(where, error, afterwards="nothing was left behind", in_doubt=False) from error
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot make {target}: {reason}", hint="nothing was left behind") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    confirm_place(target)
    return manifest


def free_folder(path: FilePath) -> Path:
    """Return the path for a new model, or raise an error if it cannot be used."""
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise StorageError(
            f"cannot make {target}: the folder {target.parent} does not exist", hint="create it first"
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        other = "choose another name, or remove it first"
        if (target / MANIFEST).is_file():
            other = f"to teach this model more, use fiveshot learn; for a new model, {other}"
        raise StorageError(f"{target} exists already", hint=other, code="exists")
    return target


def place_adapter(folder: Path, adapter: FilePath) -> tuple[str, str]:
    """Copy an adapter into the folder of a model; return its file name and SHA-256."""
    content = file_sha256(Path(adapter))
    name = f"adapter-{content[:16]}.safetensors"
    with atomic_path(folder / name) as temporary:
        shutil.copyfile(adapter, temporary)
    return name, content

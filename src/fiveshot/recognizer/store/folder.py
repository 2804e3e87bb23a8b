"""The directory of a model: its database, the files beside it, and the order in which they change."""

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
from fiveshot.recognizer.store.manifest import MANIFEST, REPAIR, Manifest, check_folder, read_manifest_file
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

TIMEOUT = 10.0  # seconds that a second writer waits for the first, and an erase for readers
PASSING = 0.1  # seconds that a change waits for readers that keep an earlier one from being erased
PAUSE = 300.0  # seconds after which a change tries again what failed for want of more than patience
_OURS = re.compile(
    r"(base|adapter)-[0-9a-f]{16}\.safetensors|\.(base|adapter|model\.toml|confirmed\.txt)[^/]*\.part|"
    r"\.tmp[0-9A-Za-z]{6}"  # safetensors' own, beside the file it writes
)
_log = logging.getLogger(__name__)


class _InTheWayError(StorageError):
    """A reader needs the log that is to be erased: a matter of time."""


class ModelFolder:
    """An open model directory. The database says what is in force; ``model.toml`` repeats it for people.

    A change writes new files first, commits, and only then replaces ``model.toml`` and deletes old files; what
    a kill in between leaves undone is finished by the next writer. ``repair`` takes ``model.toml`` as it is, and
    a database that has lost changes.
    """

    def __init__(
        self, path: Path, *, readonly: bool = False, timeout: float = TIMEOUT, repair: bool = False
    ) -> None:
        self.path: Path = path.absolute()
        self.readonly = readonly
        self.lock = threading.RLock()
        self.timeout, self._is_closed = timeout, False
        self._paused_until = 0.0  # when to finish in passing what failed before
        self._in_doubt = False  # whether the log may hold a commit that was not confirmed
        if not repair:
            check_folder(path)
            manifest = read_manifest_file(path)
        confirmed = None if repair else read_confirmed(path)
        self.connection = self._opened()
        try:
            self.id: str = self._stored_id()
            if not repair:
                with self.reading():
                    self._check_manifest(manifest)
                    self._refuse_lost_changes(confirmed)
                if not readonly:
                    self.settle_in_passing()
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
        """Refuse to go on where the database at the path is not the one that was opened."""
        self.connection.require_in_place(self.path)
        if self.meta("id") != self.id:  # another one was written over the file itself
            raise replaced(self.path)

    def _is_outdated(self) -> bool:
        return not self._is_closed and self.connection.is_outdated()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give a view of one state: what is committed meanwhile is not seen."""
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
        """Give the one writer's transaction: all of it is stored, on the disk, when the block ends well."""
        if self.readonly:
            raise InputError(
                f"{self.path} was opened to read only",
                hint="open it without readonly to change it",
                code="readonly",
            )
        with self._transaction("PRAGMA shrink_memory", "BEGIN IMMEDIATE") as connection:  # the id from the file
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
        """Return an entry of the database's own notes."""
        row = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str | None) -> None:
        """Note something within a transaction; None takes it away."""
        if value is None:
            self.connection.execute("DELETE FROM meta WHERE key = ?", (key,))
        else:
            self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def unsettled(self) -> str | None:
        """Return what has to follow the database: ``files``, or ``erase`` for free pages and the log too."""
        with self.lock:
            return self.meta("unsettled")

    def confirm(self) -> None:
        """Move what is committed out of the log, and note beside the database that it is there."""
        with self.lock:
            with suppress(_InTheWayError):  # a reader needs the log: the next change moves it
                self._truncate_log(0)
            with self.writing():  # one process at a time: the number never goes back
                write_confirmed(self.path, Confirmed(self.id, state_number(self.meta("state"))))

    def confirm_in_passing(self) -> None:
        """Do so after a change, which is stored in any case: where it cannot be done, the next change does it."""
        try:
            self.confirm()
        except (FiveshotError, OSError, sqlite3.Error) as error:
            _log.warning("a change of %s is stored, but %s could not be written: %s", self.path, CONFIRMED, error)

    def settle(self, patience: float | None = None) -> None:
        """Let the files follow the database and, after forgetting, leave no free page and no log behind.

        ``patience`` is how many seconds to wait for readers that need the log; ``TIMEOUT`` unless given.
        """
        with self.lock:
            try:
                self._let_files_follow(TIMEOUT if patience is None else patience)
            except _InTheWayError as error:
                raise self._traces_remain(error, "opened or changed") from error
            except LostModelError:
                raise
            except (FiveshotError, OSError, sqlite3.Error) as error:
                self._paused_until = time.monotonic() + PAUSE
                reason = error.__cause__ or error  # a transaction's own message would say that nothing is stored
                when = f"opened, or changed more than {PAUSE / 60:.0f} minutes from now"
                raise self._traces_remain(reason, when) from error
            self._paused_until = 0.0

    def _traces_remain(self, reason: BaseException, when: str) -> StorageError:
        return StorageError(
            f"traces of what was forgotten or replaced remain in the files of {self.path} ({reason})",
            hint=f"they are removed when the model is next {when}",
            code="not_erased",
        )

    def settle_in_passing(self) -> None:
        """Finish what an earlier change left undone, if that can be done now; if not, it is noted still.

        What failed for another reason than a reader is left alone for a while: each try may rewrite everything.
        """
        if self.unsettled() and time.monotonic() >= self._paused_until:
            try:
                self.settle(PASSING)
            except LostModelError:
                raise
            except StorageError as error:
                _log.warning("%s", error)

    def _confirm_state(self) -> None:
        """Commit the state in force again, over what a commit that was not confirmed left in the log.

        Else that one might be found there after a crash, and name files that were deleted meanwhile.
        """
        with self.writing():
            self.set_meta("state", self.meta("state"))
        self._in_doubt = False

    def _let_files_follow(self, patience: float) -> None:
        self._confirm_state()
        with self.writing():  # nobody else is between writing a file and naming it in the database
            state, pending, text = self.meta("state"), self.meta("unsettled"), self.meta("manifest") or ""
            write_manifest_file(self.path, text)
            for orphan in orphans(self.path, Manifest.from_toml(text)):
                orphan.unlink(missing_ok=True)
        if pending == "erase":
            self._erase(patience)
        with self.writing():
            if self.meta("state") == state:  # else another change may have left something since
                self.set_meta("unsettled", None)
                self.set_meta("manifest_before", None)
        if pending == "erase":
            with suppress(StorageError):  # the log holds no more than that
                self._truncate_log(0)

    def _erase(self, patience: float) -> None:
        # First: a log that a reader needs would only grow by the whole database.
        left = self._truncate_log(patience)
        vacuum(self.connection, self.path / DATABASE)
        self._truncate_log(left)

    def _truncate_log(self, patience: float) -> float:
        """Move the log into the database and cut it to zero bytes; return what is left of the patience.

        Readers that are in the way are waited for.
        """
        began = time.monotonic()
        (usual,) = self.connection.execute("PRAGMA busy_timeout").fetchone()
        self.connection.execute("PRAGMA busy_timeout = 0")  # the waiting is done here
        try:
            while self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                if time.monotonic() - began > patience:
                    since = f"has been reading for more than {patience:.0f} s" if patience >= 1 else "is reading"
                    raise _InTheWayError(f"another process {since}")
                time.sleep(0.01)
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {usual}")
        return max(0.0, patience - (time.monotonic() - began))

    def discard(self, files: Sequence[Path]) -> None:
        """Delete files of a change that failed; one that the database names after all stays."""
        if not files:
            return
        # As the writer: nobody else is about to name a file of the same content. Where not even this can be
        # done the files stay, and do no harm.
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
        if confirmed is None or confirmed.model != self.id:  # nothing is certain
            return
        error = lost_changes(self.path, confirmed, state_number(self.meta("state")))
        if error is not None:
            raise error

    def _check_manifest(self, found: str) -> None:
        for _ in range(3):
            wanted = self.meta("manifest")
            if found == wanted or sha256(found.encode()).hexdigest() == self.meta("manifest_before"):
                return
            found = read_manifest_file(self.path)  # a writer may just have replaced it
        raise StorageError(
            f"{self.path / MANIFEST} is not the one this model was made with", hint=REPAIR, code="damaged_manifest"
        )


def write_manifest_file(path: Path, text: str) -> None:
    """Write ``model.toml``, whole or not at all."""
    with atomic_path(path / MANIFEST) as temporary:
        temporary.write_bytes(text.encode())


def orphans(path: Path, manifest: Manifest) -> list[Path]:
    """Return files of earlier states, and half-written ones, that a kill left behind."""
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

    It is made beside its place and moved there when it is complete.
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
    """Return the place of a new model, or say why it cannot be there."""
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise StorageError(
            f"cannot make {target}: the folder {target.parent} does not exist", hint="create it first"
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        other = "choose another name, or remove it first"
        if (target / MANIFEST).is_file():
            other = f"it is a model, and fiveshot learn teaches it more; for a new one {other}"
        raise StorageError(f"{target} exists already", hint=other, code="exists")
    return target


def place_adapter(folder: Path, adapter: FilePath) -> tuple[str, str]:
    """Copy an adapter into the folder of a model; return the name of the file there, and its SHA-256."""
    content = file_sha256(Path(adapter))
    name = f"adapter-{content[:16]}.safetensors"
    with atomic_path(folder / name) as temporary:
        shutil.copyfile(adapter, temporary)
    return name, content

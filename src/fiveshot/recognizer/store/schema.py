"""The database of a model: tables with checks, durable connections, and a check that it was not replaced."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from urllib.parse import quote

from fiveshot.errors import StorageError

DATABASE = "classes.sqlite"
APPLICATION = 0x35534F54  # "5SOT": marks our databases
SCHEMA_VERSION = 7
_NO_INDEX = sqlite3.SQLITE_IOERR_SHMSIZE  # of the write-ahead log, in a file next to it
# The commit is in the log but was not confirmed: if the process dies now, the next one may find it there.
_NOT_SYNCED = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
_NOT_WRITTEN = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE, _NO_INDEX, *_NOT_SYNCED)
_NO_TEMPORARY_FILE = "temp_store = MEMORY"  # deleted data never get into another file
UNCONFIRMED = "unconfirmed"  # error code of a change that may or may not be stored
PAGE_SIZE = 8192  # the feature of a photo fits one page, up to some 2,000 values

SCHEMA = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE classes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    changed INTEGER NOT NULL CHECK (changed > 0),
    base INTEGER NOT NULL CHECK (base IN (0, 1)),
    name TEXT NOT NULL UNIQUE CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 200),
    count INTEGER NOT NULL CHECK (typeof(count) = 'integer' AND count > 0),
    created TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (typeof(digest) = 'blob' AND length(digest) = 16),
    mean BLOB NOT NULL CHECK (typeof(mean) = 'blob' AND length(mean) > 0 AND length(mean) % 4 = 0),
    factor BLOB NOT NULL CHECK (typeof(factor) = 'blob' AND length(factor) % length(mean) = 0)
);
CREATE INDEX classes_changed ON classes (changed);

CREATE TABLE photos (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    class_id INTEGER REFERENCES classes (id) ON DELETE CASCADE,
    held_by INTEGER REFERENCES changes (id) ON DELETE CASCADE CHECK ((held_by IS NULL) = (class_id IS NOT NULL)),
    sha256 TEXT NOT NULL CHECK (length(sha256) = 64),
    name TEXT CHECK (typeof(name) IN ('text', 'null') AND length(name) BETWEEN 1 AND 255),
    added TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (typeof(digest) = 'blob' AND length(digest) = 16),
    feature BLOB NOT NULL CHECK (typeof(feature) = 'blob' AND length(feature) > 0 AND length(feature) % 4 = 0)
);
CREATE INDEX photos_class ON photos (class_id);
CREATE INDEX photos_held ON photos (held_by) WHERE held_by IS NOT NULL;
CREATE INDEX photos_sha256 ON photos (sha256);

CREATE TABLE images (
    photo_id INTEGER PRIMARY KEY REFERENCES photos (id) ON DELETE CASCADE,
    thumbnail BLOB CHECK (typeof(thumbnail) IN ('blob', 'null') AND length(thumbnail) > 0),
    original BLOB CHECK (typeof(original) IN ('blob', 'null') AND length(original) > 0)
);

CREATE TABLE history (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action IN
        ('create', 'import', 'learn', 'add', 'forget', 'remove', 'move', 'correct', 'none', 'review', 'keep',
         'dismiss', 'rename', 'set', 'merge', 'retune', 'undo')),
    undoable INTEGER NOT NULL CHECK (undoable IN (0, 1)),
    undone_by INTEGER REFERENCES history (seq) ON DELETE SET NULL,
    detail TEXT NOT NULL
);

CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    seq INTEGER NOT NULL REFERENCES history (seq) ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('added', 'grown', 'reduced', 'came', 'left', 'removed', 'renamed')),
    base INTEGER NOT NULL CHECK (base IN (0, 1)),
    class_id INTEGER,
    name TEXT NOT NULL,
    old_name TEXT CHECK ((old_name IS NOT NULL) = (kind = 'renamed')),
    photos INTEGER NOT NULL CHECK (photos >= 0),
    created TEXT,
    before BLOB
);
CREATE INDEX changes_seq ON changes (seq);
CREATE INDEX changes_class ON changes (class_id);

CREATE TABLE touched (
    change_id INTEGER NOT NULL REFERENCES changes (id) ON DELETE CASCADE,
    photo_id INTEGER NOT NULL REFERENCES photos (id) ON DELETE CASCADE,
    PRIMARY KEY (change_id, photo_id)
) WITHOUT ROWID;
CREATE INDEX touched_photo ON touched (photo_id);

CREATE TABLE kept (
    photo_id INTEGER NOT NULL REFERENCES photos (id) ON DELETE CASCADE,
    class_id INTEGER NOT NULL,
    finding TEXT NOT NULL CHECK (length(finding) BETWEEN 1 AND 40),
    photos INTEGER NOT NULL CHECK (photos > 0),
    PRIMARY KEY (photo_id, class_id, finding)
) WITHOUT ROWID;

CREATE TABLE sightings (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hidden_by INTEGER REFERENCES history (seq) ON DELETE CASCADE,
    clock REAL NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes > 0),
    seen TEXT NOT NULL,
    source TEXT NOT NULL,
    region TEXT NOT NULL,
    prediction TEXT NOT NULL,
    sha256 TEXT NOT NULL CHECK (length(sha256) = 64),
    digest BLOB NOT NULL CHECK (typeof(digest) = 'blob' AND length(digest) = 16),
    feature BLOB NOT NULL CHECK (typeof(feature) = 'blob' AND length(feature) > 0 AND length(feature) % 4 = 0)
);
CREATE INDEX sightings_hidden ON sightings (hidden_by) WHERE hidden_by IS NOT NULL;

CREATE TABLE sighting_images (
    sighting_id INTEGER PRIMARY KEY REFERENCES sightings (id) ON DELETE CASCADE,
    thumbnail BLOB NOT NULL CHECK (typeof(thumbnail) = 'blob' AND length(thumbnail) > 0),
    original BLOB NOT NULL CHECK (typeof(original) = 'blob' AND length(original) > 0)
);
"""
GONE, REPLACED = "model_gone", "model_replaced"


def create_database(path: Path) -> sqlite3.Connection:
    """Make an empty database in a folder that no other process uses yet."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute("PRAGMA journal_mode = WAL")
        _prepare(connection)
        marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA_VERSION};"
        connection.executescript(f"BEGIN; {marks} {SCHEMA} COMMIT;")  # waits for the disk only once
    except BaseException:
        connection.close()
        raise
    return connection


def vacuum(connection: sqlite3.Connection, path: Path) -> None:
    """Rewrite the database without free pages and without unused bytes in other pages."""
    # A copy in memory would be as large as the database. SQLite deletes the name of its temporary file before it
    # writes, so a killed process leaves no file behind. The file holds only present data.
    connection.execute("PRAGMA temp_store = FILE")
    try:
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        if not _is_full(path, error) and _extended(error) not in _NOT_WRITTEN:
            raise
        raise StorageError(
            f"no room to rewrite it ({error}): that takes {path.stat().st_size / 1e6:,.0f} MB in {path.parent} "
            f"and as much in {_temporary_folder()}, or where SQLITE_TMPDIR says when the program starts"
        ) from None
    finally:
        connection.execute(f"PRAGMA {_NO_TEMPORARY_FILE}")


def _temporary_folder() -> str:
    """Return the folder of SQLite's temporary files."""
    named = (os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp")
    return next((one for one in named if one and os.access(one, os.W_OK | os.X_OK)), ".")


def open_database(path: Path, *, readonly: bool, timeout: float) -> ModelConnection:
    """Open the database of a model; refuse one that is missing, foreign, damaged or newer."""
    if not path.is_file():
        raise StorageError(f"no such file: {path}", hint="the model is incomplete: restore it from a copy")
    try:
        connection = _connected(path, readonly, timeout)
    except sqlite3.Error as error:
        raise storage_error(path, error) from error
    try:
        check_version(connection, path)
        _prepare(connection)
        if readonly:
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        connection.close()
        raise storage_error(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database of another program or of a newer release."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StorageError(
            f"{path} is not the database of a fiveshot model, or it is damaged", hint="restore it from a copy"
        )
    if version != SCHEMA_VERSION:
        raise StorageError(
            f"{path} has format {version}, this release reads {SCHEMA_VERSION}",
            hint="use the release that made it, or upgrade with: pip install --upgrade fiveshot",
            code="other_format",
        )


def storage_error(
    path: Path, error: sqlite3.Error, *, afterwards: str = "the model is unchanged", in_doubt: bool = True
) -> StorageError:
    """Return a database error with a hint what to do; ``afterwards`` describes the state of the model.

    ``in_doubt``: the disk did not confirm a change, but it may be stored.
    """
    code, folder = _code(error), path.parent
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(
            f"another process is writing to {folder}", hint="wait until it is done and try again", code="busy"
        )
    if code == sqlite3.SQLITE_CANTOPEN and not os.access(folder, os.W_OK):
        return StorageError(f"cannot write to {folder}: it is read-only or not writable", hint=afterwards)
    if code == sqlite3.SQLITE_CANTOPEN:
        return StorageError(f"cannot open {path}: no permission, or its log cannot be read")
    if in_doubt and _extended(error) in _NOT_SYNCED:
        return StorageError(
            f"the disk did not confirm the change of {path} ({error}): it may or may not be stored",
            hint="run fiveshot check MODEL, and look at the model before you repeat the change",
            code=UNCONFIRMED,
        )
    if _is_full(path, error):
        return StorageError(f"cannot write {path}: the disk is full", hint=afterwards, code="disk_full")
    if _extended(error) in _NOT_WRITTEN:
        return StorageError(
            f"cannot write {path} ({error}): a quota or another limit on the size of files is reached, or the "
            "disk fails",
            hint=afterwards,
        )
    if code == sqlite3.SQLITE_READONLY:
        return StorageError(f"cannot write {path}: it is read-only, or was opened read-only", hint=afterwards)
    if isinstance(error, sqlite3.IntegrityError):
        return StorageError(f"{path} refused the change ({error})", hint=afterwards)
    return StorageError(
        f"{path} cannot be read ({error})", hint="run: fiveshot check MODEL, or restore it from a copy"
    )


def _extended(error: sqlite3.Error) -> int:
    """Return SQLite's number for an error; -1 for an error of the Python module."""
    return getattr(error, "sqlite_errorcode", -1)


def _code(error: sqlite3.Error) -> int:
    """Return the primary part of SQLite's number for an error."""
    return _extended(error) & 0xFF


def _is_full(path: Path, error: sqlite3.Error) -> bool:
    # SQLite reports this for its files, but not for the index of its log.
    if _extended(error) != _NO_INDEX:
        return _code(error) == sqlite3.SQLITE_FULL
    folder = next(parent for parent in path.parents if parent.exists())  # the folder of a new model may be gone
    return not shutil.disk_usage(folder).free


def _connected(path: Path, readonly: bool, timeout: float) -> ModelConnection:
    # A reader of a write-ahead log needs the log's index next to it. The database is opened as unchanging only if
    # no index can be written and no log holds changes.
    look, file = file_state(path), file_number(path)
    settled = not look[-1]
    modes = ["mode=rw", "mode=ro", *(["mode=ro&immutable=1"] * settled)] if readonly else ["mode=rw"]
    for mode in modes:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path.resolve()))}?{mode}",
            uri=True,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=ModelConnection,
        )
        connection.path, connection.file = path.absolute(), file
        connection.look = look if "immutable" in mode else None
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except UnicodeDecodeError as error:  # a damaged schema, in the text of SQLite's own error
            connection.close()
            raise sqlite3.DatabaseError("its schema is damaged") from error
        except sqlite3.OperationalError as error:
            connection.close()
            unwritable = _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
            if mode == modes[-1] or not (unwritable or _extended(error) == _NO_INDEX):
                raise
        else:
            if file_number(path) != file:  # it is not known which of the two was opened
                connection.close()
                raise StorageError(f"{path} was replaced while it was opened", hint="try again", code="changed")
            return connection
    raise AssertionError("the last mode returns or raises")


def _prepare(connection: sqlite3.Connection) -> None:
    for setting in (
        "foreign_keys = ON",
        "synchronous = FULL",  # a commit is on the disk before the call returns
        "secure_delete = ON",  # deleted data are overwritten with zeros
        _NO_TEMPORARY_FILE,
        "trusted_schema = OFF",
        "cell_size_check = ON",
    ):
        connection.execute(f"PRAGMA {setting}")


def file_state(path: Path) -> tuple[int, ...]:
    """Return values that change with the database: number, size and time of its file, and the size of its log."""
    log = path.with_name(f"{path.name}-wal")
    try:
        found = path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns, log.stat().st_size if log.is_file() else 0
    except OSError:
        return (-1,)


class LostModelError(StorageError):
    """Raised when the folder of an open model was removed or replaced. Nothing was written to the new folder.

    ``code`` is ``model_gone`` or ``model_replaced``.

    Examples
    --------
    >>> import shutil
    >>> import tempfile
    >>> from fiveshot.recognizer import LostModelError, Recognizer
    >>> folder = tempfile.mkdtemp()
    >>> with Recognizer.create(folder) as birds:
    ...     shutil.rmtree(folder)
    ...     try:
    ...         birds.refresh()
    ...     except LostModelError as error:
    ...         print(error.code)
    model_gone
    """

    default_code = REPLACED

    @property
    def is_gone(self) -> bool:
        """Whether the path is empty; otherwise another model is there."""
        return self.code == GONE


class ModelConnection(sqlite3.Connection):
    """A connection that knows which file it opened. SQLite makes the same comparison before it deletes a log."""

    path: Path
    file: tuple[int, int] | None  # device and inode
    # State of the file before it was opened without a lock, in a folder where no lock can be written.
    look: tuple[int, ...] | None = None

    def is_outdated(self) -> bool:
        """Return whether a database that is read without a lock was changed; the data may be inconsistent."""
        return self.look is not None and file_state(self.path) != self.look

    def require_in_place(self, folder: Path) -> None:
        """Refuse a database that was removed, moved or replaced since it was opened."""
        try:
            number = file_number(self.path)
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror or error}") from error
        if number != self.file:
            raise gone(folder) if number is None else replaced(folder)


def changed_meanwhile(path: Path) -> StorageError:
    """Return the error for a read from an outdated connection."""
    return StorageError(
        f"{path} was changed while it was read, and no lock could be written", hint="try again", code="changed"
    )


def file_number(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is no file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def gone(folder: Path) -> LostModelError:
    """Return the error for a folder that no longer exists."""
    return LostModelError(
        f"the model {folder} was removed or moved while it was open",
        hint="nothing was stored: move it back, or open it at its new path",
        code=GONE,
    )


def replaced(folder: Path) -> LostModelError:
    """Return the error for a folder that holds another database now."""
    return LostModelError(
        f"the model {folder} was replaced while it was open",
        hint="nothing was stored: open the model that is there now",
        code=REPLACED,
    )

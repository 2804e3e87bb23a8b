"""Read a database where not even a lock can be written: as one that nobody changes, while it looks the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fiveshot.errors import StorageError


class FrozenConnection(sqlite3.Connection):
    """A connection that takes its database as one that nobody changes."""

    path: Path
    look: tuple[int, ...]  # of the database before it was opened


def look_of(path: Path) -> tuple[int, ...]:
    """Return what changes when a database does: its file's number, size and time, and last the size of its log."""
    log = path.with_name(f"{path.name}-wal")
    try:
        found = path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns, log.stat().st_size if log.is_file() else 0
    except OSError:
        return (-1,)


def is_outdated(connection: sqlite3.Connection) -> bool:
    """Tell whether somebody changed the database after all: what this connection reads may be torn."""
    return isinstance(connection, FrozenConnection) and look_of(connection.path) != connection.look


def changed_meanwhile(path: Path) -> StorageError:
    """Return the error for what was read from an outdated connection."""
    return StorageError(f"{path} was changed while it was read, and there was no room for a lock; try again")

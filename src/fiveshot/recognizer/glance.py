"""Read the class names and the state of a model without opening it and without NumPy.

If there is no model, or it cannot be read now, the result is empty; no error is raised.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiveshot.errors import FiveshotError, StorageError
from fiveshot.recognizer.store.manifest import MANIFEST
from fiveshot.recognizer.store.schema import DATABASE, file_state, open_database, storage_error

if TYPE_CHECKING:
    from fiveshot.storage import FilePath

WAIT = 0.2  # seconds to wait for a process that writes


def is_model(path: FilePath) -> bool:
    """Return whether there is a model in a directory.

    >>> is_model("no such folder")
    False
    """
    return (Path(path) / MANIFEST).is_file()


def stored_names(model: Path) -> list[str]:
    """Return the names of the classes that were learned, sorted.

    >>> stored_names(Path("no such folder"))
    []
    """
    return [name for (name,) in _rows(model, "SELECT name FROM classes ORDER BY name")]


def stored_state(model: Path) -> int | None:
    """Return the number of a model's state, which grows with every change; None if no model can be read.

    >>> stored_state(Path("no such folder")) is None
    True
    """
    rows = _rows(model, "SELECT value FROM meta WHERE key = 'state'")
    return int(rows[0][0]) if rows else None


def database_state(model: Path) -> tuple[int, ...]:
    """Return numbers that change while the database of a model is written or copied."""
    return file_state(model / DATABASE)


def database_error(model: Path, error: sqlite3.Error) -> StorageError:
    """Return the error for a model that an SQLite error stands for, with a hint."""
    return storage_error(model / DATABASE, error)


def _rows(model: Path, query: str) -> list[tuple[Any, ...]]:
    try:
        with closing(open_database(model / DATABASE, readonly=True, timeout=WAIT)) as connection:
            return connection.execute(query).fetchall()
    except (FiveshotError, OSError, sqlite3.Error):
        return []

"""Whether the database that a connection has open is still the one at its path."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fiveshot.errors import StorageError

GONE, REPLACED = "model_gone", "model_replaced"


class LostModelError(StorageError):
    """Raised when the folder of an open model was removed or replaced; nothing was written to the new one.

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


class ModelConnection(sqlite3.Connection):
    """A connection that knows which file it has open. SQLite makes the same comparison before it deletes a log."""

    path: Path | None = None
    file: tuple[int, int] | None = None  # device and inode; None until it is known

    def is_in_place(self) -> bool:
        """Tell whether the file that is open is the one at the path."""
        try:
            return self.file is None or self.path is None or self.file == file_number(self.path)
        except OSError:
            return False


def file_number(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None where there is no file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def require_in_place(connection: sqlite3.Connection, folder: Path) -> None:
    """Refuse a database that was removed, moved away or replaced since it was opened."""
    if not isinstance(connection, ModelConnection) or connection.is_in_place():
        return
    assert connection.path is not None
    try:
        number = file_number(connection.path)
    except OSError as error:
        raise StorageError(f"cannot read {connection.path}: {error.strerror or error}") from error
    raise gone(folder) if number is None else replaced(folder)


def gone(folder: Path) -> LostModelError:
    """Return the error for a folder that is not there any more."""
    return LostModelError(
        f"the model {folder} was removed or moved away while it was open",
        hint="nothing was stored: put it back, or open it where it is now",
        code=GONE,
    )


def replaced(folder: Path) -> LostModelError:
    """Return the error for a folder that holds another database by now."""
    return LostModelError(
        f"the model {folder} was replaced while it was open",
        hint="nothing was stored: open the model that is there now",
        code=REPLACED,
    )

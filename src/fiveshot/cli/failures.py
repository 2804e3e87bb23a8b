"""What ends a command early: Ctrl-C, and what the system refuses where nobody foresaw it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from fiveshot.errors import FiveshotError, StorageError

Given = ParamSpec("Given")
Result = TypeVar("Result")

KEPT = "what was finished is kept, and the same command goes on from there"


class Stopped(Exception):  # noqa: N818  # an interrupt is not an error
    """A command was stopped by Ctrl-C; the text says what has become of its work."""


def when_stopped(text: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Make a command say this when it is stopped.

    >>> @when_stopped("half of the table is laid")
    ... def lay_the_table():
    ...     raise KeyboardInterrupt
    >>> lay_the_table()
    Traceback (most recent call last):
    fiveshot.cli.failures.Stopped: half of the table is laid
    """

    def decorate(command: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(command)
        def run(*arguments: Given.args, **options: Given.kwargs) -> Result:
            try:
                return command(*arguments, **options)
            except KeyboardInterrupt:
                raise Stopped(text) from None

        return run

    return decorate


@contextmanager
def system_errors_told(model: Path | None = None) -> Iterator[None]:
    """Turn what the system refuses in this block into a ``StorageError`` that names the file and the reason.

    Errors of the program keep their traceback.

    >>> with system_errors_told():
    ...     open("no/such/file")
    Traceback (most recent call last):
    fiveshot.errors.StorageError: cannot use no/such/file: No such file or directory
    """
    try:
        yield
    except (FiveshotError, BrokenPipeError):  # the second is not an error: the reader has seen enough
        raise
    except Exception as error:
        told = _of_files(error, model) if isinstance(error, OSError) else _of_database(error, model)
        if told is None:
            raise
        raise told from error


def _of_files(error: OSError, model: Path | None) -> StorageError:
    reason = " ".join((error.strerror or str(error) or type(error).__name__).split())
    if isinstance(error.filename, str | bytes):
        return StorageError(f"cannot use {os.fsdecode(error.filename)}: {reason}")
    return StorageError(f"cannot go on{f' with {model}' if model else ''}: {reason}")


def _of_database(error: Exception, model: Path | None) -> StorageError | None:
    sqlite3 = sys.modules.get("sqlite3")  # nothing is an error of a database before it is imported
    if sqlite3 is None or not isinstance(error, sqlite3.Error):
        return None
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return None
    if model is None:
        return StorageError(f"a database cannot be used: {error}")
    from fiveshot.recognizer.store.schema import DATABASE, storage_error

    return storage_error(model / DATABASE, error)

"""What goes wrong while watching: said when it begins and when it is over, and not once in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from fiveshot.errors import InputError, StorageError

SOURCE, MODEL, OUT, COMMAND, BROKER = "source", "model", "out", "command", "broker"  # what may be in trouble


@dataclass(frozen=True)
class Notice:
    """Something went wrong, or does no more: ``event`` is trouble, recovered or unreadable."""

    event: str
    time: str  # UTC, ISO 8601
    about: str
    message: str


def utc_now() -> str:
    """Return the time as it stands in every line."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Notices:
    """Keeps which troubles there are. Threads may share one.

    >>> notices = Notices(lambda notice: print(notice.event, notice.about, notice.message))
    >>> notices.trouble(SOURCE, "the folder is gone"), notices.trouble(SOURCE, "the folder is gone")
    trouble source the folder is gone
    (None, None)
    >>> notices.over(SOURCE, "the folder is back"), notices.over(SOURCE, "the folder is back")
    recovered source the folder is back
    (None, None)
    """

    def __init__(self, tell: Callable[[Notice], None]) -> None:
        self._call = tell
        self._present: set[str] = set()
        self._lock = threading.RLock()

    def trouble(self, about: str, message: str) -> None:
        """Say that something does not work, unless that was said."""
        with self._lock:
            if about not in self._present:
                self._present.add(about)
                self._tell("trouble", about, message)

    def over(self, about: str, message: str) -> None:
        """Say that it works again, if it did not."""
        with self._lock:
            if about in self._present:
                self._present.remove(about)
                self._tell("recovered", about, message)

    def unreadable(self, message: str) -> None:
        """Say that a photo was given up."""
        with self._lock:
            self._tell("unreadable", SOURCE, message)

    def _tell(self, event: str, about: str, message: str) -> None:
        self._call(Notice(event, utc_now(), about, message))

    def has(self, about: str) -> bool:
        """Tell whether something is in trouble now."""
        return about in self._present


def read_credentials(text: str | None, *, where: str) -> tuple[str, str] | None:
    """Return user and password of ``user:password``, the first line of a file or the value of a variable.

    >>> read_credentials("ann:a:b\\n", where="NAME"), read_credentials(None, where="NAME")
    (('ann', 'a:b'), None)
    """
    if text is None:
        return None
    user, colon, password = text.partition("\n")[0].strip().partition(":")
    if not (user and colon):
        raise InputError(f"{where} does not hold user:password", hint="write both with a colon between them")
    return user, password


def credentials(file: str | None, variable: str, environment: dict[str, str]) -> tuple[str, str] | None:
    """Return user and password from a file, or from a variable of the environment where no file is given."""
    if file is None:
        return read_credentials(environment.get(variable), where=variable)
    try:
        with open(file, encoding="utf-8") as opened:  # noqa: PTH123  # /dev/fd/3 is a name, too
            return read_credentials(opened.read(4096), where=file)
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not text in UTF-8", hint="write user:password into it") from error

"""Processes that this one starts import nothing from the folder that it was started in."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""What a Python in this environment does not import from: the folder that it is started in."""


@contextmanager
def safe_children() -> Iterator[None]:
    """Let every Python that is started inside the block, by whichever library, leave the current folder alone.

    ``python -c`` and ``python -m``, with which pools of processes, fork servers and resource trackers begin, look
    there first: a file ``json.py`` among somebody's photos would be run. Blocks of several threads may overlap.

    Examples
    --------
    >>> import subprocess
    >>> with safe_children():
    ...     program = [sys.executable, "-c", "import sys; print(sys.flags.safe_path)"]
    ...     subprocess.run(program, capture_output=True, text=True).stdout
    'True\\n'
    """
    _SAFETY.enter()
    try:
        yield
    finally:
        _SAFETY.leave()


def safe_path() -> list[str]:
    """Return where this process imports from, but for the folder that it runs in.

    Returns
    -------
    list of str
        Absolute folders and archives, fiveshot's own among them.

    Examples
    --------
    >>> "" in safe_path()
    False
    """
    own, here = str(Path(__file__).parents[1]), None
    with suppress(OSError):  # a folder that was deleted
        here = Path.cwd()
    path = [entry for entry in sys.path if Path(entry).is_absolute() and Path(entry).resolve() != here]
    return path if own in path else [*path, own]


class _Safety:
    """The environment is that of the whole process: the first to enter sets it, the last to leave puts it back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._before: dict[str, str | None] = {}

    def enter(self) -> None:
        with self._lock:
            if not self._users:
                self._before = {name: os.environ.get(name) for name in SAFE_PATH}
                os.environ.update(SAFE_PATH)
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            for name, value in self._before.items() if not self._users else ():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


_SAFETY = _Safety()

"""Threads, child processes and progress."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar

LIBRARIES = ("numpy", "scipy.linalg", "sklearn", "torch")  # their import adds pools of threads
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""With this environment, Python does not import from the folder in which it starts."""


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    call: Callable[[Item], Result], items: Iterable[Item], *, threads: int, ahead: int
) -> Iterator[Result]:
    """Yield ``call(item)`` for each item, in order, while threads work on the next ``ahead`` items.

    Examples
    --------
    >>> from fiveshot.work import in_order
    >>> list(in_order(abs, [-1, 2, -3], threads=2, ahead=2))
    [1, 2, 3]
    """
    pool, waiting = ThreadPoolExecutor(threads), deque[Future[Result]]()
    try:
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def one_for_each(call: Callable[[Item], Result], items: Iterable[Item], *, threads: int) -> Iterator[Result]:
    """Yield ``call(item)`` of a numerical call for each item, in order; each thread works on one item.

    With one thread, the calls run in the caller's thread, and BLAS may use all cores for each.

    Examples
    --------
    >>> from fiveshot.work import one_for_each
    >>> list(one_for_each(abs, [-1, 2, -3], threads=2))
    [1, 2, 3]
    """
    if threads <= 1:
        yield from map(call, items)
        return
    with one_thread():
        yield from in_order(call, items, threads=threads, ahead=2 * threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, and PyTorch if it is loaded, to one thread for each call inside the block.

    Small matrices are slower on several threads, and several calls with one thread each use the cores better than
    one call with several. Blocks of several threads may overlap; the last one to end restores the old numbers.

    Examples
    --------
    >>> import numpy as np
    >>> with one_thread():
    ...     float((np.eye(3) @ np.eye(3)).sum())
    3.0
    """
    own = _ONE_THREAD.enter()
    try:
        yield
    finally:
        _ONE_THREAD.leave(own)


def blas_threads() -> int:
    """Return how many threads a numerical call may use now; it is 1 inside :func:`one_thread`.

    Examples
    --------
    >>> from fiveshot.work import blas_threads, one_thread
    >>> with one_thread():
    ...     blas_threads()
    1
    """
    pools = _pools(_loaded())
    return max((pool.get_num_threads() for pool in pools), default=1)


def library_imported() -> None:
    """Limit a library that was imported inside a :func:`one_thread` block, too."""
    _ONE_THREAD.limit_pools()


class _OneThread:
    """Counts the blocks that are open, and sets and restores the numbers of threads.

    A BLAS pool has one number for the whole process. PyTorch has one for the thread that sets it and for all
    threads that start later. So each thread gets its own number back,
    and the last one restores the number for new threads.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._pools: list[tuple[Any, int]] = []  # of BLAS, each with its former number
        self._before: int | None = None  # PyTorch's former number, for threads that start later

    def enter(self) -> int | None:
        """Return PyTorch's number for this thread, or None if this thread has nothing to restore."""
        with self._lock:
            inside = self._users > 0
            self._users += 1
            if not inside:
                self._pools = []
                self._limit_pools()
            torch = sys.modules.get("torch")
            if torch is None:
                return None
            own = int(torch.get_num_threads())
            if self._before is None:
                self._before = own
            torch.set_num_threads(1)
            return None if inside and own == 1 else own

    def limit_pools(self) -> None:
        """Limit new pools if a block is open."""
        with self._lock:
            if self._users:
                self._limit_pools()

    def _limit_pools(self) -> None:
        known = {pool.filepath for pool, _ in self._pools}
        for pool in _pools(_loaded()):
            if pool.filepath not in known:
                self._pools.append((pool, pool.get_num_threads()))
                _set_threads(pool, 1)

    def leave(self, own: int | None) -> None:
        """Restore the numbers, except those that other open blocks still limit."""
        with self._lock:
            self._users -= 1
            before = self._before
            if not self._users:
                self._before = None
                for pool, threads in self._pools:
                    _set_threads(pool, threads)
            torch = sys.modules.get("torch")
            if torch is None or before is None:
                return
            later = 1 if self._users else before
            torch.set_num_threads(later if own is None else own)
            if own not in (None, later):  # this also set the number for new threads: set it again
                again = Thread(target=torch.set_num_threads, args=(later,))
                again.start()
                again.join()


def _set_threads(pool: Any, threads: int) -> None:
    """Set the number of threads of a pool, from any thread."""
    release = getattr(pool, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    pool.set_num_threads(threads)
    if release is not None:
        release(force=True)


def _loaded() -> tuple[bool, ...]:
    return tuple(name in sys.modules for name in LIBRARIES)


@cache
def _pools(loaded: tuple[bool, ...]) -> list[Any]:
    """Return the BLAS pools of this process; the search runs once for each set of loaded libraries.

    Pools of OpenMP are left out: they have a number for each thread, not for the process.
    """
    from threadpoolctl import ThreadpoolController

    pools: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return [pool for pool in pools if getattr(pool, "threading_layer", None) != "openmp"]


_ONE_THREAD = _OneThread()


@contextmanager
def safe_children() -> Iterator[None]:
    """Keep every Python that starts inside the block from importing from the current folder.

    Process pools, fork servers and resource trackers start with ``python -c`` or ``python -m``, which look there
    first: a file ``json.py`` among somebody's photos would be run. Blocks of several threads may overlap.

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
    """Return the import path of this process without the current folder.

    Returns
    -------
    list of str
        Absolute folders and archives, including the one with fiveshot.

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


class _SafeEnvironment:
    """Sets variables of the environment when the first block begins, and restores them when the last one ends."""

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


_SAFETY = _SafeEnvironment()


class Progress(Protocol):
    """Called after each step with the number of finished steps and the number of all steps.

    Examples
    --------
    >>> def printed(done: int, total: int) -> None:
    ...     print(f"{done} of {total}")
    >>> tell: Progress = printed
    >>> tell(3, 5)
    3 of 5
    """

    def __call__(self, done: int, total: int, /) -> None:
        """Report the progress."""

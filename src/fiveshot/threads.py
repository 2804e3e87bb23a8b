"""One thread for each call of a numerical library, while several calls run beside each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, Thread
from typing import Any

LIBRARIES = (
    "numpy",
    "scipy.linalg",
    "sklearn",
    "torch",
    "faiss",
)  # which bring pools of threads when they are imported


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS, and PyTorch where it is loaded, use one thread for each call inside the block.

    Small matrices are slower on several threads, and several calls of one thread each use the cores better than
    one call of several. Blocks of several threads may overlap: the last to leave puts back what was before.

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


def library_imported() -> None:
    """Let a library that was imported inside such a block use one thread, too."""
    _pools.cache_clear()
    _ONE_THREAD.limit_pools()


class _OneThread:
    """The pools of BLAS have one number for the process; PyTorch's is that of the thread that sets it.

    PyTorch's is also that of all threads that begin later: each thread has its own number back, and the last one
    puts back that of the process.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._pools: list[tuple[Any, int]] = []  # of BLAS, each with its number before
        self._before: int | None = None  # PyTorch's number of the first, and of threads that begin later

    def enter(self) -> int | None:
        """Return PyTorch's number of this thread, or None where there is nothing to put back for it alone."""
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
        """Limit the pools that have come since, if anybody is inside."""
        with self._lock:
            if self._users:
                self._limit_pools()

    def _limit_pools(self) -> None:
        known = {pool.filepath for pool, _ in self._pools}
        for pool in _pools(tuple(name in sys.modules for name in LIBRARIES)):
            if pool.filepath not in known:
                self._pools.append((pool, pool.get_num_threads()))
                _set_threads(pool, 1)

    def leave(self, own: int | None) -> None:
        """Put back what was before, as far as nobody else is inside."""
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
            if own not in (None, later):  # that was for this thread: those that begin later are to have theirs
                again = Thread(target=torch.set_num_threads, args=(later,))
                again.start()
                again.join()


def _set_threads(pool: Any, threads: int) -> None:
    """Set the number of a pool, from whichever thread: which blocks overlap is counted here."""
    release = getattr(pool, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    pool.set_num_threads(threads)
    if release is not None:
        release(force=True)


@cache
def _pools(loaded: tuple[bool, ...]) -> list[Any]:
    """Return the pools of BLAS in this process, looked for once for each set of libraries that are loaded."""
    from threadpoolctl import ThreadpoolController

    pools: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return pools


_ONE_THREAD = _OneThread()

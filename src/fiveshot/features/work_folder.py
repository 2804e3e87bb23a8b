"""A folder that one process at a time works in, and that is gone once the work is done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fiveshot.errors import StorageError

LOCK = "lock"


@contextmanager
def work_folder(path: Path) -> Iterator[Path]:
    """Make the folder, or take over what a killed process left in it; wait while another one works in it.

    The folder is deleted when the block ends well. After an error or a kill it stays, to be taken over.

    >>> import tempfile
    >>> with work_folder(Path(tempfile.mkdtemp()) / "work") as folder:
    ...     _ = (folder / "part").write_text("half")
    >>> folder.exists()
    False
    """
    descriptor = _locked(path)
    try:
        yield path
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    """Return a descriptor that holds the lock until it is closed, by us or by the end of the process."""
    while True:
        try:
            path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # another process has just finished and deleted the folder
        except OSError as error:
            raise StorageError(
                f"cannot keep finished parts in {path}: {error.strerror or error}; choose another place"
            ) from error
        _wait_for(descriptor)
        try:
            if os.path.samestat(os.fstat(descriptor), (path / LOCK).stat()):
                return descriptor
        except FileNotFoundError:
            pass  # as above, while we waited
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks here: two processes would do the same work twice, unharmed
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)

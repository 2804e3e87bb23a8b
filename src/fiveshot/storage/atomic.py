"""Write a file so that a reader sees the old one or the new one, never a part."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fiveshot.errors import StorageError


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` that takes its place when the block ends well.

    When the block fails, whatever the reason (a full disk, a kill signal turned into an exception), the
    temporary file is removed and ``target`` stays as it was.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with atomic_path(folder / "note.txt") as path:
    ...     _ = path.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    target = Path(target)
    if not target.parent.is_dir():
        raise StorageError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    temporary = part_beside(target)
    try:
        mode = _create(temporary)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}") from error
    try:
        yield temporary
        _flush_to_disk(temporary)
        temporary.chmod(mode)  # some libraries put a file of their own in its place
        temporary.replace(target)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}; nothing was left behind") from error
    finally:
        temporary.unlink(missing_ok=True)
    confirm_place(target)


def part_beside(target: Path) -> Path:
    """Return a hidden name in the same folder that nobody else uses, for what becomes ``target`` when complete.

    >>> part_beside(Path("birds/model.toml"))
    PosixPath('birds/.model.toml....part')
    """
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")


def confirm_place(target: Path) -> None:
    """Flush the new name of a file or folder to the disk; where that fails, it is in place nevertheless.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "note.part").write_text("whole")
    >>> confirm_place((folder / "note.part").rename(folder / "note.txt"))
    """
    try:
        _flush_to_disk(target.parent)
    except OSError as error:
        raise StorageError(
            f"{target} is in place, but the disk did not confirm it ({error.strerror or error}), "
            "so a power failure may undo it; look after the disk"
        ) from error


def _create(path: Path) -> int:
    """Make an empty file with the rights of an ordinary new one, and return them."""
    # The system applies the umask here; to ask for it would change it for all threads for a moment.
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Write a file so that a reader sees the old one or the new one, never a part."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fiveshot.errors import StorageError

FilePath = str | os.PathLike[str]
"""A path as people give it: a string, or an object that stands for a path."""


@contextmanager
def atomic_path(target: FilePath) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` that takes its place when the block ends well.

    When the block fails, whatever the reason (a full disk, a kill signal turned into an exception), the
    temporary file is removed and ``target`` stays as it was.

    Parameters
    ----------
    target : str or path
        The file to write. Its folder must exist.

    Yields
    ------
    Path
        An empty file to write to.

    Raises
    ------
    StorageError
        When the file cannot be written.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with atomic_path(folder / "note.txt") as path:
    ...     _ = path.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    with atomic_paths(target) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(*targets: FilePath) -> Iterator[tuple[Path, ...]]:
    """Yield a temporary path beside each target; when the block ends well, they take their places in turn.

    All of them are on the disk before the first takes its place, so that a full disk leaves every target as it
    was. Only a kill or a failing disk in the moment between can leave some targets new and others old.

    Parameters
    ----------
    *targets : str or path
        The files to write. Their folders must exist.

    Yields
    ------
    tuple of Path
        One empty file for each target.

    Raises
    ------
    StorageError
        When a file cannot be written.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with atomic_paths(folder / "graph.onnx", folder / "graph.json") as (graph, text):
    ...     _ = graph.write_bytes(b"..."), text.write_text("{}")
    >>> sorted(file.name for file in folder.iterdir())
    ['graph.json', 'graph.onnx']
    """
    places = [Path(target) for target in targets]
    for place in places:
        if not place.parent.is_dir():
            message = f"cannot write {place}: the folder {place.parent} does not exist"
            raise StorageError(message, hint="create it first")
    modes: dict[Path, int] = {}  # of the temporary files that were made
    placed: list[Path] = []
    try:
        for place in places:
            temporary = part_beside(place)
            modes[temporary] = _create(temporary)
        yield tuple(modes)
        for temporary, mode in modes.items():
            _flush_to_disk(temporary)
            temporary.chmod(mode)  # some libraries put a file of their own in its place
        for temporary, place in zip(modes, places, strict=True):
            temporary.replace(place)
            placed.append(place)
    except StorageError:
        raise
    except OSError as error:
        left = f"{_listed(placed)} was replaced already" if placed else "nothing was left behind"
        raise StorageError(f"cannot write {_listed(places)}: {error.strerror or error}; {left}") from error
    finally:
        for temporary in modes:
            temporary.unlink(missing_ok=True)
    for place in places:
        confirm_place(place)


def part_beside(target: Path) -> Path:
    """Return a hidden name in the same folder that nobody else uses, for what becomes ``target`` when complete.

    Parameters
    ----------
    target : Path
        The file or folder to be.

    Returns
    -------
    Path
        A name of which nothing exists yet.

    Examples
    --------
    >>> part_beside(Path("birds/model.toml"))
    PosixPath('birds/.model.toml....part')
    """
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")


def confirm_place(target: Path) -> None:
    """Flush the new name of a file or folder to the disk.

    Parameters
    ----------
    target : Path
        A file or folder that has just got its name.

    Raises
    ------
    StorageError
        When the disk does not confirm the name. The file is in place all the same.

    Examples
    --------
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


def _listed(paths: list[Path]) -> str:
    return " and ".join(str(path) for path in paths)


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

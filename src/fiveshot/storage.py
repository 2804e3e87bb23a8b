"""Files that are either complete or absent: atomic writes, and arrays with checked metadata."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fiveshot.errors import InputError, StorageError

__all__ = [
    "Blocks",
    "FilePath",
    "TensorFile",
    "atomic_path",
    "atomic_paths",
    "attempting",
    "begins_as_ours",
    "confirm_place",
    "file_kind",
    "make_folder",
    "part_beside",
    "read_tensors",
    "require_replaceable",
    "require_writable",
    "write_tensors",
]

FilePath = str | os.PathLike[str]
"""A path: a string, or an object that stands for one."""
LONGEST_HEADER = 100_000_000  # bytes; the format allows no longer header
FRESH_COPY = "get a fresh copy of it"
HEADER = "fiveshot"  # the metadata entry that we write: a JSON object with kind, version and meta
# A sealed file begins with 8 bytes for the length of the header, then with these bytes. The 64 digits that follow
# are the SHA-256 of all other bytes of the file.
_SEAL = b'{"__metadata__":{"sha256":"'
_SEAL_AT, _SEAL_LENGTH = 8 + len(_SEAL), 64
_PIECE = 1 << 20  # bytes read at a time

# The names of element types in safetensors. bfloat16 is missing, because NumPy does not have it.
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "F16": np.dtype("<f2"),
    "I16": np.dtype("<i2"),
    "U16": np.dtype("<u2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@contextmanager
def atomic_path(target: FilePath) -> Iterator[Path]:
    """Yield a temporary path next to ``target``; if the block succeeds, the temporary file replaces ``target``.

    If the block fails (a full disk, an interrupt), the temporary file is removed and ``target`` stays as it was.

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
    """Yield a temporary path next to each target; if the block succeeds, they replace the targets one by one.

    All temporary files are on the disk before the first replacement, so a full disk leaves every target as it was.
    Only a kill or a disk failure between two replacements can leave some targets new and others old.

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
        If a file cannot be written.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with atomic_paths(folder / "graph.onnx", folder / "graph.json") as (graph, text):
    ...     _ = graph.write_bytes(b"..."), text.write_text("{}")
    >>> sorted(file.name for file in folder.iterdir())
    ['graph.json', 'graph.onnx']
    """
    places = [require_writable(target) for target in targets]
    modes: dict[Path, int] = {}  # access rights of the temporary files
    placed: list[Path] = []
    try:
        for place in places:
            temporary = part_beside(place)
            modes[temporary] = _create(temporary)
        yield tuple(modes)
        for temporary, mode in modes.items():
            _flush_to_disk(temporary)
            temporary.chmod(mode)  # some libraries replace the file
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
    """Return an unused hidden name in the same folder, for writing what becomes ``target`` when it is complete.

    Parameters
    ----------
    target : Path
        The file or folder that will be made.

    Returns
    -------
    Path
        A path that does not exist.

    Examples
    --------
    >>> part_beside(Path("birds/model.toml"))
    PosixPath('birds/.model.toml....part')
    """
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")


def require_writable(target: FilePath) -> Path:
    """Raise an error if a file cannot be written, before any work is done for it.

    Parameters
    ----------
    target : str or path
        The file.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    StorageError
        If its folder does not exist or cannot be written to, or if it is a folder.

    Examples
    --------
    >>> from fiveshot.storage import require_writable
    >>> require_writable("nowhere/features.safetensors")
    Traceback (most recent call last):
    fiveshot.errors.StorageError: cannot write nowhere/features.safetensors: the folder nowhere does not exist
    """
    path = Path(target)
    if not path.parent.is_dir():
        raise StorageError(f"cannot write {path}: the folder {path.parent} does not exist", hint="create it first")
    if path.is_dir():
        raise StorageError(f"cannot write {path}: it is a folder", hint="name a file in it")
    if not os.access(path.parent, os.W_OK):
        raise StorageError(f"cannot write {path}: the folder {path.parent} cannot be written to")
    return path


def require_replaceable(
    target: Path, is_ours: Callable[[Path], bool], *, overwrite: bool, shown: str = ""
) -> None:
    """Refuse a target that something else than an earlier export has taken.

    Parameters
    ----------
    target : Path
        The file to write.
    is_ours : callable
        Tells whether an existing file is an earlier export, which may be replaced.
    overwrite : bool
        Whether any other file may be replaced, too. Something else than a file never is.
    shown : str, optional
        How messages name the target.

    Raises
    ------
    StorageError
        When it exists already and must not be replaced (``code`` is ``exists``).

    Examples
    --------
    >>> from pathlib import Path
    >>> from fiveshot.storage import require_replaceable
    >>> require_replaceable(Path(__file__), lambda file: False, overwrite=False)
    Traceback (most recent call last):
    fiveshot.errors.StorageError: ... exists already and is not an earlier export of this kind; ...
    """
    shown = shown or str(target)
    if not target.exists():
        return
    if not target.is_file():
        raise StorageError(f"{shown} exists already and is not a file", hint="choose another name", code="exists")
    if not overwrite and not is_ours(target):
        raise StorageError(
            f"{shown} exists already and is not an earlier export of this kind",
            hint="choose another name, or replace it with overwrite=True (--force)",
            code="exists",
        )


def make_folder(folder: Path) -> Path:
    """Make a folder and its parents if they do not exist, and return it.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    StorageError
        If it cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.storage import make_folder
    >>> with tempfile.TemporaryDirectory() as top:
    ...     make_folder(Path(top, "runs", "birds")).is_dir()
    True
    """
    with attempting(f"make the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def attempting(action: str, *, hint: str = "") -> Iterator[None]:
    """Turn an ``OSError`` of the block into an error that says what could not be done.

    Parameters
    ----------
    action : str
        What the block does; the message is ``cannot`` followed by this.
    hint : str, optional
        The way out.

    Raises
    ------
    StorageError
        If the block raises an ``OSError``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fiveshot.storage import attempting
    >>> with attempting("read the list", hint="make one"):
    ...     Path("no-such-list.txt").read_text()
    Traceback (most recent call last):
    fiveshot.errors.StorageError: cannot read the list: No such file or directory; make one
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot {action}: {error.strerror or error}", hint=hint) from error


def confirm_place(target: Path) -> None:
    """Flush the new name of a file or folder to the disk.

    Parameters
    ----------
    target : Path
        A file or folder that has just got its name.

    Raises
    ------
    StorageError
        If the disk does not confirm the name. The file is in place nevertheless.

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
            "so a power failure may undo it; check the disk"
        ) from error


def _listed(paths: list[Path]) -> str:
    return " and ".join(str(path) for path in paths)


def _create(path: Path) -> int:
    """Make an empty file with the usual access rights, and return these."""
    # The system applies the umask here. Reading the umask would change it for all threads for a moment.
    with path.open("xb") as file:
        return stat.S_IMODE(os.fstat(file.fileno()).st_mode)


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class TensorFile:
    """The content of a file: named arrays and metadata.

    Parameters
    ----------
    tensors : dict of str to ndarray
        The arrays by name, mapped into memory. Changing an array does not change the file.
    meta : dict
        The metadata: JSON values.

    Examples
    --------
    >>> import numpy as np
    >>> file = TensorFile({"means": np.zeros((2, 3))}, meta={"shots": 5})
    >>> file.tensors["means"].shape, file.meta["shots"]
    ((2, 3), 5)
    """

    tensors: dict[str, NDArray[Any]]
    meta: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Blocks:
    """An array that is given in blocks of rows, so that it need not fit into memory.

    Parameters
    ----------
    dtype : numpy.dtype
        Type of the elements; the blocks are converted to it.
    shape : tuple of int
        Shape of all blocks together.
    blocks : iterable of ndarray
        The blocks in order. They are read one at a time, while the file is written.

    Examples
    --------
    >>> import numpy as np
    >>> rows = (np.full((1, 3), row) for row in range(2))
    >>> Blocks(np.dtype("f4"), (2, 3), rows).nbytes
    24
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    blocks: Iterable[NDArray[Any]]

    @property
    def nbytes(self) -> int:
        """Size of all blocks together."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_tensors(
    path: FilePath,
    tensors: Mapping[str, Any],
    *,
    kind: str,
    version: int,
    meta: Mapping[str, Any],
    seal: bool = False,
) -> None:
    """Write arrays and metadata atomically; an existing file is replaced only by a complete new one.

    Parameters
    ----------
    path : str or path
        The file to write.
    tensors : mapping of str to array or Blocks
        Arrays of NumPy or another library (these are converted), or :class:`Blocks`.
    kind : str
        The kind of file; :func:`read_tensors` checks it.
    version : int
        Version of the format of this kind.
    meta : mapping
        JSON values to keep with the arrays.
    seal : bool, default False
        Store a SHA-256 of the whole file in it. :func:`read_tensors` checks it with ``sealed=True``.

    Raises
    ------
    StorageError
        If the file cannot be written. Then the old file stays, and no temporary file is left.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.storage import read_tensors, write_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/means.safetensors"
    ...     write_tensors(file, {"means": np.ones(2)}, kind="means", version=1, meta={"shots": 5})
    ...     read_tensors(file, kind="means", version=1)
    TensorFile(tensors={'means': array([1., 1.])}, meta={'shots': 5})
    """
    about = json.dumps({"kind": kind, "version": version, "meta": dict(meta)}, allow_nan=False)
    arrays = {name: _as_blocks(tensor) for name, tensor in tensors.items()}
    # The largest elements come first, so each array begins at a multiple of its element size.
    arrays = dict(sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
    with atomic_path(path) as temporary, temporary.open("w+b") as file:
        header = _header(arrays, about, seal)
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for name, array in arrays.items():
            if _write_blocks(file, array) != array.nbytes:
                raise StorageError(f"cannot write {path}: {name} does not have the {array.shape} values expected")
        if seal:
            digest = _digest_but_seal(file)
            file.seek(_SEAL_AT)
            file.write(digest)


def read_tensors(path: FilePath, *, kind: str, version: int, sealed: bool = False) -> TensorFile:
    """Read a file written by :func:`write_tensors`, after checking what it is.

    The arrays are mapped into memory: numbers are read from the disk when they are used.

    Parameters
    ----------
    path : str or path
        The file to read.
    kind : str
        The kind that the file must have.
    version : int
        The newest version of the format that the caller understands.
    sealed : bool, default False
        Whether the file must have the SHA-256 that ``seal`` stored. Then the whole file is read.

    Returns
    -------
    TensorFile
        The arrays and the metadata.

    Raises
    ------
    StorageError
        If the file is missing, truncated, written by another program, of another kind or of a newer version, or if
        ``sealed`` is set and the SHA-256 differs.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.storage import read_tensors, write_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/means.safetensors"
    ...     write_tensors(file, {"means": np.ones(2)}, kind="means", version=3, meta={})
    ...     try:
    ...         read_tensors(file, kind="means", version=2)
    ...     except OSError as error:
    ...         print(error)
    /.../means.safetensors has format version 3, this release reads up to 2; upgrade with: pip install ...
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise StorageError(f"no such file: {path}")
        with path.open("rb") as opened:  # safe_open reports every file that it cannot open as missing
            has_seal = sealed and _check_seal(path, opened)
        with safe_open(path, framework="numpy") as file:
            meta = _checked_meta(path, file.metadata(), kind, version)
            if sealed and not has_seal:
                raise StorageError(
                    f"{path} is damaged or was changed: it does not hold its SHA-256", hint=FRESH_COPY
                )
            slices = {name: file.get_slice(name) for name in file.offset_keys()}
            layout = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
        return TensorFile(_mapped(path, layout), meta)
    except SafetensorError as error:
        message = f"{path} is not a fiveshot {kind} file, or it is truncated"
        raise StorageError(message, hint=FRESH_COPY) from error
    except StorageError:
        raise
    except ValueError as error:
        raise StorageError(f"{path} cannot be read: {error}", hint=FRESH_COPY) from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error


def file_kind(path: FilePath) -> str | None:
    """Return the kind of a file that any version of :func:`write_tensors` wrote; None for other files.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    str or None
        Its kind.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.storage import file_kind, write_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/means.safetensors"
    ...     write_tensors(file, {"means": np.ones(2)}, kind="means", version=1, meta={})
    ...     file_kind(file), file_kind(__file__)
    ('means', None)
    """
    try:
        with safe_open(path, framework="numpy") as file:
            kind = json.loads((file.metadata() or {})[HEADER])["kind"]
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
        return None
    return kind if isinstance(kind, str) else None


def begins_as_ours(path: FilePath) -> bool:
    """Tell whether a file begins like one of :func:`write_tensors`, so that it may be a truncated or damaged one.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    bool
        False if another program certainly wrote the file.

    Examples
    --------
    >>> begins_as_ours(__file__)
    False
    """
    with Path(path).open("rb") as file:
        beginning = file.read(9)
    short = len(beginning) < 9  # too short to tell
    return short or (beginning[8:] == b"{" and int.from_bytes(beginning[:8], "little") < LONGEST_HEADER)


def _as_blocks(tensor: Any) -> Blocks:
    """Return an array of any library as one block."""
    if isinstance(tensor, Blocks):
        return tensor
    if hasattr(tensor, "detach"):  # NumPy cannot convert tensors with gradients or on a GPU
        tensor = tensor.detach().cpu()
    array = np.asarray(tensor)
    if array.dtype.newbyteorder("<") not in _NAMES:
        raise InputError(
            f"arrays of type {array.dtype} cannot be stored", hint=f"choose from {', '.join(map(str, _NAMES))}"
        )
    return Blocks(array.dtype.newbyteorder("<"), array.shape, (array,))


def _header(arrays: Mapping[str, Blocks], about: str, seal: bool) -> bytes:
    digest = {"sha256": "0" * _SEAL_LENGTH} if seal else {}  # filled in when the rest is written
    header: dict[str, Any] = {"__metadata__": {**digest, HEADER: about}}
    start = 0
    for name, array in arrays.items():
        offsets = [start, start + array.nbytes]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        start += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _check_seal(path: Path, file: BinaryIO) -> bool:
    """Tell whether a file has a seal; raise an error if its SHA-256 is not that of its content."""
    if file.read(_SEAL_AT)[8:] != _SEAL:
        return False
    if file.read(_SEAL_LENGTH) != _digest_but_seal(file):
        raise StorageError(f"{path} is damaged or truncated (its SHA-256 differs)", hint=FRESH_COPY)
    return True


def _digest_but_seal(file: BinaryIO) -> bytes:
    """Return the digits of the SHA-256 of a file without its seal."""
    file.seek(0)
    content = hashlib.sha256(file.read(_SEAL_AT))
    file.seek(_SEAL_AT + _SEAL_LENGTH)
    while piece := file.read(_PIECE):
        content.update(piece)
    return content.hexdigest().encode()


def _write_blocks(file: BinaryIO, array: Blocks) -> int:
    written = 0
    for block in array.blocks:
        if block.size:  # an empty array has no buffer
            written += file.write(np.ascontiguousarray(block, array.dtype).data.cast("B"))
    return written


def _mapped(path: Path, layout: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, NDArray[Any]]:
    """Map the arrays of a file into memory; ``layout`` has their order in the file.

    safetensors checks files, but returns copies. The format allows no gaps between arrays, so the checked order,
    types and shapes tell where each array begins.
    """
    # Copy on write: changing an array does not change the file.
    content: NDArray[np.uint8] = np.memmap(path, np.uint8, mode="c").view(np.ndarray)
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    arrays = {}
    for name, (kind, shape) in layout.items():
        if kind not in DTYPES:
            raise ValueError(f"{name} has elements of type {kind}")
        stop = start + math.prod(shape) * DTYPES[kind].itemsize
        array = content[start:stop].view(DTYPES[kind]).reshape(shape)
        arrays[name] = np.require(array, requirements="A")  # other programs may write without alignment
        start = stop
    return arrays


def _checked_meta(path: Path, metadata: dict[str, str] | None, kind: str, version: int) -> dict[str, Any]:
    """Return the metadata of a file that has the right kind and a known version."""
    try:
        header = json.loads((metadata or {})[HEADER])
        found, found_version, meta = header["kind"], header["version"], header["meta"]
    except (KeyError, TypeError, ValueError, RecursionError):  # RecursionError: JSON that is nested too deeply
        raise StorageError(
            f"{path} is a safetensors file, but holds no fiveshot {kind}: it was written by another program",
            hint="choose a file that fiveshot wrote",
        ) from None
    if found != kind:
        raise StorageError(f"{path} is a fiveshot {found} file, not a {kind} file", hint="choose another file")
    if not isinstance(found_version, int) or found_version > version:
        raise StorageError(
            f"{path} has format version {found_version}, this release reads up to {version}",
            hint="upgrade with: pip install --upgrade fiveshot",
        )
    if not isinstance(meta, dict):
        raise StorageError(f"{path} has damaged metadata", hint=FRESH_COPY)
    return meta

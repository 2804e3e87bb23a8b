"""Feature files of other programs: an ``.npz`` with train_x, train_y, test_x, test_y, or with X and y alone."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.draws import stratified_split
from fiveshot.errors import InputError, StorageError, some_of
from fiveshot.features.feature_set import (
    FEATURE_ARRAYS,
    FLOATS,
    NPY_START,
    FeatureSet,
    Labels,
    Provenance,
    Vectors,
)
from fiveshot.storage import FRESH_COPY, FilePath, atomic_path

OPTIONAL = ("class_names", "train_names", "test_names")
WITHOUT_TEST = ("X", "y")  # of a file without a test part
HELD_OUT = 0.2
OWN_SPLIT = "a fifth of the samples of each class, drawn with seed 0, is held out for testing"
"""What the note of the provenance says of a file without a test part."""


def load_npz(path: FilePath, provenance: Provenance | None = None) -> FeatureSet:
    """Read the features that another program saved as ``train_x, train_y, test_x, test_y``.

    A file with ``X`` and ``y`` alone is split: a fifth of the samples of each class, drawn with seed 0, is held
    out for testing, and the note of the provenance says so.

    ``class_names``, ``train_names`` and ``test_names`` are read too if present. Vectors may have any real dtype.
    Half, single and double precision are kept; other numbers become float32 (or float64 if they need it). Labels
    are texts or integers of any range:

    - without ``class_names``, the distinct labels in ascending order are the classes and give the names;
    - with ``class_names``, texts must be among them; integers are indices into them, or, when they are out
      of that range, as many distinct ones as there are names, in ascending order (labels from 1 to n).

    Nothing is unpickled. Other fields of the file are ignored.

    Parameters
    ----------
    path : str or path
        The file.
    provenance : Provenance, optional
        Where the vectors come from; by default unknown.

    Returns
    -------
    FeatureSet
        The vectors, in memory.

    Raises
    ------
    InputError
        When something is missing or does not fit.
    StorageError
        When the file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.features import load_npz
    >>> x, y = np.eye(2), np.array(["wren", "rook"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/birds.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    ...     birds = load_npz(f"{folder}/birds.npz")
    >>> birds.class_names, birds.train_y.tolist(), birds.provenance.note
    (('rook', 'wren'), [1, 0], 'read from birds.npz')
    """
    path = Path(path)
    fields = _read_fields(path)
    try:
        provenance = provenance or Provenance.unknown(path.stem, note=f"read from {path.name}")
        if "X" in fields:
            fields = _split(fields)
            provenance = replace(provenance, note="; ".join(filter(None, (provenance.note, OWN_SPLIT))))
        texts = {name: _texts(name, fields.get(name)) for name in OPTIONAL}
        train_x, test_x = (vectors(name, fields[name]) for name in ("train_x", "test_x"))
        train_y, test_y = (_label_array(name, fields[name]) for name in ("train_y", "test_y"))
        train_y, test_y, names = _class_indices(train_y, test_y, texts["class_names"])
        images = (texts["train_names"], texts["test_names"])
        return FeatureSet(train_x, train_y, test_x, test_y, names, provenance, *images)
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error


def _read_fields(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise StorageError(f"no such file: {path}")
    try:
        # Opened here, because NumPy leaves a file open if it is not an archive.
        with path.open("rb") as stream:
            if stream.read(len(NPY_START)) == NPY_START:
                raise InputError(
                    f"{path} holds one array", hint=f"save {', '.join(FEATURE_ARRAYS)} with numpy.savez"
                )
            stream.seek(0)
            file = np.load(stream, allow_pickle=False)
            arrays = (
                WITHOUT_TEST
                if set(WITHOUT_TEST) <= set(file.files) and not set(FEATURE_ARRAYS) & set(file.files)
                else FEATURE_ARRAYS
            )
            missing = [name for name in arrays if name not in file.files]
            if missing:
                raise InputError(
                    f"{path} has no {', '.join(missing)} (it has {some_of(sorted(file.files), 8) or 'nothing'})",
                    hint=f"an .npz of features holds {', '.join(FEATURE_ARRAYS)}, or X and y alone",
                )
            wanted = [name for name in (*arrays, *OPTIONAL) if name in file.files]
            if any(_holds_objects(file, name) for name in wanted):
                raise InputError(
                    f"{path} holds pickled Python objects, which are never loaded",
                    hint="save texts with numpy.array(labels, dtype=str)",
                )
            return {name: file[name] for name in wanted}
    except (InputError, StorageError):
        raise
    except ValueError as error:  # NumPy raises this for a file that is not an archive
        raise StorageError(f"{path} is not an .npz file, or it is damaged ({error})") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise StorageError(
            f"{path} is truncated or damaged ({error or 'unexpected end'})", hint=FRESH_COPY
        ) from error


def _split(fields: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return ``X`` and ``y`` as a part to train with and a part to test with."""
    x, y = fields["X"], fields["y"]
    if y.ndim != 1 or x.shape[:1] != y.shape:
        raise InputError(f"X of shape {x.shape} does not fit y of shape {y.shape}")
    require_finite("X", x)
    train, test = split_whole(y)
    parts = {"train_x": x[train], "train_y": y[train], "test_x": x[test], "test_y": y[test]}
    return parts | {name: fields[name] for name in ("class_names",) if name in fields}


def split_whole(y: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows to train with and the rows to test with, of a file without a test part."""
    if not len(y):
        raise InputError("there are no samples")
    labels, counts = np.unique(y, return_counts=True)
    if (counts < 2).any():
        raise InputError(
            f"there is one sample of {labels[counts < 2][0]}, so none can be held out for testing",
            hint="give two or more of each class, or a training and a test part",
        )
    return stratified_split(y, held_out=HELD_OUT, seed=0)


def require_finite(name: str, x: NDArray[Any]) -> None:
    """Refuse NaN and infinity before the rows are split, so that the message names the row of the file."""
    if x.dtype.kind == "f" and x.ndim == 2 and not (finite := np.isfinite(x).all(axis=1)).all():
        raise InputError(f"{name} holds NaN or infinity, first in row {int(finite.argmin())}")


def save_npz(features: FeatureSet, path: FilePath) -> None:
    """Write features as an ``.npz`` that any program with NumPy reads; the provenance is not part of it."""
    arrays: dict[str, Any] = {name: getattr(features, name) for name in FEATURE_ARRAYS}
    texts = {name: getattr(features, name) for name in OPTIONAL if getattr(features, name) is not None}
    arrays |= {name: np.array(values, dtype=str) for name, values in texts.items()}
    with atomic_path(Path(path)) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def _holds_objects(file: Any, name: str) -> bool:
    """Tell whether the elements of an array are Python objects, from its header only."""
    with file.zip.open(f"{name}.npy") as member:
        first = np.lib.format.read_magic(member) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        _, _, dtype = read(member)
    return bool(dtype.hasobject)


def vectors(name: str, x: NDArray[Any]) -> Vectors:
    """Return numbers as floats; half, single and double precision are kept."""
    if x.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold real numbers, not {x.dtype}")
    if x.dtype.kind == "f" and x.dtype.newbyteorder("=") in FLOATS:
        return x.astype(x.dtype.newbyteorder("="), copy=False)
    exact = x.dtype.kind != "f" and x.dtype.itemsize <= 2
    return x.astype(np.float32 if exact else np.float64)


def _texts(name: str, values: NDArray[Any] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    if values.ndim != 1 or values.dtype.kind not in "USiu":
        raise InputError(f"{name} must be a vector of texts, not {values.dtype} of shape {values.shape}")
    return tuple(str(value) for value in (np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values))


def _label_array(name: str, y: NDArray[Any]) -> NDArray[Any]:
    """Return labels as int64 or as texts; bytes are taken as UTF-8."""
    if y.dtype.kind == "S":
        return np.char.decode(y, "utf-8")
    if y.dtype.kind == "u" and y.size and y.max() > np.iinfo(np.int64).max:
        raise InputError(f"{name} holds the label {y.max()}, which is more than 64 signed bits can hold")
    if y.dtype.kind not in "iuU":
        raise InputError(f"{name} must hold integers or texts, not {y.dtype}; convert it, e.g. with .astype(int)")
    return y if y.dtype.kind == "U" else y.astype(np.int64)


def _class_indices(
    train_y: NDArray[Any], test_y: NDArray[Any], names: tuple[str, ...] | None
) -> tuple[Labels, Labels, tuple[str, ...]]:
    """Return both label vectors as indices into the class names, and the names.

    >>> _class_indices(np.array([7, 3, 7]), np.array([3]), None)
    (array([1, 0, 1]), array([0]), ('3', '7'))
    """
    if (train_y.dtype.kind == "U") != (test_y.dtype.kind == "U"):
        raise InputError(f"train_y holds {train_y.dtype} and test_y {test_y.dtype}; use integers or texts in both")
    distinct = np.unique(np.concatenate([np.unique(train_y), np.unique(test_y)]))
    if names is None:
        position, names = np.arange(len(distinct)), tuple(str(label) for label in distinct)
    elif distinct.dtype.kind == "U":
        unnamed = sorted(set(distinct.tolist()) - set(names))
        if unnamed:
            raise InputError(f"some labels are not in class_names: {some_of(unnamed, 8)}")
        position = np.array([names.index(label) for label in distinct.tolist()], dtype=np.int64)
    elif len(distinct) == 0 or (distinct[0] >= 0 and distinct[-1] < len(names)):
        position = distinct
    elif len(distinct) == len(names):
        position = np.arange(len(distinct))
    else:
        raise InputError(
            f"labels from {distinct[0]} to {distinct[-1]} ({len(distinct)} distinct) do not fit "
            f"{len(names)} class_names; use indices from 0, or one name for every distinct label"
        )
    position = position.astype(np.int64)
    return position[np.searchsorted(distinct, train_y)], position[np.searchsorted(distinct, test_y)], names

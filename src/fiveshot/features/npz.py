"""Feature files of other programs: an ``.npz`` with train_x, train_y, test_x, test_y, taken as it is."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError, StorageError
from fiveshot.features.checks import FLOATS, Vectors, listing
from fiveshot.features.feature_set import FeatureSet
from fiveshot.features.npz_labels import class_indices, label_array
from fiveshot.features.provenance import Provenance

REQUIRED = ("train_x", "train_y", "test_x", "test_y")
OPTIONAL = ("class_names", "train_names", "test_names")


def load_npz(path: str | os.PathLike[str], provenance: Provenance | None = None) -> FeatureSet:
    """Read ``train_x, train_y, test_x, test_y`` and, where present, ``class_names`` and image names.

    Vectors may have any real dtype; half, single and double precision stay what they are, other numbers
    become float32 (or float64 where they need it). Labels are texts, or integers of any range:

    - without ``class_names``, the distinct labels in ascending order are the classes and give the names;
    - with ``class_names``, texts must be among them; integers are indices into them, or, when they are out
      of that range, as many distinct ones as there are names, in ascending order (labels from 1 to n).

    Nothing is unpickled. Other fields of the file are ignored. ``provenance`` is unknown unless given.

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
        train_y, test_y, names = class_indices(
            label_array("train_y", fields["train_y"]),
            label_array("test_y", fields["test_y"]),
            _texts("class_names", fields.get("class_names")),
        )
        return FeatureSet(
            _vectors("train_x", fields["train_x"]),
            train_y,
            _vectors("test_x", fields["test_x"]),
            test_y,
            names,
            provenance or Provenance.unknown(path.stem, note=f"read from {path.name}"),
            _texts("train_names", fields.get("train_names")),
            _texts("test_names", fields.get("test_names")),
        )
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error


def convert_npz(
    npz: str | os.PathLike[str],
    out: str | os.PathLike[str],
    provenance: Provenance,
    *,
    train_names: Sequence[str] | None = None,
    test_names: Sequence[str] | None = None,
) -> FeatureSet:
    """Write the ``.npz`` file ``npz`` as the feature file ``out``, and return it as loaded from there.

    ``provenance`` says where it comes from. Image names given here take the place of those in the ``.npz``, if
    any. The same input gives the same bytes.

    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.features import Provenance, convert_npz
    >>> x, y = np.eye(2), np.array(["wren", "rook"])
    >>> origin = Provenance("birds", "vit", weights_hash="ab12")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/birds.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    ...     convert_npz(f"{folder}/birds.npz", f"{folder}/birds.safetensors", origin)
    FeatureSet('birds': 2 training and 2 test vectors of 2 float64, 2 classes)
    """
    source = load_npz(npz, provenance)
    named = FeatureSet(
        source.train_x,
        source.train_y,
        source.test_x,
        source.test_y,
        source.class_names,
        provenance,
        source.train_names if train_names is None else tuple(train_names),
        source.test_names if test_names is None else tuple(test_names),
        vectors_checked=True,
    )
    named.save(out)
    return FeatureSet.load(out)


def _read_fields(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise StorageError(f"no such file: {path}")
    try:
        # Opened here, because NumPy leaves a file open when it turns out to be no archive.
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InputError(f"{path} holds one array; save the four of them with numpy.savez")
            missing = [name for name in REQUIRED if name not in file.files]
            if missing:
                raise InputError(
                    f"{path} has no {', '.join(missing)}; an .npz of features holds {', '.join(REQUIRED)} "
                    f"(this one: {listing(file.files) or 'nothing'})"
                )
            return {name: file[name] for name in (*REQUIRED, *OPTIONAL) if name in file.files}
    except (InputError, StorageError):
        raise
    except ValueError as error:  # how NumPy reports Python objects, and files that are no archive
        if "Object arrays" in str(error):
            raise InputError(
                f"{path} holds pickled Python objects, which are never loaded; save texts with "
                "numpy.array(labels, dtype=str)"
            ) from error
        raise StorageError(f"{path} is not an .npz file, or it is damaged ({error})") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise StorageError(
            f"{path} is truncated or damaged ({error or 'unexpected end'}); get a fresh copy of it"
        ) from error


def _vectors(name: str, x: NDArray[Any]) -> Vectors:
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

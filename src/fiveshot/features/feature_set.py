"""Feature vectors of a dataset with labels, split and provenance, in one value and one file; and the packs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError, StorageError, some_of, unknown_name
from fiveshot.storage import FRESH_COPY, Blocks, FilePath, attempting, read_tensors, write_tensors

UNRECORDED = "unknown"
Vectors: TypeAlias = NDArray[np.floating[Any]]
Labels: TypeAlias = NDArray[np.int64]

KIND, VERSION = "features", 1
FEATURE_ARRAYS = ("train_x", "train_y", "test_x", "test_y")
VECTORS = ("train_x", "test_x")
SCALE = ("low", "step")  # of each column, for vectors stored in bytes
NAMES = ("train_names", "test_names")
FLOATS = (np.float16, np.float32, np.float64)
BLOCK_ROWS = 4096  # vectors are checked in blocks, so that no second array of their size is made
ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
NPY_START = b"\x93NUMPY"
PARQUET_START = b"PAR1"
FORMS = (".safetensors", ".npz", ".parquet")
PACKS = Path(__file__).parent / "packs"  # see DATA_CARD.md there for their origin and license


@dataclass(frozen=True)
class Provenance:
    """How a set of feature vectors was made. Unknown entries say ``unknown``; nothing is guessed.

    Parameters
    ----------
    dataset : str
        The dataset the images are of.
    backbone : str
        Exact name of the backbone.
    weights_hash : str
        The backbone's own hash of its weights.
    preprocessing : mapping
        JSON values that describe resizing, cropping and normalization.
    adapter : str, optional
        The backbone's own hash of its adapter; None without one.
    readout : str
        What was read from the network; ``cls`` is the class token after the final norm.
    note : str
        Further remarks.
    precision : str
        Precision of the forward pass: ``float32``, ``tf32`` or ``bf16``.

    Examples
    --------
    >>> from fiveshot.features import Provenance
    >>> made = Provenance("birds", "vit.ours", weights_hash="ab12", preprocessing={"size": (224, 224)})
    >>> made.preprocessing
    {'size': [224, 224]}
    """

    dataset: str
    backbone: str
    weights_hash: str
    preprocessing: Mapping[str, Any] = field(default_factory=dict, hash=False)
    adapter: str | None = None
    readout: str = "cls"
    note: str = ""
    precision: str = UNRECORDED

    def __post_init__(self) -> None:
        for name in ("dataset", "backbone", "weights_hash", "readout", "note", "precision"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"provenance: {name} must be a text, not {getattr(self, name)!r}")
        if self.adapter is not None and not isinstance(self.adapter, str):
            raise InputError(f"provenance: adapter must be a text or None, not {self.adapter!r}")
        try:
            stored = json.loads(json.dumps(dict(self.preprocessing), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(f"provenance: preprocessing must be a dictionary of JSON values ({error})") from error
        object.__setattr__(self, "preprocessing", stored)

    @classmethod
    def unknown(cls, dataset: str, *, note: str = "") -> Provenance:
        """Return the provenance for vectors of unknown origin.

        >>> Provenance.unknown("birds").backbone
        'unknown'
        """
        return cls(dataset, UNRECORDED, UNRECORDED, {}, None, UNRECORDED, note)

    @classmethod
    def of(cls, dataset: str, identity: Mapping[str, Any]) -> Provenance:
        """Return the provenance of vectors that an embedder with this ``identity()`` makes.

        >>> from fiveshot.backbones import load_embedder
        >>> Provenance.of("birds", load_embedder().identity()).precision
        'float32'
        """
        return cls(
            dataset,
            identity["name"],
            identity["weights_hash"],
            identity["preprocessing"],
            identity["adapter_hash"],
            readout_in_words(**identity["readout"]),
            precision=identity["precision"],
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Provenance:
        """Rebuild a provenance from ``as_dict()``; missing and unknown entries are errors."""
        expected = {entry.name for entry in fields(cls)}
        if {*values, "precision"} != expected:
            missing, extra = sorted(expected - {*values, "precision"}), sorted(set(values) - expected)
            raise InputError(f"provenance with missing entries {missing} and unknown entries {extra}")
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Return all entries, ready for JSON; an unknown precision is left out."""
        entries = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if self.precision == UNRECORDED:
            del entries["precision"]
        return {**entries, "preprocessing": dict(self.preprocessing)}

    def differences(self, other: Provenance) -> tuple[str, ...]:
        """List the entries in which two provenances differ, except the note, with both values.

        An unknown precision is not a difference.

        >>> ours = Provenance("birds", "vit", "ab12")
        >>> ours.differences(Provenance("birds", "cnn", "ab12", note="tried once more"))
        ("backbone is 'cnn', not 'vit'",)
        """
        ignored = {"note", "precision"} if UNRECORDED in (self.precision, other.precision) else {"note"}
        names = [entry.name for entry in fields(self) if entry.name not in ignored]
        return tuple(
            f"{name} is {getattr(other, name)!r}, not {getattr(self, name)!r}"
            for name in names
            if getattr(self, name) != getattr(other, name)
        )


def readout_in_words(tokens: str, last_blocks: int) -> str:
    """Return the ``readout`` entry of a provenance.

    >>> readout_in_words("cls", 1), readout_in_words("mean", 4)
    ('cls', 'mean, last 4 blocks')
    """
    return tokens if last_blocks == 1 else f"{tokens}, last {last_blocks} blocks"


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Training and test vectors of a dataset, checked on creation.

    The arrays are not converted (half precision stays half precision). Do not write to them.

    Parameters
    ----------
    train_x, test_x : float array (n, n_features)
        The vectors.
    train_y, test_y : int array (n,)
        Labels: indices into ``class_names``.
    class_names : tuple of str
        The classes, in the order of their labels.
    provenance : Provenance
        Where the vectors come from.
    train_names, test_names : tuple of str, optional
        The names of the images.
    vectors_checked : bool, default False
        Skip the search for NaN and infinity in all vectors. :meth:`load` skips it, because :meth:`save` writes
        only checked vectors.

    Raises
    ------
    InputError
        When the arrays do not fit each other or contain NaN or infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.features import FeatureSet, Provenance
    >>> x, y = np.eye(4, dtype=np.float16), np.array([0, 0, 1, 1])
    >>> FeatureSet(x, y, x, y, ("wren", "rook"), Provenance.unknown("birds"))
    FeatureSet('birds': 4 training and 4 test vectors of 4 float16, 2 classes)
    """

    train_x: Vectors  # (n_train, n_features)
    train_y: Labels  # (n_train,)
    test_x: Vectors  # (n_test, n_features)
    test_y: Labels  # (n_test,)
    class_names: tuple[str, ...]
    provenance: Provenance
    train_names: tuple[str, ...] | None = None
    test_names: tuple[str, ...] | None = None
    vectors_checked: InitVar[bool] = False

    def __post_init__(self, vectors_checked: bool) -> None:
        _check_class_names(self.class_names)
        for split in ("train", "test"):
            vectors, labels, names = (getattr(self, f"{split}_{part}") for part in ("x", "y", "names"))
            _check_vectors(split, vectors, finite=not vectors_checked)
            labels = _checked_labels(split, labels, len(self.class_names))
            object.__setattr__(self, f"{split}_y", labels)
            for what, values in (("labels", labels), ("names", names)):
                if values is not None and len(values) != len(vectors):
                    raise InputError(f"{split}: {len(vectors)} vectors but {len(values)} {what}")
        if self.train_x.shape[1] != self.test_x.shape[1]:
            raise InputError(
                f"training vectors have {self.train_x.shape[1]} values, test vectors {self.test_x.shape[1]}",
                hint="both must come from the same backbone",
            )
        if len(self.train_x) == 0:
            raise InputError("no training vectors")
        untrained = np.setdiff1d(self.test_y, self.train_y)
        if len(untrained):
            names = some_of(sorted(self.class_names[label] for label in untrained), 8)
            raise InputError(
                f"{names}: test vectors but no training vectors",
                hint="add training vectors or leave the test vectors out",
            )

    def __repr__(self) -> str:
        """Describe the set instead of printing its arrays."""
        return (
            f"FeatureSet({self.provenance.dataset!r}: {len(self.train_x)} training and {len(self.test_x)} "
            f"test vectors of {self.n_features} {self.train_x.dtype}, {len(self.class_names)} classes)"
        )

    @property
    def n_features(self) -> int:
        """Number of values in a vector."""
        return int(self.train_x.shape[1])

    def restrict(self, class_names: Sequence[str]) -> FeatureSet:
        """Return a set with only these classes, labeled in the order given.

        Only the rows of these classes are read from a mapped file. Adjacent rows are not copied.
        """
        if isinstance(class_names, str):
            raise InputError(f"restrict takes a list of class names, not the text {class_names!r}")
        known = {name: label for label, name in enumerate(self.class_names)}
        for name in class_names:
            if name not in known:
                raise unknown_name("class", name, self.class_names)
        new_label = np.full(len(self.class_names), -1, dtype=np.int64)
        new_label[[known[name] for name in class_names]] = np.arange(len(class_names))
        train, test = (_rows(new_label[labels] >= 0) for labels in (self.train_y, self.test_y))
        return FeatureSet(
            self.train_x[train],
            new_label[self.train_y[train]],
            self.test_x[test],
            new_label[self.test_y[test]],
            tuple(class_names),
            self.provenance,
            _picked(self.train_names, train),
            _picked(self.test_names, test),
        )

    def save(self, path: FilePath, *, compact: bool = False) -> None:
        """Write everything into one safetensors file; the file is complete or absent.

        ``compact`` writes one byte for each number, in steps of a 255th of its column's range. This halves the
        file and changes the accuracy of heads by less than 0.2 points.
        """
        refuse_other_forms(path)
        arrays = {name: getattr(self, name) for name in FEATURE_ARRAYS}
        write_feature_file(
            path,
            _compact(arrays) if compact else arrays,
            {name: getattr(self, name) for name in NAMES},
            class_names=self.class_names,
            provenance=self.provenance,
        )

    @classmethod
    def load(cls, path: FilePath) -> FeatureSet:
        """Map a file written by ``save`` into memory; vectors are read from it when they are used."""
        try:
            file = read_tensors(path, kind=KIND, version=VERSION)
            if unknown := set(file.tensors) - {*FEATURE_ARRAYS, *NAMES, *SCALE}:
                raise InputError(f"unknown tensors {sorted(unknown)}")
            values: dict[str, Any] = {name: file.tensors[name] for name in FEATURE_ARRAYS}
            if SCALE[0] in file.tensors:
                low, step = (file.tensors[name] for name in SCALE)
                values |= {name: _restored(values[name], low, step) for name in VECTORS}
            values |= {name: _decoded(file.tensors[name]) for name in NAMES if name in file.tensors}
            return cls(
                **values,
                class_names=tuple(file.meta["class_names"]),
                provenance=Provenance.from_dict(file.meta["provenance"]),
                vectors_checked=True,
            )
        except (InputError, KeyError, TypeError, UnicodeDecodeError) as error:  # the right header, wrong contents
            raise StorageError(
                f"{path} is a fiveshot feature file with damaged contents ({error})", hint=FRESH_COPY
            ) from error


def _compact(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays with vectors of one byte a number, and the lowest value and the step of each column."""
    low = np.minimum(*(arrays[name].min(axis=0, initial=np.inf) for name in VECTORS)).astype(np.float32)
    high = np.maximum(*(arrays[name].max(axis=0, initial=-np.inf) for name in VECTORS)).astype(np.float32)
    step = np.where(high > low, (high - low) / 255, 1).astype(np.float32)
    codes = {name: np.rint((arrays[name] - low) / step).astype(np.uint8) for name in VECTORS}
    return {**arrays, **codes, **dict(zip(SCALE, (low, step), strict=True))}


def _restored(codes: NDArray[np.uint8], low: NDArray[np.float32], step: NDArray[np.float32]) -> Vectors:
    vectors = np.empty(codes.shape, np.float16)
    for start in range(0, len(codes), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        vectors[rows] = codes[rows] * step + low
    return vectors


def _rows(chosen: NDArray[np.bool_]) -> slice | NDArray[np.intp]:
    rows = np.flatnonzero(chosen)
    together = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else rows


def _picked(names: tuple[str, ...] | None, rows: slice | NDArray[np.intp]) -> tuple[str, ...] | None:
    if names is None:
        return None
    return names[rows] if isinstance(rows, slice) else tuple(names[row] for row in rows)


def load_features(path: FilePath) -> FeatureSet:
    """Load a fiveshot feature file (safetensors), or an ``.npz`` or Parquet file of any program.

    The content decides which it is.

    Parameters
    ----------
    path : str or path
        The file, or a folder of Parquet files.

    Returns
    -------
    FeatureSet
        The vectors. Those of a safetensors file are mapped into memory and read on use.

    Raises
    ------
    StorageError
        When the file is missing, damaged or of another kind.
    InputError
        When an ``.npz`` or a Parquet file lacks something; see :func:`load_npz` and :func:`load_parquet`.

    Examples
    --------
    >>> from fiveshot import load_features
    >>> load_features("nowhere.npz")
    Traceback (most recent call last):
    fiveshot.errors.StorageError: no such file: nowhere.npz; extract features with: fiveshot extract
    """
    path = Path(path)
    if path.is_dir() and any(path.glob("*.parquet")):
        from fiveshot.features._parquet import load_parquet

        return load_parquet(path)
    if path.is_dir():
        raise StorageError(
            f"{path} is a folder without Parquet files",
            hint=f"give a feature file ({', '.join(FORMS)}), or the folder in which they are",
        )
    if not path.is_file():
        raise StorageError(f"no such file: {path}", hint="extract features with: fiveshot extract")
    with attempting(f"read {path}"), path.open("rb") as file:
        start = file.read(9)
    if not start:
        raise StorageError(f"{path} is empty", hint=FRESH_COPY)
    if start.startswith((*ZIP_STARTS, NPY_START)):
        from fiveshot.features._npz import load_npz

        return load_npz(path)
    if start.startswith(PARQUET_START):
        from fiveshot.features._parquet import load_parquet

        return load_parquet(path)
    # A safetensors file begins with the length of its header in 8 bytes; the header is a JSON object.
    if start[8:9] == b"{":
        return FeatureSet.load(path)
    raise StorageError(
        f"{path} is not a feature file: it is neither safetensors nor .npz nor Parquet",
        hint="save features with FeatureSet.save, or with numpy.savez as train_x, train_y, test_x, test_y",
    )


def save_features(features: FeatureSet, path: FilePath) -> None:
    """Write features in the form that the name of the file asks for; the file is complete or absent.

    Parameters
    ----------
    features : FeatureSet
        The vectors.
    path : str or path
        A name that ends in ``.safetensors``, ``.npz`` or ``.parquet``. An ``.npz`` does not keep the provenance.

    Raises
    ------
    InputError
        When the name ends otherwise.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.features import embedded_features, load_features, save_features
    >>> birds = embedded_features().restrict(["001.Black_footed_Albatross", "002.Laysan_Albatross"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_features(birds, f"{folder}/birds.npz")
    ...     load_features(f"{folder}/birds.npz")
    FeatureSet('birds': 60 training and 60 test vectors of 320 float16, 2 classes)
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".safetensors":
        features.save(path)
    elif suffix == ".npz":
        from fiveshot.features._npz import save_npz

        save_npz(features, path)
    elif suffix == ".parquet":
        from fiveshot.features._parquet import save_parquet

        save_parquet(features, path)
    else:
        raise InputError(f"cannot write features to {path}", hint=f"choose a name that ends in {', '.join(FORMS)}")


def refuse_other_forms(path: FilePath) -> None:
    """Refuse a name of another form for a file that is written as safetensors.

    >>> refuse_other_forms("birds.npz")
    Traceback (most recent call last):
    fiveshot.errors.InputError: birds.npz would be written as safetensors; write ...
    """
    file = Path(path)
    if file.suffix.lower() in FORMS[1:]:
        own = file.with_suffix(FORMS[0]).name
        raise InputError(
            f"{path} would be written as safetensors",
            hint=f"write {own}, then: fiveshot data convert {own} {file.name}",
        )


def write_feature_file(
    path: FilePath,
    arrays: Mapping[str, NDArray[Any] | Blocks],
    names: Mapping[str, tuple[str, ...] | None],
    *,
    class_names: tuple[str, ...],
    provenance: Provenance,
) -> None:
    """Write a feature file, also from vectors that arrive in blocks; they must already be checked."""
    # Image names are kept as bytes in an array of their own, because a file's header has a limited size.
    encoded = {name: _encoded(texts) for name, texts in names.items() if texts is not None}
    meta = {"class_names": list(class_names), "provenance": provenance.as_dict()}
    write_tensors(path, {**arrays, **encoded}, kind=KIND, version=VERSION, meta=meta)


def _check_class_names(names: tuple[str, ...]) -> None:
    """Require distinct texts."""
    if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
        raise InputError("class_names must be a tuple of texts, none of them empty")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"class names given more than once: {some_of(sorted(twice), 8)}")


def _check_vectors(split: str, x: Vectors, *, finite: bool) -> None:
    """Require a matrix of floating-point numbers and, with ``finite``, no NaN or infinity in it."""
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.dtype not in FLOATS:
        found = f"{x.dtype} of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InputError(f"{split}_x must be a matrix of float16, float32 or float64, not {found}")
    if not x.shape[1]:
        raise InputError(f"{split}_x holds vectors without numbers")
    for start in range(0, len(x) if finite else 0, BLOCK_ROWS):
        good = np.isfinite(x[start : start + BLOCK_ROWS]).all(axis=1)
        if not good.all():
            raise InputError(f"{split}_x holds NaN or infinity, first in row {start + int(good.argmin())}")


def _checked_labels(split: str, y: Labels, n_classes: int) -> Labels:
    """Return the labels as int64 after requiring indices into ``n_classes`` names."""
    if not isinstance(y, np.ndarray) or y.ndim != 1 or y.dtype.kind not in "iu":
        found = f"{y.dtype} of shape {y.shape}" if isinstance(y, np.ndarray) else type(y).__name__
        raise InputError(f"{split}_y must be a vector of integers (indices into class_names), not {found}")
    wrong = y[(y < 0) | (y >= n_classes)]
    if len(wrong):
        raise InputError(f"{split}_y holds the label {wrong[0]}; labels are indices into {n_classes} class names")
    return y.astype(np.int64, copy=False)


def _encoded(texts: tuple[str, ...]) -> NDArray[np.uint8]:
    if any("\0" in text for text in texts):
        raise InputError("image names must not contain NUL characters")
    # surrogateescape: file names need not be valid Unicode, and must be restored exactly.
    data = "".join(f"{text}\0" for text in texts).encode("utf-8", "surrogateescape")
    return np.frombuffer(bytearray(data), dtype=np.uint8)


def _decoded(data: NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(data.tobytes().decode("utf-8", "surrogateescape").split("\0")[:-1])


def embedded_packs() -> tuple[str, ...]:
    """Return the names of the feature packs in the package.

    Returns
    -------
    tuple of str
        Names that :func:`embedded_features` takes.

    Examples
    --------
    >>> from fiveshot.features import embedded_packs
    >>> embedded_packs()
    ('cub200', 'cub200-big', 'cub200-small', 'cub200-vit', 'cub200-vit-big', 'cub200-vit-small')
    """
    return tuple(sorted(file.stem for file in PACKS.glob("*.safetensors")))


def embedded_features(name: str = "cub200") -> FeatureSet:
    """Return a feature pack of the package, mapped into memory.

    Parameters
    ----------
    name : str, default "cub200"
        One of :func:`embedded_packs`.

    Returns
    -------
    FeatureSet
        Its vectors.

    Raises
    ------
    InputError
        When there is no such pack.

    Examples
    --------
    >>> from fiveshot.features import embedded_features
    >>> embedded_features()
    FeatureSet('cub200': 5994 training and 5794 test vectors of 320 float16, 200 classes)
    """
    if name not in embedded_packs():
        raise unknown_name("embedded feature pack", name, embedded_packs())
    return FeatureSet.load(PACKS / f"{name}.safetensors")

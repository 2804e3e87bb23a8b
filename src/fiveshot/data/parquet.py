"""Parquet files as Hugging Face's ``datasets`` writes them: rows with labels, whose names are in the schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.draws import stratified_split
from fiveshot.data.dataset import ImageDataset, ImageSplit
from fiveshot.data.sources import BytesSource
from fiveshot.errors import InputError, StorageError, some_of
from fiveshot.extras import import_extra
from fiveshot.storage import FRESH_COPY

SUFFIX = ".parquet"
HUGGING_FACE_KEY = b"huggingface"  # the key of the schema's metadata with the features of a dataset
LABELS = (
    "label",
    "labels",
    "fine_label",
    "class",
    "target",
    "y",
)  # columns that may hold labels, the likeliest first
TRAIN, TESTS = "train", ("test", "val")  # how the names of splits begin


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Rows of Parquet files with their labels.

    Attributes
    ----------
    table : pyarrow.Table
        All rows, in the order of the files.
    labels : ndarray of shape (n_rows,)
        Indices into ``class_names``.
    is_test : ndarray of shape (n_rows,)
        Which rows belong to the test split; none if there is no test split.
    class_names : tuple of str
        From the schema's metadata, or the distinct labels in ascending order.
    """

    table: Any
    labels: NDArray[np.int64]
    is_test: NDArray[np.bool_]
    class_names: tuple[str, ...]

    def column(self, what: str, fits: Callable[[Any], bool], *, otherwise: str) -> Any:
        """Return the only column whose type fits; ``otherwise`` is the hint if there is none."""
        names = [field.name for field in self.table.schema if fits(field.type)]
        if len(names) > 1:
            found = f"these {len(names)} are such: {', '.join(names)}"
            raise InputError(f"needs one column of {what}; {found}", hint="leave the others out")
        if not names:
            has = some_of(self.table.schema.names, 8)
            raise InputError(f"needs one column of {what}; there is none (columns: {has})", hint=otherwise)
        return self.table[names[0]]


def is_parquet(path: Path) -> bool:
    """Tell whether a path is a Parquet file, or a folder of Parquet files."""
    if path.is_dir():  # among class folders, a table of answers may lie
        return any(path.glob(f"*{SUFFIX}")) and not any(inner.is_dir() for inner in path.iterdir())
    return path.name.lower().endswith(SUFFIX)


def read_parquet(path: Path) -> LabeledRows:
    """Read a Parquet file, or all of a folder.

    Splits are told by a column ``split`` or by the names of files (``train-00000-of-00001.parquet``). A validation
    split counts as the test split. Labels are texts or integers. Names of classes come from the metadata that
    ``datasets`` puts into the schema.

    Parameters
    ----------
    path : Path
        The file or folder.

    Returns
    -------
    LabeledRows
        All rows, in memory.

    Raises
    ------
    InputError
        When there are no labels, a row has none, or the files do not fit together.
    StorageError
        When a file cannot be read.
    """
    arrow, parquet = (import_extra(name, extra="parquet") for name in ("pyarrow", "pyarrow.parquet"))
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no Parquet files", hint="give the folder in which they are")
    try:
        tables = [parquet.read_table(file) for file in files]
    except (arrow.ArrowException, OSError) as error:
        raise StorageError(f"cannot read {path} as Parquet ({error})", hint=FRESH_COPY) from error
    try:
        names = _names(tables[0].schema)
        for file, table in zip(files, tables, strict=True):
            if not table.schema.equals(tables[0].schema) or _names(table.schema) != names:
                raise InputError(f"{file.name} has other columns or class names than {files[0].name}")
        table = arrow.concat_tables(tables)
        labels, classes = _labels(table, names)
        is_test = _test_rows(
            table, [file.name for file, rows in zip(files, tables, strict=True) for _ in range(rows.num_rows)]
        )
    except InputError as error:
        raise InputError(f"{path}: {error.message}", hint=error.hint) from error
    return LabeledRows(table, labels, is_test, classes)


def open_parquet(path: Path, *, seed: int, holdout: float = 0.2) -> ImageDataset:
    """Open the images of Parquet files; they are read into memory, encoded as they are.

    Parameters
    ----------
    path : Path
        A file, or a folder of files, with an image column: bytes, or a structure with ``bytes``.
    seed : int
        Seed for drawing the test images if there is no test split.
    holdout : float
        Share of every class that becomes the test split in that case.

    Returns
    -------
    ImageDataset
        The images.

    Raises
    ------
    InputError
        When there is no image column, or no labels.
    """
    rows = read_parquet(path)
    try:
        column = rows.column("images", _holds_images, otherwise="vectors need no extraction: bench --features")
    except InputError as error:
        raise InputError(f"{path} {error.message}", hint=error.hint) from error
    images = []
    for number, value in enumerate(column.to_pylist()):
        data = value.get("bytes") if isinstance(value, dict) else value
        if data is None:
            raise InputError(f"{path}: row {number} has no image bytes", hint="save the dataset with its images")
        own = value.get("path") if isinstance(value, dict) else None
        images.append(BytesSource(data, f"{path.name}#{number}" + (f" {own}" if own else "")))
    if rows.is_test.any():
        parts = np.flatnonzero(~rows.is_test), np.flatnonzero(rows.is_test)
    else:
        parts = stratified_split(rows.labels, held_out=holdout, seed=seed)
    train, test = (ImageSplit(tuple(images[row] for row in part), rows.labels[part]) for part in parts)
    return ImageDataset(path.stem, rows.class_names, train, test)


def _test_rows(table: Any, file_names: list[str]) -> NDArray[np.bool_]:
    """Tell which rows are to test with, by the column of splits or by the names of the files."""
    splits = file_names
    if "split" in table.schema.names:
        splits = table["split"].to_pylist()
        for row, split in enumerate(splits):
            if not isinstance(split, str) or not split.lower().startswith((TRAIN, *TESTS)):
                raise InputError(f"the split of row {row} is {split!r}", hint="name the splits train and test")
    tests = [np.array([split.lower().startswith(begin) for split in splits], dtype=bool) for begin in TESTS]
    if all(test.any() for test in tests):
        raise InputError("there is a test and a validation split", hint="keep the one to test with")
    is_test: NDArray[np.bool_] = tests[0] | tests[1]
    if is_test.all():  # a single file "test.parquet" is all there is
        is_test[:] = False
    return is_test


def _labels(table: Any, names: Mapping[str, tuple[str, ...]]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the label of each row, and the names of the classes."""
    columns = [name for name in (*names, *LABELS) if name in table.schema.names]
    if not columns:
        raise InputError(
            f"there are no labels (columns: {some_of(table.schema.names, 8)})", hint="name their column 'label'"
        )
    values, known = table[columns[0]].to_pylist(), names.get(columns[0])
    if not values:
        raise InputError("there are no rows")
    missing = [row for row, value in enumerate(values) if value is None or (known and value == -1)]
    if missing:
        raise InputError(f"row {missing[0]} has no label", hint="leave out rows without labels")
    if known is None:
        if {type(value) for value in values} not in ({str}, {int}):
            raise InputError(f"{columns[0]!r} must hold texts or integers, not {table[columns[0]].type}")
        distinct, labels = np.unique(np.array(values), return_inverse=True)
        return labels.astype(np.int64), tuple(str(value) for value in distinct)
    if not all(isinstance(value, int) and 0 <= value < len(known) for value in values):
        raise InputError(f"{columns[0]!r} must hold indices into its {len(known)} names")
    return np.array(values, dtype=np.int64), known


def _names(schema: Any) -> dict[str, tuple[str, ...]]:
    """Return the names of classes by column, from the metadata of the schema."""
    text = (schema.metadata or {}).get(HUGGING_FACE_KEY)
    try:
        features = json.loads(text)["info"]["features"] if text else {}
        found = {
            name: tuple(map(str, feature["names"]))
            for name, feature in features.items()
            if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the dataset's metadata in the schema is damaged ({error})", hint=FRESH_COPY) from error
    return found


def _holds_images(kind: Any) -> bool:
    types = import_extra("pyarrow.types", extra="parquet")
    if types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and _holds_images(kind.field(place).type)
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))

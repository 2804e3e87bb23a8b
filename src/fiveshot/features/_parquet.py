"""Feature files as Parquet: a column of vectors, and labels, as Hugging Face's ``datasets`` has them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fiveshot.data import HUGGING_FACE_KEY, read_parquet
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.features._npz import OWN_SPLIT, require_finite, split_whole, vectors
from fiveshot.features.feature_set import FeatureSet, Provenance
from fiveshot.storage import FRESH_COPY, FilePath, atomic_path

OWN_METADATA = b"fiveshot"  # the key of the schema's metadata with the provenance


def load_parquet(path: FilePath) -> FeatureSet:
    """Read vectors and labels from a Parquet file, or from a folder of them.

    One column must hold lists of numbers of one length. Labels are in a column that the schema calls class label
    or in ``label``. A column ``split``, or the names of the files, tell training from test rows. Without them, a
    fifth of each class is held out, as for an ``.npz`` of ``X`` and ``y``.

    Parameters
    ----------
    path : str or path
        The file or folder.

    Returns
    -------
    FeatureSet
        The vectors, in memory.

    Raises
    ------
    InputError
        When vectors or labels are missing.
    StorageError
        When a file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow, pyarrow.parquet
    >>> from fiveshot.features import load_parquet
    >>> table = pyarrow.table({"embedding": [[0.0, 1.0]] * 5 + [[1.0, 0.0]] * 5, "label": [0] * 5 + [1] * 5})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(table, f"{folder}/birds.parquet")
    ...     load_parquet(f"{folder}/birds.parquet").train_x.shape
    (8, 2)
    """
    path = Path(path)
    rows = read_parquet(path)
    types = import_extra("pyarrow.types", extra="parquet")
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    try:
        column = rows.column(
            "vectors",
            lambda kind: any(fits(kind) for fits in lists) and _is_number(kind.value_type),
            otherwise="images need: fiveshot extract",
        ).combine_chunks()
        if column.null_count:
            raise InputError("some rows have no vector")
        lengths = {len(value) for value in column}
        if len(lengths) != 1:
            raise InputError(f"vectors have different lengths: {min(lengths)} to {max(lengths)}")
        x = vectors(
            "embedding", column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), lengths.pop())
        )
        provenance = _provenance(path, rows.table.schema)
        train, test = np.flatnonzero(~rows.is_test), np.flatnonzero(rows.is_test)
        if not len(test):
            require_finite("embedding", x)
            train, test = split_whole(rows.labels)
            provenance = replace(provenance, note="; ".join(filter(None, (provenance.note, OWN_SPLIT))))
        y, names = rows.labels, _names(rows.table)
        known = FeatureSet(x[train], y[train], x[test], y[test], rows.class_names, provenance)
        if names is None:
            return known
        train_names, test_names = (tuple(names[row] for row in part) for part in (train, test))
        return replace(known, train_names=train_names, test_names=test_names)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", hint=error.hint) from error


def save_parquet(features: FeatureSet, path: FilePath) -> None:
    """Write features as a Parquet file with columns ``embedding``, ``label``, ``split`` and, if known, ``name``.

    The schema has the metadata of Hugging Face's ``datasets``, so that these read the names of the classes.
    """
    arrow, parquet = (import_extra(name, extra="parquet") for name in ("pyarrow", "pyarrow.parquet"))
    x = np.concatenate([features.train_x, features.test_x])
    splits = ["train"] * len(features.train_x) + ["test"] * len(features.test_x)
    columns = {
        "embedding": arrow.FixedSizeListArray.from_arrays(arrow.array(x.ravel()), features.n_features),
        "label": arrow.array(np.concatenate([features.train_y, features.test_y])),
        "split": arrow.array(splits),
    }
    described: dict[str, Any] = {
        "embedding": {
            "feature": {"dtype": str(x.dtype), "_type": "Value"},
            "length": features.n_features,
            "_type": "Sequence",
        },
        "label": {"names": list(features.class_names), "_type": "ClassLabel"},
        "split": {"dtype": "string", "_type": "Value"},
    }
    if features.train_names is not None and features.test_names is not None:
        columns["name"] = arrow.array([*features.train_names, *features.test_names])
        described["name"] = {"dtype": "string", "_type": "Value"}
    table = arrow.table(columns).replace_schema_metadata(
        {
            HUGGING_FACE_KEY: json.dumps({"info": {"features": described}}),
            OWN_METADATA: json.dumps(features.provenance.as_dict()),
        }
    )
    with atomic_path(Path(path)) as temporary:
        parquet.write_table(table, temporary)


def _names(table: Any) -> list[str] | None:
    """Return the names of the images in a file of ours: official lists of shots find images by them."""
    if OWN_METADATA not in (table.schema.metadata or {}) or "name" not in table.schema.names:
        return None
    return [str(name) for name in table["name"].to_pylist()]


def _provenance(path: Path, schema: Any) -> Provenance:
    """Return the provenance in a file of ours; that of others is unknown."""
    text = (schema.metadata or {}).get(OWN_METADATA)
    if text is None:
        return Provenance.unknown(path.stem, note=f"read from {path.name}")
    try:
        return Provenance.from_dict(json.loads(text))
    except (ValueError, TypeError, InputError) as error:
        raise StorageError(f"{path} has a damaged provenance ({error})", hint=FRESH_COPY) from error


def _is_number(kind: Any) -> bool:
    types = import_extra("pyarrow.types", extra="parquet")
    return bool(types.is_floating(kind) or types.is_integer(kind))

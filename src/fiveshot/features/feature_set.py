"""Feature vectors of a dataset with labels, split and provenance: one frozen value, one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import InitVar, dataclass

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError, unknown_name
from fiveshot.features import feature_file
from fiveshot.features.checks import (
    Labels,
    Vectors,
    check_class_names,
    check_vectors,
    checked_labels,
    listing,
)
from fiveshot.features.provenance import Provenance


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Training and test vectors of a dataset, checked when it is made.

    Labels are indices into ``class_names``. The arrays are kept as they are given (half precision stays half
    precision) and are not to be written to. ``vectors_checked=True`` skips the pass over all vectors that
    looks for NaN and infinity; ``load`` uses it, because ``save`` writes only what was checked.

    >>> import numpy as np
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
        """Refuse anything a benchmark could not run on, naming what is wrong."""
        check_class_names(self.class_names)
        for split in ("train", "test"):
            check_vectors(split, getattr(self, f"{split}_x"), finite=not vectors_checked)
            labels = checked_labels(split, getattr(self, f"{split}_y"), len(self.class_names))
            object.__setattr__(self, f"{split}_y", labels)
            for what, values in (("labels", labels), ("names", getattr(self, f"{split}_names"))):
                if values is not None and len(values) != len(getattr(self, f"{split}_x")):
                    raise InputError(
                        f"{split}: {len(getattr(self, f'{split}_x'))} vectors but {len(values)} {what}"
                    )
        if self.train_x.shape[1] != self.test_x.shape[1]:
            raise InputError(
                f"training vectors have {self.train_x.shape[1]} values, test vectors {self.test_x.shape[1]}; "
                "both must come from the same backbone"
            )
        if len(self.train_x) == 0:
            raise InputError("no training vectors")
        untrained = np.setdiff1d(self.test_y, self.train_y)
        if len(untrained):
            raise InputError(
                f"{listing([self.class_names[label] for label in untrained])}: test vectors but no training "
                "vectors; add training vectors or leave the test vectors out"
            )

    def __repr__(self) -> str:
        """Say what the set holds instead of printing its arrays."""
        return (
            f"FeatureSet({self.provenance.dataset!r}: {len(self.train_x)} training and {len(self.test_x)} "
            f"test vectors of {self.n_features} {self.train_x.dtype}, {len(self.class_names)} classes)"
        )

    @property
    def n_features(self) -> int:
        """Number of values in a vector."""
        return int(self.train_x.shape[1])

    def restrict(self, class_names: Sequence[str]) -> FeatureSet:
        """Return the set of these classes only, labelled in the order given.

        Only the rows of these classes are read from a mapped file; where they lie together they are not
        copied either.
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything into one safetensors file; the file is complete or absent."""
        feature_file.write(
            path,
            {name: getattr(self, name) for name in feature_file.ARRAYS},
            {split: getattr(self, split) for split in feature_file.NAMES},
            {"class_names": list(self.class_names), "provenance": self.provenance.as_dict()},
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FeatureSet:
        """Map a file written by ``save`` into memory; vectors are read from it when they are used."""
        with feature_file.damaged(path):
            arrays, names, meta = feature_file.read(path)
            return cls(
                arrays["train_x"],
                arrays["train_y"],
                arrays["test_x"],
                arrays["test_y"],
                tuple(meta["class_names"]),
                Provenance.from_dict(meta["provenance"]),
                names.get("train_names"),
                names.get("test_names"),
                vectors_checked=True,
            )


def _rows(chosen: NDArray[np.bool_]) -> slice | NDArray[np.intp]:
    rows = np.flatnonzero(chosen)
    together = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else rows


def _picked(names: tuple[str, ...] | None, rows: slice | NDArray[np.intp]) -> tuple[str, ...] | None:
    if names is None:
        return None
    return names[rows] if isinstance(rows, slice) else tuple(names[row] for row in rows)

"""Small sessions of labeled features that heads are checked with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.extras import import_extra

Rows = dict[int, NDArray[Any]]  # label → (n, d)

N_FEATURES = 16
BASE = {10: 7, 30: 20, 50: 6, 20: 9, 40: 5}  # class → samples: one class has more than there are features
FIRST = {25: 3, 5: 1}  # new classes sort among, before and after the base classes; one is seen once
SECOND = {60: 4}


def draw(counts: dict[int, int], *, seed: int = 0, n_features: int = N_FEATURES, dtype: Any = np.float64) -> Rows:
    """Draw correlated samples; a class's distribution depends on its label alone, its samples on the seed too.

    >>> {label: rows.shape for label, rows in draw(FIRST).items()}
    {25: (3, 16), 5: (1, 16)}
    """
    rows = {}
    for label, count in counts.items():
        own = np.random.default_rng([label, 1])
        mean, mixing = 10 + 6 * own.normal(size=n_features), own.normal(size=(n_features, n_features))
        noise = np.random.default_rng([label, 2, seed]).normal(size=(count, n_features))
        rows[label] = (mean + noise @ mixing * 2).astype(dtype)
    return rows


_library: ContextVar[str] = ContextVar("library", default="numpy")


@contextmanager
def library(name: str) -> Iterator[None]:
    """Have features made by this library inside the block."""
    before = _library.set(name)
    try:
        yield
    finally:
        _library.reset(before)


def made(array: NDArray[Any]) -> Any:
    """Return an array in the library that is checked; it shares the memory."""
    return array if _library.get() == "numpy" else import_extra(_library.get(), extra="torch").from_numpy(array)


def is_exact() -> bool:
    """Tell whether a file must bring back the same bits: it holds arrays of NumPy."""
    return _library.get() == "numpy"


def joined(rows: Rows) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features and labels as NumPy has them, class by class."""
    return np.concatenate(list(rows.values())), np.repeat(list(rows), [len(part) for part in rows.values()])


def flat(rows: Rows) -> tuple[Any, NDArray[Any]]:
    """Return features and labels, class by class."""
    X, y = joined(rows)
    return made(X), y


def shuffled(rows: Rows, seed: int = 0) -> tuple[Any, NDArray[Any]]:
    """Return features and labels in a random order."""
    X, y = joined(rows)
    order = np.random.default_rng(seed).permutation(len(y))
    return made(X[order]), y[order]


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """Return the first half of every class's samples, the larger one, and the second."""
    middle = {label: (len(part) + 1) // 2 for label, part in rows.items()}
    return {k: v[: middle[k]] for k, v in rows.items()}, {k: v[middle[k] :] for k, v in rows.items()}


def without(rows: Rows, *labels: int) -> Rows:
    """Return the samples of all other classes."""
    return {label: part for label, part in rows.items() if label not in labels}


def queries(n: int = 23, dtype: Any = np.float64) -> Any:
    """Return samples to score, of all classes."""
    rows = draw(dict.fromkeys((*BASE, *FIRST, *SECOND), n // 8 + 1), seed=99, dtype=dtype)
    return made(joined(rows)[0][:n])

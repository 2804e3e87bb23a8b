"""Small sessions of labelled features that heads are checked with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def flat(rows: Rows) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features and labels, class by class."""
    return np.concatenate(list(rows.values())), np.repeat(list(rows), [len(part) for part in rows.values()])


def shuffled(rows: Rows, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features and labels in a random order."""
    X, y = flat(rows)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order], y[order]


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """Return the first half of every class's samples, the larger one, and the second."""
    middle = {label: (len(part) + 1) // 2 for label, part in rows.items()}
    return {k: v[: middle[k]] for k, v in rows.items()}, {k: v[middle[k] :] for k, v in rows.items()}


def without(rows: Rows, *labels: int) -> Rows:
    """Return the samples of all other classes."""
    return {label: part for label, part in rows.items() if label not in labels}


def queries(n: int = 23, dtype: Any = np.float64) -> NDArray[Any]:
    """Return samples to score, of all classes."""
    rows = draw(dict.fromkeys((*BASE, *FIRST, *SECOND), n // 8 + 1), seed=99, dtype=dtype)
    return flat(rows)[0][:n]

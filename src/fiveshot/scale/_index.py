"""The nearest of very many classes without looking at all of them.

With one covariance for all classes, a class's score for a whitened vector z is

    s_c(z) = −½ ‖z − m_c‖² + b_c,

with whitened means m_c and additive offsets b_c. One more coordinate, √(2 (b_max − b_c)) for the classes and zero
for the vectors, makes the offset part of the distance: the best class is the nearest neighbor. Libraries find
that by looking at a small share of the classes; the scores of what they find are then computed exactly.

Models and heads do not use this: they compare with all classes, which is fast enough up to some 50,000. It is a
function of vectors, for programs that serve more classes themselves, and what ``benchmarks/scale.py`` measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError
from fiveshot.extras import import_extra

Floats = NDArray[np.float32]
ROWS_AT_ONCE = 256
SEARCHED_DIMENSIONS = 64
TRAINED_ON = 50_000  # classes, drawn at random


@dataclass(frozen=True, eq=False)
class Nearest:
    """For each vector the classes of the highest scores, the best first."""

    scores: Floats  # (n, top)
    positions: NDArray[np.int64]  # (n, top): rows of the class vectors


def exact_nearest(queries: Floats, classes: Floats, offsets: Floats, *, top: int = 5) -> Nearest:
    """Compare vectors with all classes.

    Parameters
    ----------
    queries : float32 array (n, d)
        The vectors.
    classes : float32 array (C, d)
        The vectors of the classes.
    offsets : float32 array (C,)
        What is added to the scores of each class.
    top : int, default 5
        How many classes to find for each vector.

    Returns
    -------
    Nearest
        The classes of the highest scores, and these scores.

    Raises
    ------
    InputError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.scale import exact_nearest
    >>> classes, offsets = np.eye(2, dtype=np.float32), np.float32([0, 0.25])
    >>> found = exact_nearest(np.zeros((1, 2), np.float32), classes, offsets, top=1)
    >>> found.positions.tolist(), found.scores.tolist()
    ([[1]], [[-0.25]])
    """
    _check(queries, classes, offsets)
    top = min(top, len(classes))
    constants = offsets - 0.5 * _squares(classes)
    scores = np.empty((len(queries), top), np.float32)
    positions = np.empty((len(queries), top), np.int64)
    for start in range(0, len(queries), ROWS_AT_ONCE):
        part = queries[start : start + ROWS_AT_ONCE]
        values = part @ classes.T + constants
        best = np.argpartition(-values, top - 1, axis=1)[:, :top]
        found = _ordered(np.take_along_axis(values, best, axis=1), best)
        scores[start : start + len(part)] = found.scores - 0.5 * _squares(part)[:, None]
        positions[start : start + len(part)] = found.positions
    return Nearest(scores, positions)


def with_offsets(classes: Floats, offsets: Floats) -> Floats:
    """Return class vectors with the coordinate that stands for their offsets, (C, d + 1).

    >>> with_offsets(np.zeros((2, 1), np.float32), np.float32([2, 0])).tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """
    extra = np.sqrt(2 * (offsets.max() - offsets))
    return np.concatenate([classes, extra[:, None]], axis=1).astype(np.float32)


def linear_offsets(weights: Floats, constants: Floats) -> Floats:
    """Return the offsets, (C,), with which distances rank classes as the linear scores z·w_c + k_c do.

    −½‖z − w‖² + k + ½‖w‖² = z·w + k − ½‖z‖²: a head that scores by products is searched in the same way.

    >>> weights, constants = np.float32([[3, 0], [0, 1]]), np.float32([0, 2.5])
    >>> vectors = np.float32([[1, 1]])
    >>> exact_nearest(vectors, weights, linear_offsets(weights, constants), top=1).positions.tolist()
    [[1]]
    """
    return (constants + 0.5 * _squares(weights)).astype(np.float32)


@dataclass(frozen=True, eq=False)
class ClassIndex:
    """Finds near classes through FAISS: rotated to their main directions, cut to the first, and in cells.

    What is found is compared exactly in all dimensions, so scores are exact; only the best class may be missed.
    Models do not use it by themselves. :meth:`build` makes one.

    Attributes
    ----------
    index : faiss.Index
        Finds candidates.
    classes : float32 array (C, d)
        The vectors of the classes.
    offsets : float32 array (C,)
        What is added to the scores of each class.
    candidates : int
        How many classes are compared exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.scale import ClassIndex
    >>> rng = np.random.default_rng(0)
    >>> classes = rng.normal(size=(20_000, 8)).astype(np.float32)
    >>> index = ClassIndex.build(classes, np.zeros(20_000, np.float32), seed=0)
    >>> index.nearest(classes[7:10] + np.float32(0.01), top=1).positions.tolist()
    [[7], [8], [9]]
    """

    index: Any
    classes: Floats  # (C, d)
    offsets: Floats  # (C,)
    candidates: int

    @classmethod
    def build(
        cls,
        classes: Floats,
        offsets: Floats,
        *,
        seed: int,
        dimensions: int = SEARCHED_DIMENSIONS,
        effort: float = 0.125,
        candidates: int = 32,
    ) -> ClassIndex:
        """Index classes.

        Parameters
        ----------
        classes : float32 array (C, d)
            The vectors of the classes.
        offsets : float32 array (C,)
            What is added to the scores of each class.
        seed : int
            Seed of the training of the cells.
        dimensions : int, default 64
            How many of the main directions are searched.
        effort : float, default 0.125
            Share of the cells that is searched.
        candidates : int, default 32
            How many classes are compared exactly.

        Returns
        -------
        ClassIndex
            The index.

        Raises
        ------
        InputError
            If the shapes do not fit, or FAISS is not installed.
        """
        faiss = import_extra("faiss", extra="index")
        _check(classes, classes, offsets)
        if not 0 < effort <= 1:
            raise InputError(f"effort must lie in (0, 1], got {effort}", hint="the default is 0.125")
        points = with_offsets(np.asarray(classes, np.float32), np.asarray(offsets, np.float32))
        cells = 2 ** max(0, round(math.log2(math.sqrt(len(points)) * 3)))
        index = faiss.index_factory(points.shape[1], f"PCA{min(dimensions, points.shape[1])},IVF{cells},Flat")
        cell_index = faiss.extract_index_ivf(index)
        cell_index.cp.seed, cell_index.nprobe = seed, max(1, round(effort * cells))
        drawn = np.random.default_rng(seed).permutation(len(points))[:TRAINED_ON]
        index.train(points[np.sort(drawn)])
        index.add(points)
        return cls(index, points[:, :-1].copy(), np.asarray(offsets, np.float32), candidates)

    def nearest(self, queries: Floats, *, top: int = 5) -> Nearest:
        """Return the best classes of (n, d) vectors; the same as ``exact_nearest`` but for rare misses."""
        _check(queries, self.classes, self.offsets)
        points = np.concatenate([queries, np.zeros((len(queries), 1), np.float32)], axis=1)
        _, found = self.index.search(points, min(max(self.candidates, top), len(self.classes)))
        missing = found < 0  # where the cells held fewer classes than were asked for
        near = self.classes[np.where(missing, 0, found)]  # (n, k, d)
        scores = -0.5 * np.square(near - queries[:, None]).sum(axis=2) + self.offsets[found]
        scores[missing] = -np.inf
        ordered = _ordered(scores, found)
        return Nearest(ordered.scores[:, :top], ordered.positions[:, :top])


def recall(found: Nearest, exact: Nearest) -> float:
    """Return the share of vectors whose best class was found."""
    return float(np.mean(found.positions[:, 0] == exact.positions[:, 0]))


def _ordered(scores: Any, positions: Any) -> Nearest:
    order = np.argsort(-scores, axis=1, kind="stable")
    return Nearest(np.take_along_axis(scores, order, axis=1), np.take_along_axis(positions, order, axis=1))


def _squares(rows: Floats) -> Floats:
    squares: Floats = np.einsum("ij,ij->i", rows, rows)
    return squares


def _check(queries: Floats, classes: Floats, offsets: Floats) -> None:
    if classes.ndim != 2 or not len(classes) or offsets.shape != (len(classes),):
        raise InputError(
            f"class vectors {classes.shape} and offsets {offsets.shape} do not fit", hint="give one offset a class"
        )
    if queries.ndim != 2 or queries.shape[1] != classes.shape[1]:
        raise InputError(f"vectors of shape {queries.shape} cannot be compared with classes of {classes.shape}")

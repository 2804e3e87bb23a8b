from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveshot.errors import InputError
from fiveshot.scale._index import ClassIndex, Nearest, exact_nearest, linear_offsets, recall, with_offsets


def classes_and_queries(seed: int, n: int, d: int, queries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return whitened class means with a falling spectrum, offsets, and vectors of these classes."""
    rng = np.random.default_rng(seed)
    means = (
        rng.standard_normal((n, d), dtype=np.float32) * np.float32(3) / np.sqrt(1 + np.arange(d, dtype=np.float32))
    )
    offsets = rng.normal(0, 0.5, n).astype(np.float32)
    own = means[rng.integers(0, n, queries)]
    return means, offsets, own + rng.standard_normal(own.shape, dtype=np.float32)


def by_the_formula(queries: np.ndarray, classes: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    differences = queries[:, None].astype(np.float64) - classes[None]
    return -0.5 * np.square(differences).sum(axis=2) + offsets


@given(st.integers(0, 999), st.integers(1, 40), st.integers(1, 7), st.integers(1, 9))
def test_exact_search_follows_the_formula(seed: int, n: int, d: int, top: int) -> None:
    classes, offsets, queries = classes_and_queries(seed, n, d, 5)
    scores = by_the_formula(queries, classes, offsets)
    found = exact_nearest(queries, classes, offsets, top=top)
    assert found.scores.shape == (5, min(top, n))
    expected = np.sort(scores, axis=1)[:, ::-1][:, :top]
    assert np.allclose(found.scores, expected, atol=1e-4)
    assert np.allclose(np.take_along_axis(scores, found.positions, axis=1), expected, atol=1e-4)


@given(st.integers(0, 999), st.integers(2, 30), st.integers(1, 6))
def test_offsets_are_one_more_coordinate(seed: int, n: int, d: int) -> None:
    """The nearest neighbor in d + 1 dimensions is the class of the highest score in d."""
    classes, offsets, queries = classes_and_queries(seed, n, d, 4)
    points = with_offsets(classes, offsets).astype(np.float64)
    padded = np.concatenate([queries, np.zeros((4, 1))], axis=1)
    squared = np.square(padded[:, None] - points[None]).sum(axis=2)
    assert np.allclose(-0.5 * squared + offsets.max(), by_the_formula(queries, classes, offsets), atol=1e-4)


@given(st.integers(0, 999), st.integers(2, 30), st.integers(1, 6))
def test_linear_scores_are_the_same_search(seed: int, n: int, d: int) -> None:
    weights, constants, queries = classes_and_queries(seed, n, d, 4)
    found = exact_nearest(queries, weights, linear_offsets(weights, constants), top=n)
    scores = queries.astype(np.float64) @ weights.T + constants
    assert (np.diff(np.take_along_axis(scores, found.positions, axis=1), axis=1) <= 1e-4).all()


@pytest.fixture(scope="module")
def many() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return classes_and_queries(0, 6000, 48, 300)


def test_an_index_finds_nearly_all_of_the_best(many: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    pytest.importorskip("faiss", reason="the extra 'index' is not installed")
    classes, offsets, queries = many
    exact = exact_nearest(queries, classes, offsets, top=3)
    index = ClassIndex.build(classes, offsets, seed=0, dimensions=24, effort=0.25)
    found = index.nearest(queries, top=3)
    assert recall(found, exact) >= 0.97
    same = found.positions == exact.positions
    assert np.allclose(found.scores[same], exact.scores[same], atol=1e-3), "scores are exact in all dimensions"
    assert (np.diff(found.scores, axis=1) <= 0).all()
    again = ClassIndex.build(classes, offsets, seed=0, dimensions=24, effort=0.25).nearest(queries, top=3)
    assert (again.positions == found.positions).all()


def test_all_cells_and_dimensions_are_the_exact_search(many: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    pytest.importorskip("faiss", reason="the extra 'index' is not installed")
    classes, offsets, queries = many
    index = ClassIndex.build(classes, offsets, seed=0, dimensions=49, effort=1.0)
    assert recall(index.nearest(queries, top=1), exact_nearest(queries, classes, offsets, top=1)) == 1.0


def test_less_effort_finds_less(many: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    pytest.importorskip("faiss", reason="the extra 'index' is not installed")
    classes, offsets, queries = many
    exact = exact_nearest(queries, classes, offsets, top=1)
    shares = [
        recall(ClassIndex.build(classes, offsets, seed=0, effort=effort).nearest(queries, top=1), exact)
        for effort in (0.004, 0.5)
    ]
    assert shares[0] < shares[1]


def test_recall_counts_the_best_alone() -> None:
    scores = np.zeros((2, 2), np.float32)
    one, other = np.array([[1, 2], [3, 4]]), np.array([[1, 9], [4, 3]])
    assert recall(Nearest(scores, one), Nearest(scores, other)) == 0.5


@pytest.mark.parametrize(
    ("queries", "classes", "offsets", "message"),
    [
        ((2, 3), (4, 3), (5,), r"class vectors \(4, 3\) and offsets \(5,\) do not fit"),
        ((2, 3), (0, 3), (0,), "do not fit"),
        ((2, 4), (4, 3), (4,), r"vectors of shape \(2, 4\) cannot be compared"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    queries: tuple[int, ...], classes: tuple[int, ...], offsets: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        exact_nearest(*(np.zeros(shape, np.float32) for shape in (queries, classes, offsets)))


def test_an_effort_beyond_all_cells_is_refused() -> None:
    pytest.importorskip("faiss", reason="the extra 'index' is not installed")
    with pytest.raises(InputError, match="effort must lie in"):
        ClassIndex.build(np.eye(3, dtype=np.float32), np.zeros(3, np.float32), seed=0, effort=1.5)

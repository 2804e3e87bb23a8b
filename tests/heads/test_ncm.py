from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, draw, flat, queries
from oracles import ncm_scores
from sklearn.neighbors import NearestCentroid

from fiveshot.core import Calibration
from fiveshot.core.distances import squared_euclidean
from fiveshot.heads import NCM

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, st = hypothesis.given, hypothesis.strategies

CALIBRATIONS = [
    None,
    Calibration(alpha=0.9),
    Calibration(alpha=0.5, tau=2.0, similarity="cosine"),
    Calibration(alpha=0.75, prototypes="unit"),
    Calibration(alpha=0.9, similarity="dot"),
]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("calibration", CALIBRATIONS, ids=str)
def test_scores_are_the_formulas(metric: str, calibration: Calibration | None) -> None:
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()
    head = NCM(metric, calibration=calibration).fit(*flat(base)).partial_fit(*flat(new))
    expected = ncm_scores(base, new, X, metric=metric, calibration=calibration)
    np.testing.assert_allclose(head.class_scores(X), expected, rtol=1e-10, atol=1e-10)
    assert head.classes_.tolist() == sorted(base | new)


def test_the_euclidean_head_is_scikit_learns_nearest_centroid() -> None:
    """They coincide without calibration and with equal priors, which the other has by default."""
    X, y = flat(draw(BASE | FIRST))
    test = queries(200)
    ours = NCM("euclidean").fit(X, y).predict(test)
    assert ours.tolist() == NearestCentroid().fit(X, y).predict(test).tolist()
    assert len(set(ours.tolist())) > 4


def test_teen_is_ncm_with_moved_means_of_new_classes_only() -> None:
    base, new, X = draw(BASE), draw(SECOND), queries()
    plain = NCM("euclidean").fit(*flat(base)).partial_fit(*flat(new)).class_scores(X)
    teen = NCM("euclidean", calibration=Calibration()).fit(*flat(base)).partial_fit(*flat(new)).class_scores(X)
    np.testing.assert_array_equal(teen[:, :-1], plain[:, :-1])
    assert (teen[:, -1] != plain[:, -1]).all()


def test_cosine_does_not_see_the_length_of_a_vector() -> None:
    base, X = draw(BASE), queries()
    head = NCM("cosine").fit(*flat(base))
    np.testing.assert_allclose(head.class_scores(X * 1000), head.class_scores(X), rtol=1e-12)
    assert np.abs(head.class_scores(X)).max() <= 1 + 1e-12


def test_a_zero_vector_scores_zero_not_nan() -> None:
    head = NCM("cosine").fit(np.array([[0.0, 0.0], [1.0, 0.0]]), [0, 1])
    np.testing.assert_array_equal(head.class_scores([[0.0, 0.0], [2.0, 0.0]]), [[0, 0], [0, 1]])


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_euclidean_distances_survive_a_far_offset_in_single_precision(offset: float) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(-8, 8, size=(40, 5)) + offset, np.arange(40) % 4  # exact in single precision
    head = NCM("euclidean").fit(X.astype(np.float32), y)
    means = np.stack([X[y == label].mean(axis=0) for label in range(4)])
    exact = -((X[:, None] - means) ** 2).sum(axis=2)
    np.testing.assert_allclose(head.class_scores(X.astype(np.float32)), exact, atol=0.05)


def test_squared_distances_are_not_negative() -> None:
    points = np.float32(1e3) + np.arange(3, dtype=np.float32)[:, None] * np.full((3, 4), 1e-3, np.float32)
    assert squared_euclidean(points, points, origin=np.zeros(4, np.float32)).min() >= 0


@st.composite
def sessions(draw_: st.DrawFn) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    d, n_sessions = draw_(st.integers(1, 4)), draw_(st.integers(1, 4))
    rng = np.random.default_rng(draw_(st.integers(0, 2**32 - 1)))
    sizes = draw_(st.lists(st.integers(1, 3), min_size=2 * n_sessions + 2, max_size=2 * n_sessions + 2))
    labels = rng.permutation(100)[: len(sizes)]
    parts = [(rng.normal(size=(n, d)), np.repeat(label, n)) for n, label in zip(sizes, labels, strict=True)]
    base = (np.concatenate([X for X, _ in parts[:2]]), np.concatenate([y for _, y in parts[:2]]))
    return [base, *parts[2:]], rng.normal(size=(7, d))


@given(data=sessions(), metric=st.sampled_from(["cosine", "euclidean"]), seed=st.integers(0, 99))
def test_the_order_of_new_classes_does_not_matter(data: tuple, metric: str, seed: int) -> None:
    (base, *new), X = data
    one, other = (NCM(metric, calibration=Calibration()).fit(*base) for _ in range(2))
    for part in new:
        one.partial_fit(*part)
    for i in np.random.default_rng(seed).permutation(len(new)):
        other.partial_fit(*new[i])
    np.testing.assert_array_equal(one.class_scores(X), other.class_scores(X))


@given(data=sessions(), metric=st.sampled_from(["cosine", "euclidean"]), which=st.integers(0, 99))
def test_a_forgotten_class_was_never_there(data: tuple, metric: str, which: int) -> None:
    all_sessions, X = data
    labels = [label for _, y in all_sessions for label in np.unique(y).tolist()]
    gone = labels[which % len(labels)]
    head, never = (NCM(metric, calibration=Calibration()) for _ in range(2))
    for features, y in all_sessions:
        head.partial_fit(features, y)
        if (y != gone).any():
            never.partial_fit(features[y != gone], y[y != gone])
    head.forget(gone)
    assert head.classes_.tolist() == never.classes_.tolist()
    np.testing.assert_array_equal(head.class_scores(X), never.class_scores(X))

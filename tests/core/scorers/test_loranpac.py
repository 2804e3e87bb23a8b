"""LoRanPAC beside singular values of NumPy, session by session."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, draw, flat, queries

from fiveshot.core.scorers import LoRanPACScorer, RanPACScorer
from fiveshot.errors import InputError

SESSIONS = (draw(BASE), draw(FIRST), draw(SECOND), draw({30: 4, 25: 2}, seed=5))


def lifted(head: LoRanPACScorer, X: np.ndarray) -> np.ndarray:
    return np.maximum(X @ head.model.feature_map.projection, 0)


def one_hot(y: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (y[:, None] == labels).astype(float)


@pytest.mark.parametrize("truncation", [0.0, 0.25, 0.6])
@pytest.mark.parametrize("width", [20, 400])  # more samples than random features, and fewer
def test_sessions_are_the_truncated_decomposition_of_what_was_kept(width: int, truncation: float) -> None:
    head = LoRanPACScorer(width, truncation=truncation)
    kept, rows, targets = np.zeros((0, width)), np.zeros((0, width)), np.zeros(0, dtype=int)
    for session in SESSIONS:
        X, y = flat(session)
        head = head.learn(X, y)
        rows, targets = np.concatenate([rows, lifted(head, X)]), np.concatenate([targets, y])
        _, values, right = np.linalg.svd(np.concatenate([kept, lifted(head, X)]), full_matrices=False)
        rank = round((1 - truncation) * min(len(rows), width))
        values, right = values[:rank], right[:rank]
        kept = values[:, None] * right
        sums = one_hot(targets, np.unique(targets)).T @ rows
        weights = sums @ right.T @ np.diag(values**-2) @ right
        expected = lifted(head, queries()) @ weights.T
        np.testing.assert_allclose(head.scores(queries()), expected, atol=1e-6 * np.abs(expected).max())


def test_with_nothing_dropped_it_is_least_squares_of_least_norm() -> None:
    head = LoRanPACScorer(400, truncation=0.0)
    for session in SESSIONS:
        head = head.learn(*flat(session))
    X, y = (np.concatenate(part) for part in zip(*map(flat, SESSIONS), strict=True))
    weights = np.linalg.pinv(lifted(head, X)) @ one_hot(y, head.classes)
    np.testing.assert_allclose(head.scores(queries()), lifted(head, queries()) @ weights, atol=1e-6)


def test_the_random_features_are_those_of_ranpac() -> None:
    X, y = flat(draw(BASE))
    ours, theirs = LoRanPACScorer(30, random_state=4).learn(X, y), RanPACScorer(30, random_state=4).learn(X, y)
    np.testing.assert_array_equal(ours.model.feature_map.projection, theirs.model.feature_map.projection)


def test_features_that_are_all_zero_say_nothing() -> None:
    head = LoRanPACScorer(30).learn(np.zeros((4, 3)), [0, 0, 1, 1])
    np.testing.assert_array_equal(head.scores(np.ones((2, 3))), np.zeros((2, 2)))


def test_a_class_cannot_be_taken_out_of_the_decomposition() -> None:
    head = LoRanPACScorer(30).learn(*flat(draw(BASE))).learn(*flat(draw(FIRST)))
    before = head.scores(queries())
    with pytest.raises(InputError, match="cannot forget 25"):
        head.forget(25)
    np.testing.assert_array_equal(head.scores(queries()), before)

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fiveshot.errors import InputError
from fiveshot.metrics import generalized_accuracy, run_metrics, trade_off
from fiveshot.metrics._sessions import SessionPredictions


@pytest.mark.parametrize(("sessions", "ratio"), [(2, 1), (2, 12), (3, 5), (4, 2), (6, 12)])
def test_gacc_is_the_sum_spelled_out(sessions: int, ratio: int) -> None:
    rows = [np.random.default_rng([ratio, i]).random(i + 1).tolist() for i in range(sessions)]
    curve = []
    for weight in range(ratio + 1):
        after = []
        for row in rows:
            total = weight + len(row) - 1
            after.append((weight * row[0] + sum(row[1:])) / total if total else 0.0)
        curve.append(sum(after) / sessions)
    area = sum((a + b) / 2 for a, b in itertools.pairwise(curve)) / ratio
    matrix = np.full((sessions, sessions), np.nan)
    for i, row in enumerate(rows):
        matrix[i, : i + 1] = row
    found = generalized_accuracy(matrix, ratio)
    assert found.values == pytest.approx(curve)
    assert found.area == pytest.approx(area)


def test_gacc_of_perfect_predictions_is_short_of_one_by_the_base_session_alone() -> None:
    # At weight 0 the base session counts nothing, as the authors have it: half a step of the trapezoid is lost.
    perfect = np.tril(np.ones((3, 3))) + np.triu(np.full((3, 3), np.nan), 1)
    assert generalized_accuracy(perfect, 5).area == pytest.approx(1 - (1 / 3) / 2 / 5)


def test_a_ratio_between_whole_numbers_ends_the_curve() -> None:
    matrix = [[0.5, np.nan], [0.5, 0.5]]
    assert generalized_accuracy(matrix, 2.5).weights == (0, 1, 2, 2.5)
    assert generalized_accuracy(matrix, 0.5).weights == (0, 0.5)


@pytest.mark.parametrize(("matrix", "ratio"), [([[1.0]], 2), ([[1.0, np.nan], [1.0, 1.0]], 0), ([[1.0, 0.5]], 1)])
def test_gacc_refuses_what_it_cannot_weigh(matrix: list[list[float]], ratio: float) -> None:
    with pytest.raises(InputError):
        generalized_accuracy(matrix, ratio)


def test_a_run_has_gacc_with_its_own_ratio() -> None:
    first = SessionPredictions((0, 1, 2, 3), np.arange(4), np.array([0, 1, 2, 2]))
    second = SessionPredictions((4, 5), np.arange(6), np.array([0, 1, 2, 2, 4, 0]))
    found = run_metrics([first, second])
    assert found.g_acc == generalized_accuracy([[0.75, np.nan], [0.75, 0.5]], 2).area
    assert run_metrics([first]).g_acc is None


def pointwise(scores: np.ndarray, y: np.ndarray, new: np.ndarray) -> list[tuple[float, float]]:
    """Return the accuracies on base and new classes for a shift between any two margins and beyond."""
    margins = scores[:, ~new].max(axis=1) - scores[:, new].max(axis=1)
    edges = np.unique(margins)
    shifts = [edges[0] - 1, *((a + b) / 2 for a, b in itertools.pairwise(edges)), edges[-1] + 1]
    points = []
    for shift in shifts:
        right = (scores + shift * new).argmax(axis=1) == y
        points.append((right[~new[y]].mean(), right[new[y]].mean()))
    return points


@pytest.mark.parametrize("samples", [4, 5, 8, 13, 21, 40])
def test_the_area_is_that_of_every_shift_tried(samples: int) -> None:
    rng = np.random.default_rng(samples)
    new = np.array([False, False, True, True, True])
    y = np.concatenate([[0, 2], rng.integers(5, size=samples)])
    # Sums of powers of two, so that equal margins are equal; no ties between columns.
    scores = rng.integers(-16, 16, size=(len(y), 5)) / 8 + np.eye(5)[y] + np.arange(5) / 1024
    points = pointwise(scores, y, new)
    area = sum((a[0] - b[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))
    found = trade_off(scores, y, new)
    assert found.area == pytest.approx(area, abs=1e-12)
    assert (found.base[0], found.base[-1]) == (0, pytest.approx(points[0][0]))
    assert found.new[0] == pytest.approx(points[-1][1])


def test_the_area_does_not_see_a_lean_to_one_side() -> None:
    rng = np.random.default_rng(1)
    new = np.arange(6) >= 3
    y = rng.integers(6, size=200)
    scores = rng.normal(size=(200, 6)) + 2 * np.eye(6)[y]
    leaning = scores - 5.0 * new
    assert (leaning.argmax(axis=1) == y)[new[y]].mean() < 0.1
    assert trade_off(leaning, y, new).area == pytest.approx(trade_off(scores, y, new).area)


@pytest.mark.parametrize(
    ("y", "new"), [([0, 0], [False, True]), ([0, 1], [False, False]), ([0, 1], [True, True]), ([0], [False, True])]
)
def test_a_trade_off_needs_both_kinds(y: list[int], new: list[bool]) -> None:
    with pytest.raises(InputError):
        trade_off(np.eye(2), y, new)

from __future__ import annotations

import numpy as np
import pytest

from fiveshot.errors import InputError
from fiveshot.metrics import expected_calibration_error


def spelled_out(p, y, bins):
    total = 0.0
    for m in range(bins):
        low, high = m / bins, (m + 1) / bins
        inside = [k for k in range(len(p)) if low < p[k].max() <= high]
        if inside:
            right = np.mean([p[k].argmax() == y[k] for k in inside])
            total += len(inside) / len(p) * abs(right - np.mean([p[k].max() for k in inside]))
    return total


@pytest.mark.parametrize("seed", range(10))
def test_is_the_definition_spelled_out(seed):
    rng = np.random.default_rng(seed)
    n, classes, bins = rng.integers(1, [41, 7, 21])
    p = rng.dirichlet(np.full(classes, 0.5), n)
    y = rng.integers(0, classes, n)
    assert expected_calibration_error(p, y, bins) == pytest.approx(spelled_out(p, y, bins), abs=1e-12)


def test_bins_are_closed_on_the_right():
    # Confidences 0.5 and 0.51 fall into different halves: |1 - 0.5| / 2 + |0 - 0.51| / 2.
    p = [[0.5, 0.5], [0.51, 0.49]]
    assert expected_calibration_error(p, [0, 1], bins=2) == pytest.approx(0.505)


def test_certainty_that_is_right_has_no_error_and_wrong_has_all():
    p = np.eye(3)
    assert expected_calibration_error(p, [0, 1, 2]) == 0
    assert expected_calibration_error(p, [1, 2, 0]) == 1


def test_probabilities_that_are_the_truth_have_little_error():
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), 40_000)
    y = (rng.random((40_000, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    assert expected_calibration_error(p, y) < 0.015


@pytest.mark.parametrize(
    ("p", "y", "bins", "message"),
    [
        ([[0.5, 0.5]], [0, 1], 15, "one row of probabilities per label"),
        ([[2.0, -1.0]], [0], 15, "sum to 1; apply a softmax"),
        ([[3.1, 1.2]], [0], 15, "sum to 1; apply a softmax"),
        ([[np.nan, 0.5]], [0], 15, "sum to 1"),
        ([[0.5, 0.5]], [2], 15, "column indices from 0 to 1"),
        ([[0.5, 0.5]], [0], 0, "bins must be at least 1"),
    ],
)
def test_refuses(p, y, bins, message):
    with pytest.raises(InputError, match=message):
        expected_calibration_error(p, y, bins)

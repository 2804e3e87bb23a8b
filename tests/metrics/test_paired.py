from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fiveshot.errors import InputError
from fiveshot.metrics import (
    SessionPredictions,
    mean_interval,
    mean_std,
    paired_difference,
    resampled_difference,
    resampled_measures,
    run_metrics,
)


@pytest.mark.parametrize("draws", range(2, 9))
def test_the_paired_test_is_scipys(draws: int) -> None:
    first, second = np.random.default_rng(draws).random((2, draws))
    found = paired_difference(first, second)
    assert found.mean == pytest.approx((first - second).mean(), abs=1e-12)
    assert found.n == draws
    theirs = stats.ttest_rel(first, second)
    assert found.p == pytest.approx(theirs.pvalue, abs=1e-9)
    low, high = theirs.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_an_interval_of_a_mean_is_students() -> None:
    values = [0.61, 0.64, 0.6, 0.66, 0.62]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    assert mean_interval(mean_std(values)) == (pytest.approx(low), pytest.approx(high))
    assert mean_interval(mean_std([0.5])) is None


def test_equal_differences_are_certain_and_one_draw_says_nothing() -> None:
    assert paired_difference([0.5, 0.5], [0.5, 0.5]).p == 1
    assert paired_difference([0.75, 0.5], [0.5, 0.25]).p == 0
    assert paired_difference([0.75], [0.5]).p is None
    with pytest.raises(InputError):
        paired_difference([0.5, 0.6], [0.5])


def three_sessions(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """Return labels, predictions and classes of a run with three sessions."""
    classes = [[0, 1, 2], [3], [4, 5]]
    y = np.repeat(np.arange(6), [40, 30, 50, 20, 35, 45])
    predicted = np.full((3, len(y)), -1)
    for number, last in enumerate((3, 4, 6)):
        seen = y < last
        wrong = rng.random(len(y)) < 0.3
        predicted[number, seen] = np.where(wrong, rng.integers(last, size=len(y)), y)[seen]
    return y, predicted, classes


def test_resamples_scatter_around_the_measures_as_theory_says() -> None:
    y, predicted, classes = three_sessions(np.random.default_rng(3))
    found = resampled_measures(y, predicted, classes, rng=np.random.default_rng(0), resamples=4000)
    parts = [
        SessionPredictions(tuple(own), y[row >= 0], row[row >= 0])
        for own, row in zip(classes, predicted, strict=True)
    ]
    measured = run_metrics(parts)
    assert found["a_last"].mean() == pytest.approx(measured.a_last, abs=0.002)
    assert found["a_inc"].mean() == pytest.approx(measured.a_inc, abs=0.002)
    harmonic = np.mean([session.a_hm for session in measured.sessions[1:]])
    assert found["a_hm_mean"].mean() == pytest.approx(harmonic, abs=0.005)
    # Within the classes of a session the number of right answers is binomial.
    right = [(predicted[-1] == y)[np.isin(y, own)] for own in classes]
    deviation = np.sqrt(sum(len(part) * part.mean() * (1 - part.mean()) for part in right)) / len(y)
    assert found["a_last"].std() == pytest.approx(deviation, rel=0.05)


def test_one_test_image_of_each_class_is_not_taken_for_certainty() -> None:
    y, predicted = np.arange(20), np.array([[*range(10), *[-1] * 10], [*range(5), *[0] * 5, *range(10, 20)]])
    found = resampled_measures(y, predicted, [range(10), range(10, 20)], rng=np.random.default_rng(0))
    assert found["a_last"].std() == pytest.approx(np.sqrt(10 * 0.25) / 20, rel=0.1)


def test_two_heads_are_measured_on_the_same_resamples() -> None:
    y, predicted, classes = three_sessions(np.random.default_rng(3))
    one, other = (resampled_measures(y, predicted, classes, rng=np.random.default_rng(0)) for _ in range(2))
    assert all((one[name] == other[name]).all() for name in one)


def test_resampled_differences_of_equal_heads_are_not_significant() -> None:
    equal = resampled_difference(0.0, np.zeros(1000), n=50)
    assert (equal.low, equal.high, equal.p, equal.over) == (0, 0, 1, "images")
    apart = resampled_difference(0.1, np.full(999, 0.1), n=50)
    assert apart.p == pytest.approx(2 / 1000)

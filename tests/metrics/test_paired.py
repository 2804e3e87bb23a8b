from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fiveshot.errors import InputError
from fiveshot.metrics import (
    SessionPredictions,
    hierarchical_difference,
    hierarchical_error,
    holm,
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


def test_without_variation_over_images_it_is_students_paired_test() -> None:
    values = np.random.default_rng(2).normal(0.02, 0.01, 6)
    still = np.repeat(values[:, None], 20000, axis=1)
    found = hierarchical_difference(values, still)
    theirs = stats.ttest_1samp(values, 0)
    assert found.p == pytest.approx(theirs.pvalue, rel=0.05)
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)), rel=0.02)


def test_equal_draws_leave_the_error_of_the_test_images() -> None:
    right = np.random.default_rng(5).random(400) < 0.7
    rng = np.random.default_rng(0)
    resampled = right[rng.integers(400, size=(5000, 400))].mean(axis=1)
    found = hierarchical_error([right.mean()] * 3, [resampled] * 3)
    theirs = stats.bootstrap((right,), np.mean, n_resamples=5000, rng=np.random.default_rng(1))
    assert found.value == pytest.approx(theirs.standard_error, rel=0.05)
    assert found.freedom > 1e9
    assert found.width(0.975) == pytest.approx(1.96 * theirs.standard_error, rel=0.05)
    with pytest.raises(InputError, match="one draw does not show"):
        hierarchical_error([0.5], [resampled])


@pytest.mark.parametrize(
    ("between_draws", "by_chance"), [(0.08, 0.0), (0.01, 0.0), (0.0, 0.0), (0.04, 0.5), (0.01, 1.0)]
)
def test_intervals_contain_a_known_truth_as_often_as_they_promise(between_draws: float, by_chance: float) -> None:
    """Simulate a head whose accuracy depends on the draw, on how hard each test image is, and on chance."""
    rng = np.random.default_rng(8)
    images, covered, only_draws = 300, 0, 0
    for _ in range(400):
        hardness = rng.random(images)  # the same images in every draw
        own = rng.random((4, images))
        level = np.where(rng.random((4, images)) < by_chance, own, hardness)
        right = level < 0.5 + rng.normal(0, between_draws, (4, 1))  # (draws, images)
        weights = rng.multinomial(images, np.full(images, 1 / images), size=200)
        found = hierarchical_difference(right.mean(axis=1), right @ weights.T / images)
        covered += found.low <= 0.5 <= found.high
        low, high = mean_interval(mean_std(right.mean(axis=1)))
        only_draws += low <= 0.5 <= high
    assert 0.92 <= covered / 400 <= 0.98
    if by_chance == 0 and between_draws < 0.08:
        assert only_draws / 400 < 0.9  # intervals over draws alone promise too much


def test_a_detectable_difference_is_found_four_times_in_five() -> None:
    error = paired_difference([0.0, 0.02, 0.01, 0.03, 0.02], [0.0] * 5)
    deviation = np.std([0.0, 0.02, 0.01, 0.03, 0.02], ddof=1)
    shift = error.detectable / (deviation / 5**0.5)
    power = stats.nct.sf(stats.t.ppf(0.975, 4), 4, shift)
    assert power == pytest.approx(0.8, abs=0.02)


def test_holm_is_its_definition() -> None:
    p = np.random.default_rng(4).random(7) ** 4
    for level in (0.001, 0.01, 0.05, 0.2):
        rejected = set()
        for rank, place in enumerate(np.argsort(p)):  # step down until the first that is too large
            if p[place] > level / (len(p) - rank):
                break
            rejected.add(int(place))
        assert {place for place, value in enumerate(holm(p)) if value <= level} == rejected
    assert holm([]) == []
    assert max(holm([0.9, 0.8])) == 1

from __future__ import annotations

import numpy as np
import pytest

from fiveshot.errors import InputError
from fiveshot.metrics import open_set_area


def test_the_area_is_that_of_the_curve_over_all_thresholds() -> None:
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(1, 1, 80), rng.normal(0, 1, 60)
    right = rng.random(80) < 0.7
    thresholds = np.sort(np.concatenate([known, unknown, [np.inf]]))[::-1]
    accepted = [float((unknown >= one).mean()) for one in thresholds]
    correct = [float((right & (known >= one)).mean()) for one in thresholds]
    assert open_set_area(known, right, unknown) == pytest.approx(np.trapezoid(correct, accepted))


def test_equal_values_count_half() -> None:
    assert open_set_area([1.0, 1.0], [True, True], [1.0]) == 0.5


def test_it_is_the_accuracy_if_unknown_samples_are_less_familiar_than_all_known_ones() -> None:
    assert open_set_area([2.0, 3.0, 4.0, 5.0], [True, False, True, True], [0.0, 1.0]) == 0.75


@pytest.mark.parametrize(("known", "right", "unknown"), [([], [], [1.0]), ([1.0], [True], []), ([1.0], [], [1.0])])
def test_it_refuses_what_it_cannot_compare(known: list[float], right: list[bool], unknown: list[float]) -> None:
    with pytest.raises(InputError):
        open_set_area(known, right, unknown)

from __future__ import annotations

import statistics

import pytest

from fiveshot.errors import InputError
from fiveshot.metrics import mean_std


@pytest.mark.parametrize("values", [[0.0, 0.0], [0.0, 1.0], [0.1, 0.1, 0.1], [0.3, 0.9, 0.25, 1.0, 1e-9]])
def test_is_the_standard_librarys(values):
    found = mean_std(values)
    assert found.mean == pytest.approx(statistics.mean(values), abs=1e-12)
    assert found.std == pytest.approx(statistics.stdev(values), abs=1e-9)
    assert found.n == len(values)


def test_one_seed_has_no_deviation():
    assert mean_std(iter([0.25])) == (0.25, None, 1)


@pytest.mark.parametrize("values", [[], [0.5, float("nan")]])
def test_refuses_what_has_no_mean(values):
    with pytest.raises(InputError, match="finite"):
        mean_std(values)

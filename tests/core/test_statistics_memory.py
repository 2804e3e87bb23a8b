"""Memory is the reason for the factored form, so it is counted: in bytes that are really held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from libraries import made

from fiveshot.core import ClassStatistics, class_statistics, statistics_of_batches


def held_bytes(statistics: ClassStatistics) -> int:
    """Return the size of all storages the summaries keep alive, each counted once, views or not."""
    storages = dict(storage(array) for s in statistics.summaries for array in (s.mean, s.factor))
    return sum(storages.values())


def storage(array: Any) -> tuple[int, int]:
    """Return address and size of the memory that an array keeps alive."""
    if not isinstance(array, np.ndarray):
        return array.untyped_storage().data_ptr(), array.untyped_storage().nbytes()
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.ctypes.data, array.nbytes


def normal(*shape: int) -> Any:
    return made(np.random.default_rng(0).normal(size=shape), np.float32)


def paper_sized() -> tuple[Any, np.ndarray]:
    return normal(200 * 30, 768), np.random.default_rng(0).permutation(np.repeat(np.arange(200), 30))


def test_two_hundred_classes_fit_in_forty_megabytes() -> None:
    X, y = paper_sized()
    at_once = class_statistics(X, y)
    in_batches = statistics_of_batches((X[i : i + 1000], y[i : i + 1000]) for i in range(0, len(X), 1000))
    for statistics in (at_once, in_batches):
        assert len(statistics) == 200
        assert statistics.counts.tolist() == [30] * 200
        assert held_bytes(statistics) < 40e6
        assert statistics.nbytes == pytest.approx(held_bytes(statistics), rel=0.01)


@pytest.mark.parametrize(("n", "d"), [(1, 40), (5, 40), (30, 40), (100, 40), (41, 40)])
def test_a_summary_keeps_nothing_alive_but_itself(n: int, d: int) -> None:
    X = normal(2 * n, d)
    y = np.arange(2 * n) % 2
    for statistics in (class_statistics(X, y), class_statistics(X[::2], y[::2]).add(X[1:], y[1:])):
        for summary in statistics.summaries:
            for tensor in (summary.mean, summary.factor):
                assert storage(tensor)[1] == tensor.nbytes
                assert storage(tensor)[0] != storage(X)[0]


def test_many_samples_take_no_more_than_the_dense_form() -> None:
    X = normal(5000, 16)
    batches = [(X[i : i + 100], np.zeros(100, dtype=int)) for i in range(0, 5000, 100)]
    assert held_bytes(statistics_of_batches(batches)) == 4 * (16 + 16 * 16)


def test_dropping_a_class_frees_its_memory() -> None:
    statistics = class_statistics(normal(40, 8), np.arange(40) % 4)
    assert held_bytes(statistics.drop([0, 1])) * 2 == held_bytes(statistics)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from libraries import made, same

from fiveshot.core.statistics import canonical, compress, stack, summarize


def scatter(X: np.ndarray) -> np.ndarray:
    centered = X - X.mean(axis=0)
    return sum(np.outer(row, row) for row in centered)


def scatter_factor(samples: Any) -> Any:
    return summarize(samples).factor


def squared(factor: Any) -> np.ndarray:
    return np.asarray(factor).T @ np.asarray(factor)


@pytest.mark.parametrize(("n", "d"), [(1, 3), (2, 3), (3, 3), (4, 3), (50, 3), (5, 40), (30, 31), (4, 1)])
def test_the_factor_is_a_root_of_the_scatter(n: int, d: int) -> None:
    X = np.random.default_rng(n * d).normal(3.0, 2.0, (n, d))
    factor = scatter_factor(made(X))
    assert factor.shape[0] <= min(n - 1, d)
    np.testing.assert_allclose(squared(factor), scatter(X), atol=1e-11 * n)


def test_one_sample_has_a_factor_without_rows() -> None:
    assert scatter_factor(made(np.ones((1, 7)))).shape == (0, 7)


@pytest.mark.parametrize("n", [5, 300])
def test_a_far_offset_costs_no_precision(n: int) -> None:
    X = np.random.default_rng(0).normal(size=(n, 6))
    far = scatter_factor(made(X + 1e7))
    np.testing.assert_allclose(squared(far), scatter(X), rtol=1e-7, atol=1e-6)


def test_equal_samples_have_no_scatter() -> None:
    for n in (3, 9):
        factor = scatter_factor(made(np.full((n, 4), 0.1)))
        np.testing.assert_allclose(squared(factor), 0, atol=1e-30)


def test_stacking_adds_the_matrices_and_keeps_the_rows_few() -> None:
    rng = np.random.default_rng(1)
    parts = [made(rng.normal(size=(r, 5))) for r in (0, 2, 4, 3)]
    total = stack(parts)
    assert total.shape == (5, 5)
    np.testing.assert_allclose(squared(total), sum(squared(part) for part in parts), atol=1e-12)
    assert stack(parts[:2]).shape == (2, 5)


def test_compression_leaves_a_small_factor_as_it_is() -> None:
    small = made(np.ones((3, 4)))
    assert compress(small) is small


def test_the_samples_are_not_changed() -> None:
    for n in (3, 20):
        samples = made(np.arange(float(n * 4)).reshape(n, 4))
        before = made(samples)
        scatter_factor(samples)
        assert same(samples, before)


@pytest.mark.parametrize(("n", "d"), [(2, 6), (5, 6), (6, 6), (30, 6)])
def test_the_canonical_factor_does_not_know_how_the_samples_came(n: int, d: int) -> None:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d))
    expected = canonical(scatter_factor(made(X)))
    np.testing.assert_allclose(squared(expected), scatter(X), atol=1e-11)
    assert (expected.diagonal() >= 0).all()
    assert same(expected, made(np.triu(expected)))
    backwards = scatter_factor(made(X[::-1]))
    cut = n // 2
    between = np.sqrt(cut * (n - cut) / n) * (X[:cut].mean(axis=0) - X[cut:].mean(axis=0))
    in_parts = stack([scatter_factor(made(X[cut:])), made(between[None]), scatter_factor(made(X[:cut]))])
    for other in (backwards, in_parts, -backwards):
        np.testing.assert_allclose(canonical(other), expected, atol=1e-9)


def test_the_canonical_factor_of_nothing_is_nothing() -> None:
    assert canonical(made(np.empty((0, 5)))).shape == (0, 5)

"""Moments of rectified Gaussian features, beside integrals that are computed on a fine grid."""

from __future__ import annotations

import numpy as np
import pytest
import threadpoolctl
from libraries import made, same
from scipy.stats import norm

from fiveshot.core import ClassGaussian, _rectified
from fiveshot.core._rectified import add_expected_

GRID = np.linspace(-9, 9, 6001)
STEP = GRID[1] - GRID[0]


def rectified_mean(m, s):
    return m * norm.cdf(m / s) + s * norm.pdf(m / s)


def product_mean(m: np.ndarray, s: np.ndarray, rho: float) -> float:
    """Return E[max(0, u) max(0, v)]: for each u on a grid, v is Gaussian with another mean and less spread."""
    u, rest = m[0] + s[0] * GRID, max(s[1] * np.sqrt(1 - rho**2), 1e-9)
    inner = rectified_mean(m[1] + rho * s[1] * GRID, rest)
    return float((np.maximum(u, 0) * inner * norm.pdf(GRID)).sum() * STEP)


def problem(d: int, r: int, width: int, seed: int = 0) -> tuple[ClassGaussian, np.ndarray]:
    rng = np.random.default_rng(seed)
    return ClassGaussian(rng.normal(size=d), 0.7 * rng.normal(size=(r, d))), rng.normal(size=(d, width))


def moments(gaussian: ClassGaussian, projection: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means, deviations and correlations of the features before they are rectified."""
    covariance = projection.T @ gaussian.factor.T @ gaussian.factor @ projection
    s = np.sqrt(np.diag(covariance))
    return gaussian.mean @ projection, s, covariance / np.outer(s, s)


def expected(gaussian: ClassGaussian, projection: np.ndarray, mass: float = 1.0, dtype=np.float64):
    width = projection.shape[1]
    gram = made(np.zeros((width, width)), dtype)
    given = ClassGaussian(made(gaussian.mean, dtype), made(gaussian.factor, dtype))
    total = add_expected_(gram, given, made(projection, dtype), mass)
    return np.asarray(gram), np.asarray(total)


@pytest.mark.parametrize("r", [1, 3, 20])
def test_products_are_the_integrals(r: int) -> None:
    gaussian, projection = problem(12, r, 24)
    found, total = expected(gaussian, projection)
    m, s, rho = moments(gaussian, projection)
    np.testing.assert_allclose(total, rectified_mean(m, s), rtol=1e-9, atol=1e-12)
    for i in range(24):
        for j in range(i):
            error = abs(found[i, j] - product_mean(m[[i, j]], s[[i, j]], np.clip(rho[i, j], -1, 1)))
            # The terms that are left out begin with the seventh power of the correlation, or the fifteenth.
            power, most = (7, 0.007) if r >= 16 else (15, 0.003)
            assert error <= (most * abs(rho[i, j]) ** power + 1e-5) * s[i] * s[j]
    squares = [product_mean(m[[i, i]], s[[i, i]], 1.0) for i in range(24)]
    np.testing.assert_allclose(np.diag(found), squares, rtol=1e-5, atol=1e-9)


def test_more_terms_leave_less_out(monkeypatch: pytest.MonkeyPatch) -> None:
    gaussian, projection = problem(12, 2, 24)
    m, s, rho = moments(gaussian, projection)
    pairs = [(i, j) for i in range(24) for j in range(i)]
    integrals = np.array([product_mean(m[[i, j]], s[[i, j]], rho[i, j]) for i, j in pairs])
    errors = []
    for terms in (3, 7, 15):
        monkeypatch.setattr(_rectified, "TERMS_OF_FEW", terms)
        found, _ = expected(gaussian, projection)
        errors.append(np.abs([found[pair] for pair in pairs] - integrals).max())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_it_is_what_many_samples_give() -> None:
    gaussian, projection = problem(12, 5, 40)
    numbers = np.random.default_rng(1).normal(size=(200_000, 5))
    samples = np.maximum((gaussian.mean + numbers @ gaussian.factor) @ projection, 0)
    found, total = expected(gaussian, projection, mass=3.0)
    lower = np.tril_indices(40)
    average = 3 * (samples.T @ samples)[lower] / len(samples)
    np.testing.assert_allclose(found[lower], average, rtol=0.01, atol=0.01 * average.max())
    np.testing.assert_allclose(total, 3 * samples.mean(axis=0), rtol=0.01, atol=0.01 * total.max())


@pytest.mark.parametrize("r", [1, 4])
def test_the_matrix_has_no_negative_eigenvalue(r: int) -> None:
    found, _ = expected(*problem(12, r, 60))
    whole = np.tril(found) + np.tril(found, -1).T
    assert np.linalg.eigvalsh(whole)[0] > -1e-9 * np.trace(whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_class_that_does_not_vary_is_its_mean(dtype) -> None:
    gaussian, projection = problem(12, 1, 24)
    still = ClassGaussian(gaussian.mean, 0 * gaussian.factor)
    found, total = expected(still, projection, dtype=dtype)
    mapped = np.maximum(gaussian.mean @ projection, 0)
    np.testing.assert_allclose(total, mapped, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.tril(found), np.tril(np.outer(mapped, mapped)), rtol=1e-5, atol=1e-5)


def test_parts_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gaussian, projection = problem(12, 4, 50)
    whole, _ = expected(gaussian, projection)
    monkeypatch.setattr(_rectified, "BLOCK_ROWS", 8)
    monkeypatch.setattr(_rectified, "BLOCK_COLUMNS", 24)
    found = []
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads, user_api="blas"):
            found.append(np.tril(expected(gaussian, projection)[0]))
    np.testing.assert_allclose(found[0], np.tril(whole), rtol=1e-12)
    assert same(*found)

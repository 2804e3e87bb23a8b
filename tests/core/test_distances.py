from __future__ import annotations

import numpy as np
import pytest
from libraries import made
from oracles import normalised

from fiveshot.core import ClassGaussian, SummedGaussian
from fiveshot.core import distances as module
from fiveshot.core.distances import (
    CholeskyMetric,
    LowRankMetric,
    Metric,
    SpectralMetric,
    make_metric,
    squared_distances,
)
from fiveshot.errors import InputError


def dense_distances(X: np.ndarray, mean: np.ndarray, factor: np.ndarray, gamma: float, kind: str) -> np.ndarray:
    N = normalised(factor.T @ factor + gamma * np.eye(len(mean)), kind)
    inverse = np.linalg.pinv(N, rcond=1e-12, hermitian=True)
    return np.array([(x - mean) @ inverse @ (x - mean) for x in X])


def make(rank: int, d: int = 20, *, gamma: float = 2.0, kind: str = "correlation", seed: int = 0) -> tuple:
    rng = np.random.default_rng(seed)
    mean, factor = rng.normal(size=d), rng.normal(size=(rank, d))
    metric = make_metric(ClassGaussian(made(mean), made(factor)), gamma=gamma, normalization=kind)
    return metric, mean, factor


def distances(X: np.ndarray, *metrics: Metric) -> np.ndarray:
    return np.asarray(squared_distances(made(X), metrics, origin=made(np.zeros(X.shape[1]))))


@pytest.mark.parametrize("kind", ["correlation", "none", "rows"])
@pytest.mark.parametrize("rank", [0, 1, 9, 10, 20, 45])
def test_every_kind_of_metric_is_the_dense_formula(rank: int, kind: str) -> None:
    metric, mean, factor = make(rank, kind=kind)
    X = np.random.default_rng(1).normal(size=(8, 20))
    expected = dense_distances(X, mean, factor, 2.0, kind)
    np.testing.assert_allclose(distances(X, metric)[:, 0], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["correlation", "none", "rows"])
def test_a_summed_covariance_gives_the_metric_of_its_factor(kind: str) -> None:
    metric, mean, factor = make(30, kind=kind)
    covariance = factor.T @ factor
    covariance[np.triu_indices(20, 1)] = np.nan  # what is above the diagonal must not be read
    summed = SummedGaussian(made(mean), made(np.where(np.isnan(covariance), 7e7, covariance)))
    other = make_metric(summed, gamma=2.0, normalization=kind)
    X = np.random.default_rng(1).normal(size=(8, 20))
    np.testing.assert_allclose(distances(X, other), distances(X, metric), rtol=1e-10)


@pytest.mark.parametrize("gamma", [100.0, 40.0])
@pytest.mark.parametrize("rank", [0, 1, 5, 9, 20, 45])
def test_row_correlations_need_no_eigenvalues(rank: int, gamma: float) -> None:
    """Their pseudo-inverse is known from the inverse of the covariance, in both forms."""
    metric, mean, factor = make(rank, gamma=gamma, kind="rows")
    assert isinstance(metric, LowRankMetric if 2 * rank < 20 else CholeskyMetric)
    X = np.random.default_rng(1).normal(size=(8, 20))
    expected = dense_distances(X, mean, factor, gamma, "rows")
    np.testing.assert_allclose(distances(X, metric)[:, 0], expected, rtol=1e-10)
    single = ClassGaussian(made(mean, np.float32), made(factor, np.float32))
    metric = make_metric(single, gamma=gamma, normalization="rows")
    origin = made(np.zeros(20, np.float32))
    found = np.asarray(squared_distances(made(X, np.float32), [metric], origin=origin))[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("rank", [4, 30])
def test_row_correlations_are_cut_where_the_published_code_cuts_them(rank: int) -> None:
    """In single precision, a small gamma leaves eigenvalues that the published pseudo-inverse takes for zero."""
    rng = np.random.default_rng(3)
    mean, factor = rng.normal(size=20).astype(np.float32), (30 * rng.normal(size=(rank, 20))).astype(np.float32)
    gaussian = ClassGaussian(made(mean), made(factor))
    assert isinstance(make_metric(gaussian, gamma=0.01, normalization="rows"), SpectralMetric)
    assert isinstance(make_metric(gaussian, gamma=0.0, normalization="rows"), SpectralMetric)


@pytest.mark.parametrize("gamma", [2.0, 0.1, 1 / 3])
@pytest.mark.parametrize("kind", ["correlation", "none"])
def test_the_low_rank_way_is_the_cholesky_way(kind: str, gamma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    low, *_ = make(5, gamma=gamma, kind=kind)
    monkeypatch.setattr(module, "WELL_CONDITIONED", 0.0)
    high, *_ = make(5, gamma=gamma, kind=kind)
    assert isinstance(low, LowRankMetric)
    assert isinstance(high, CholeskyMetric)
    X = np.random.default_rng(2).normal(size=(9, 20))
    np.testing.assert_allclose(distances(X, low), distances(X, high), rtol=1e-11)


def test_few_rows_are_never_made_a_square() -> None:
    few, *_ = make(5)
    many, *_ = make(12)
    assert isinstance(few, LowRankMetric)
    assert few.projection.shape == (5, 20)
    assert isinstance(many, CholeskyMetric)


@pytest.mark.parametrize("shrinkage", [1e-1, 1e-3, 1e-4])
def test_a_small_gamma_costs_no_precision_in_single(shrinkage: float) -> None:
    rng = np.random.default_rng(3)
    mean, factor = rng.normal(size=30).astype(np.float32), rng.normal(size=(4, 30)).astype(np.float32)
    metric = make_metric(ClassGaussian(made(mean), made(factor)), gamma=shrinkage, normalization="none")
    X = mean + rng.normal(size=(6, 4)) @ factor  # inside the class: the leading digits cancel
    expected = dense_distances(X, mean.astype(float), factor.astype(float), shrinkage, "none")
    origin = made(mean)
    found = np.asarray(squared_distances(made(X, np.float32), [metric], origin=origin))[:, 0]
    scale = (
        np.sum((X - mean) ** 2, axis=1) / shrinkage
    )  # what is left of it after the leading digits cancel is about a rounding of it
    assert (np.abs(found - expected) <= 1e-4 * expected + 1e-7 * scale).all()


def test_mixed_metrics_keep_their_columns() -> None:
    kinds = ((3, "none"), (15, "none"), (4, "rows"), (0, "none"), (2, "rows"), (17, "rows"), (0, "rows"))
    made = [make(rank, kind=kind, gamma=50.0, seed=rank) for rank, kind in kinds]
    X = np.random.default_rng(4).normal(size=(7, 20))
    together = distances(X, *(metric for metric, *_ in made))
    for column, ((_, mean, factor), (_, kind)) in enumerate(zip(made, kinds, strict=True)):
        np.testing.assert_allclose(together[:, column], dense_distances(X, mean, factor, 50.0, kind), rtol=1e-10)


def test_dense_metrics_keep_their_columns() -> None:
    made_of = [make(rank, seed=seed, kind="rows") for seed, rank in enumerate((20, 3, 30, 45, 1, 25, 28))]
    X = np.random.default_rng(100).normal(size=(8, 20))
    found = distances(X, *(metric for metric, _, _ in made_of))
    for column, (_, mean, factor) in enumerate(made_of):
        np.testing.assert_allclose(found[:, column], dense_distances(X, mean, factor, 2.0, "rows"), rtol=1e-8)


def test_groups_bound_the_memory_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = [make(rank, seed=rank)[0] for rank in (0, 1, 5, 9, 2, 0, 7)]
    X = np.random.default_rng(5).normal(size=(6, 20))
    at_once = distances(X, *metrics)
    monkeypatch.setattr(module, "COLUMNS_AT_ONCE", 6)
    np.testing.assert_allclose(distances(X, *metrics), at_once, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("origin", [0.0, 1e3])
def test_the_origin_changes_nothing_but_rounding(origin: float) -> None:
    metric, mean, factor = make(4)
    X = np.random.default_rng(6).normal(size=(5, 20))
    found = squared_distances(made(X), [metric], origin=made(np.full(20, origin)))
    expected = dense_distances(X, mean, factor, 2.0, "correlation")
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-7)


def test_a_distance_is_never_negative() -> None:
    metric, mean, _ = make(5)
    assert distances(mean[None] + 1e-9, metric).min() >= 0


def test_unknown_normalisations_and_singular_matrices_are_refused() -> None:
    with pytest.raises(InputError, match=r"no normalization 'row'; did you mean 'rows'\? choose from correlation"):
        make(3, kind="row")
    nothing = ClassGaussian(made(np.zeros(4)), made(np.zeros((3, 4))))
    with pytest.raises(InputError, match=r"singular with gamma = 0.0; choose a larger gamma"):
        make_metric(nothing, gamma=0.0, normalization="none")

"""Equations (1) to (4) against dense NumPy in double precision, loops and all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from libraries import made, same

from fiveshot.core import (
    NO_CLASSES,
    Calibration,
    SummedGaussian,
    calibrate,
    calibrate_all,
    calibrate_mean,
    calibrated_factor,
    calibrated_mean,
    class_statistics,
    similarity_weights,
    summarize,
)
from fiveshot.errors import InputError


def oracle_weights(mean: np.ndarray, base_means: np.ndarray, tau: float, similarity: str) -> np.ndarray:
    logits = []
    for base_mean in base_means:  # (1)
        product = float(np.sum(base_mean * mean))
        lengths = np.linalg.norm(base_mean) * np.linalg.norm(mean) if similarity == "cosine" else 1.0
        logits.append(tau * product / lengths)
    powers = [math.exp(logit - max(logits)) for logit in logits]  # (2)
    return np.array(powers) / sum(powers)


def oracle_mean(mean: np.ndarray, base_means: np.ndarray, weights: np.ndarray, alpha: float) -> np.ndarray:
    borrowed = sum(w * base_mean for w, base_mean in zip(weights, base_means, strict=True))
    return alpha * mean + (1 - alpha) * borrowed  # (3)


def oracle_covariance(own: np.ndarray, base: list[np.ndarray], weights: np.ndarray, beta: float) -> np.ndarray:
    return beta * (own + sum(w * c for w, c in zip(weights, base, strict=True)))  # (4)


def draw(n: int, d: int = 6, n_base: int = 4, seed: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    base = [rng.normal(rng.normal(size=d), 1.0, (size, d)) for size in (9, 30, 3, 12)[:n_base]]
    return rng.normal(rng.normal(size=d), 0.7, (n, d)), base


def statistics_of(base: list[np.ndarray]) -> object:
    labels = np.repeat(np.arange(len(base)), [len(rows) for rows in base])
    return class_statistics(made(np.concatenate(base)), labels)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("tau", [0.5, 16.0])
def test_weights_are_equations_1_and_2(similarity: str, tau: float) -> None:
    samples, base = draw(5)
    mean, base_means = samples.mean(axis=0), np.stack([rows.mean(axis=0) for rows in base])
    found = similarity_weights(made(mean), made(base_means), tau=tau, similarity=similarity)
    np.testing.assert_allclose(found, oracle_weights(mean, base_means, tau, similarity), atol=1e-14)
    assert found.sum() == pytest.approx(1, abs=1e-14)


def test_mean_and_factor_are_equations_3_and_4() -> None:
    samples, base = draw(5)
    weights = np.array([0.5, 0.3, 0.0, 0.2])
    base_means = np.stack([rows.mean(axis=0) for rows in base])
    found = calibrated_mean(
        made(samples.mean(axis=0)),
        made(base_means),
        made(weights),
        alpha=0.7,
    )
    np.testing.assert_allclose(found, oracle_mean(samples.mean(axis=0), base_means, weights, 0.7), atol=1e-14)
    own = summarize(made(samples)).covariance_factor
    factor = calibrated_factor(own, *statistics_of(base).stacked_factors, made(weights), beta=0.5)
    expected = oracle_covariance(np.cov(samples.T), [np.cov(rows.T) for rows in base], weights, 0.5)
    np.testing.assert_allclose(factor.T @ factor, expected, atol=1e-13)


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.9, 1.0), (0.0, 2.0), (1.0, 0.0)])
def test_a_new_class_is_calibrated_as_the_paper_says(n: int, similarity: str, alpha: float, beta: float) -> None:
    samples, base = draw(n, seed=n)
    calibration = Calibration(alpha=alpha, beta=beta, tau=3.0, similarity=similarity)
    found = calibrate(summarize(made(samples)), statistics_of(base), calibration)
    mean, base_means = samples.mean(axis=0), np.stack([rows.mean(axis=0) for rows in base])
    weights = oracle_weights(mean, base_means, 3.0, similarity)
    own = np.cov(samples.T) if n > 1 else np.zeros((6, 6))  # one sample has no covariance of its own
    expected = oracle_covariance(own, [np.cov(rows.T) for rows in base], weights, beta)
    np.testing.assert_allclose(found.mean, oracle_mean(mean, base_means, weights, alpha), atol=1e-13)
    np.testing.assert_allclose(found.factor.T @ found.factor, expected, atol=1e-12)


def test_unit_prototypes_are_mixed_as_published() -> None:
    samples, base = draw(5, seed=3)
    mean = samples.mean(axis=0) / np.linalg.norm(samples.mean(axis=0))
    base_means = np.stack([rows.mean(axis=0) / np.linalg.norm(rows.mean(axis=0)) for rows in base])
    weights = oracle_weights(mean, base_means, 16.0, "cosine")
    borrowed = weights @ base_means
    summary, statistics = summarize(made(samples)), statistics_of(base)
    found, used = calibrate_mean(summary, statistics, Calibration(alpha=0.75, prototypes="unit"))
    np.testing.assert_allclose(found, 0.75 * mean + 0.25 * borrowed / np.linalg.norm(borrowed), atol=1e-14)
    np.testing.assert_allclose(used, weights, atol=1e-14)


def test_without_beta_the_covariance_is_left_alone() -> None:
    samples, base = draw(5)
    found = calibrate(summarize(made(samples)), statistics_of(base), Calibration(beta=None))
    np.testing.assert_allclose(found.factor.T @ found.factor, np.cov(samples.T), atol=1e-13)
    assert not np.allclose(found.mean, samples.mean(axis=0))


def test_without_calibration_or_base_the_raw_statistics_stay() -> None:
    samples, base = draw(5)
    summary = summarize(made(samples))
    for statistics, calibration in ((statistics_of(base), None), (NO_CLASSES, Calibration())):
        found = calibrate(summary, statistics, calibration)
        np.testing.assert_allclose(found.mean, samples.mean(axis=0), atol=1e-14)
        np.testing.assert_allclose(found.factor.T @ found.factor, np.cov(samples.T), atol=1e-13)


@pytest.mark.parametrize("n_base", [1, 2, 4])  # a factor of few rows, and sums
def test_several_classes_are_calibrated_together_as_each_alone(n_base: int) -> None:
    _, base = draw(5, n_base=n_base, d=14)
    statistics = statistics_of(base)
    rng = np.random.default_rng(1)
    summaries = [summarize(made(rng.normal(rng.normal(size=14), 1, (n, 14)))) for n in (5, 1, 2, 40) * 5]
    for calibration in (Calibration(beta=0.5), Calibration(beta=None), None):
        together = list(calibrate_all(summaries, statistics, calibration))
        assert len(together) == len(summaries)
        for found, summary in zip(together[::-1], summaries[::-1], strict=True):
            alone = calibrate(summary, statistics, calibration)
            assert type(found) is type(alone)
            assert same(found.mean, alone.mean)
            assert same(found.factor, alone.factor), "to the bit: what else is learned must not show"


def test_a_singular_sum_has_a_factor() -> None:
    samples, base = draw(5)
    flat = [np.concatenate([rows[:, :4], rows[:, :2]], axis=1) for rows in base]  # two values repeat two others
    samples[:, 4:] = samples[:, :2]
    found = calibrate(summarize(made(samples)), statistics_of(flat), Calibration())
    assert isinstance(found, SummedGaussian)
    covariance = np.tril(found.covariance) + np.tril(found.covariance, -1).T
    np.testing.assert_allclose(found.factor.T @ found.factor, covariance, atol=1e-7)


def test_an_underflowing_weight_changes_nothing() -> None:
    samples, base = draw(5)
    means = np.stack([rows.mean(axis=0) for rows in base])
    base = [rows * 40 for rows in base]  # raw products of many hundreds: all but one weight underflow
    found = calibrate(summarize(made(samples)), statistics_of(base), Calibration(similarity="dot"))
    nearest = int(np.argmax(means @ samples.mean(axis=0)))
    np.testing.assert_allclose(found.factor.T @ found.factor, np.cov(samples.T) + np.cov(base[nearest].T))
    few = [rows[:2] for rows in base]  # few enough for a factor: rows of no weight are left out
    found = calibrate(summarize(made(samples[:2])), statistics_of(few), Calibration(similarity="dot"))
    assert len(found.factor) == 2


def test_by_hand() -> None:
    # Base means (3, 0) and (0, 4), variances 8 along x and 2 along y; the new class is two points about (1, 1),
    # as near to the one as to the other, so both weights are one half.
    base = [np.array([[1.0, 0.0], [5.0, 0.0]]), np.array([[0.0, 3.0], [0.0, 5.0]])]
    new = np.array([[1.0, 0.0], [1.0, 2.0]])  # variance 2 along y
    found = calibrate(summarize(made(new)), statistics_of(base), Calibration(alpha=0.8, beta=0.5))
    np.testing.assert_allclose(found.mean, [0.8 + 0.2 * 1.5, 0.8 + 0.2 * 2.0], atol=1e-15)
    np.testing.assert_allclose(found.factor.T @ found.factor, [[2.0, 0.0], [0.0, 1.5]], atol=1e-15)


def test_the_inputs_are_not_changed() -> None:
    samples, base = draw(5)
    summary, statistics = summarize(made(samples)), statistics_of(base)
    before = [made(t) for s in (summary, *statistics.summaries) for t in (s.mean, s.factor)]
    calibrate(summary, statistics, Calibration())
    calibrate(summary, statistics, Calibration(similarity="dot", prototypes="unit"))
    after = [t for s in (summary, *statistics.summaries) for t in (s.mean, s.factor)]
    assert all(same(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": -0.1}, r"alpha must lie in \[0, 1\], got -0.1; the paper uses 0.9"),
        ({"alpha": 1.5}, r"alpha must lie in \[0, 1\], got 1.5; the paper uses 0.9"),
        ({"alpha": math.nan}, r"alpha must lie in \[0, 1\], got nan; the paper uses 0.9"),
        ({"beta": -1.0}, "beta .* got -1.0; None leaves covariances unchanged"),
        ({"beta": math.nan}, "beta .* nan"),
        ({"beta": math.inf}, "beta .* inf"),
        ({"tau": math.nan}, "tau .* nan"),
        ({"tau": math.inf}, "tau .* inf"),
        ({"similarity": "cosin"}, r"no similarity 'cosin'; did you mean 'cosine'\? choose from cosine, dot"),
        ({"prototypes": "units"}, r"no kind of prototypes 'units'; did you mean 'unit'\? choose from raw, unit"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Calibration(**parameters)

"""The covariance of few samples against its equation spelled out, and what must hold of it."""

from __future__ import annotations

import numpy as np
import pytest

from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.core.few_shots import MEANS, SPHERE, dense_covariance, factored_covariance, few_shot_model
from fiveshot.core.lda import Prior
from fiveshot.core.scatter import pooled_scatter

D = 40


def samples(counts: list[int], *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts)
    spread = rng.uniform(0.2, 2.0, size=D)
    return rng.normal(size=(len(counts), D))[y] + spread * rng.normal(size=(len(y), D)), y


def spelled_out(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Σ, class by class."""
    labels = np.unique(y)
    means = np.stack([X[y == c].mean(axis=0) for c in labels])
    N, C, origin = len(X), len(labels), means.mean(axis=0)
    within = sum((X[y == c] - m).T @ (X[y == c] - m) for c, m in zip(labels, means, strict=True))
    v = ((X - origin) ** 2).mean(axis=0)
    t = 0.5 + 0.5 * v / v.mean()
    spread = SPHERE * N ** (-2 / 3) * (v / t).sum()
    return within / max(N - C, 1) + MEANS / (N + C) * (means - origin).T @ (means - origin) + spread * np.diag(t)


COUNTS = [[1, 1, 1], [5, 5, 5, 5], [1, 4, 2], [3]]


@pytest.mark.parametrize("counts", COUNTS)
def test_both_forms_whiten_by_the_covariance_of_the_equation(counts: list[int]) -> None:
    X, y = samples(counts)
    statistics = class_statistics(X, y)
    means = statistics.means - statistics.means.mean(axis=0)
    numbers = np.array(counts, dtype=float)
    factors = np.concatenate([one.factor for one in statistics.summaries])
    sigma = spelled_out(X, y)
    for made in (
        factored_covariance(factors, means, numbers),
        dense_covariance(np.tril(factors.T @ factors), means, numbers),
    ):
        white = made.whiten(np.eye(D))
        np.testing.assert_allclose(white @ white.T, np.linalg.inv(sigma), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(made.back(white.copy()), np.linalg.inv(sigma), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("counts", COUNTS)
def test_both_forms_score_alike(counts: list[int]) -> None:
    X, y = samples(counts)
    memory = Memory(NO_CLASSES, class_statistics(X, y))
    dense = pooled_scatter(memory, (slice(0, D),), None)
    few, many = (few_shot_model(memory, pooled, prior=Prior()) for pooled in (None, dense))
    np.testing.assert_allclose(few.scores(X), many.scores(X), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(few.gaps, many.gaps, rtol=1e-7, atol=1e-9)


def test_noise_is_that_of_samples_which_did_not_make_the_covariance() -> None:
    X, y = samples([6] * 30)
    statistics = class_statistics(X, y)
    factors = np.concatenate([one.factor for one in statistics.summaries])
    centered = statistics.means - statistics.means.mean(axis=0)
    made = factored_covariance(factors, centered, np.full(30, 6.0))
    scale = np.random.default_rng(0).uniform(0.2, 2.0, size=D)
    others = made.whiten(scale * np.random.default_rng(9).normal(size=(4000, D)))
    inside = made.whiten(factors)
    truth = (others**2).mean()
    assert made.noise == pytest.approx(truth, rel=0.05)
    assert (inside**2).mean() < 0.97 * truth, "the optimistic estimate would be off"


def test_one_sample_of_one_class_is_enough() -> None:
    X, y = samples([1])
    model = few_shot_model(Memory(NO_CLASSES, class_statistics(X, y)), None, prior=Prior())
    assert np.isfinite(model.scores(X)).all()

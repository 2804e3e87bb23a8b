"""KLDA compared with its formulas in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, draw, flat, queries

from fiveshot.core.scorers import KernelLDAScorer
from fiveshot.core.scorers.kernel_lda import fourier_features


@pytest.mark.parametrize("gamma", [0.02, 0.3])
def test_products_of_random_features_are_the_kernel(gamma: float) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4))
    mapped = fourier_features(4, 200_000, gamma, seed=3, like=rows)(rows)
    kernel = np.exp(-gamma * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    assert np.abs(mapped @ mapped.T - kernel).max() < 0.015  # six deviations of a mean of so many


@pytest.mark.parametrize("shrinkage", [1e-4, 0.2])
@pytest.mark.parametrize("width", [24, 200])  # fewer random features than samples, and more
def test_scores_are_those_of_one_covariance(width: int, shrinkage: float) -> None:
    head = KernelLDAScorer(width, gammas=(0.5,), shrinkage=shrinkage)
    sessions = [draw(BASE), draw(FIRST), draw(SECOND), draw({30: 4, 25: 2}, seed=5)]
    for session in sessions:
        head = head.learn(*flat(session))
    everything = [flat(session) for session in sessions]
    X, y = (np.concatenate(part) for part in zip(*everything, strict=True))
    base = everything[0][0]
    assert head.basis.gamma == pytest.approx(0.5 / (base.shape[1] * ((base - base.mean(axis=0)) ** 2).mean()))

    def mapped(rows: np.ndarray) -> np.ndarray:
        angles = rows @ head.basis.features.frequencies + head.basis.features.phases
        return np.sqrt(2 / width) * np.cos(angles)

    labels = np.unique(y)
    means = np.stack([mapped(X[y == label]).mean(axis=0) for label in labels])
    apart = mapped(X) - means[np.searchsorted(labels, y)]
    covariance = apart.T @ apart / len(X)
    sphere = np.trace(covariance) / width * np.eye(width)
    inverse = np.linalg.inv((1 - shrinkage) * covariance + shrinkage * sphere)
    expected = mapped(queries()) @ inverse @ means.T - np.einsum("cd,de,ce->c", means, inverse, means) / 2
    np.testing.assert_allclose(head.scores(queries()), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_the_multiple_that_is_kept_is_the_best_on_a_part_of_the_base_session() -> None:
    """Two rings around one center: too wide a kernel cannot tell them apart, and too narrow a one knows none."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, size=400)
    radius = np.repeat([1.0, 2.0], 200) + 0.05 * rng.normal(size=400)
    X, y = np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1), np.repeat([0, 1], 200)
    head = KernelLDAScorer(300, gammas=(1e-8, 1.0, 1e6)).learn(X[::2], y[::2])
    alone = KernelLDAScorer(300, gammas=(1.0,)).learn(X[::2], y[::2])
    assert head.basis.gamma == alone.basis.gamma
    assert (head.classify(X[1::2]) == y[1::2]).mean() > 0.95

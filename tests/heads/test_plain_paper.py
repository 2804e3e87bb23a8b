"""The six methods of docs/explanation/paper.py, in plain NumPy, score as the heads of the package do."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiveshot.core import Calibration, calibrate, class_statistics, ridge, summarize
from fiveshot.core.draws import derived_seed, gaussian_samples, random_features
from fiveshot.heads import make_head

FILE = Path(__file__).parents[2] / "docs" / "explanation" / "paper.py"
WIDTH, SEED, LAMBDA, PER_CLASS = 40, 3, 50.0, 60


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    return runpy.run_path(str(FILE))


def samples(labels: range, count: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(labels.start)
    spreads = rng.uniform(0.2, 1.5, size=(len(labels), 12))
    return {
        c: rng.normal(size=12) + rng.normal(size=(count, 12)) * s for c, s in zip(labels, spreads, strict=True)
    }


BASE, NEW = samples(range(4), 30), samples(range(4, 7), 5)
X = np.random.default_rng(9).normal(size=(25, 12))


def scores(name: str, **parameters: Any) -> np.ndarray:
    """Return those of our head after both sessions."""
    head = make_head(name, "paper", **parameters)
    for session in (BASE, NEW):
        rows = np.concatenate(list(session.values()))
        head.partial_fit(rows, np.repeat(list(session), [len(own) for own in session.values()]))
    return head.class_scores(X)


@pytest.mark.parametrize("name", ["ncm", "teen", "fecam", "c-fecam"])
def test_the_methods_of_means_and_covariances(paper: dict[str, Any], name: str) -> None:
    found = paper[name.replace("-", "_")](BASE, NEW, X)
    np.testing.assert_allclose(found, scores(name), rtol=1e-8, atol=1e-10)


def projection() -> np.ndarray:
    return random_features(12, WIDTH, seed=SEED, like=X).projection


RIDGE = {"n_projections": WIDTH, "random_state": SEED, "lambdas": (LAMBDA,)}


def test_ranpac(paper: dict[str, Any]) -> None:
    found = paper["ranpac"](BASE, NEW, X, projection(), LAMBDA)
    np.testing.assert_allclose(found, scores("ranpac", **RIDGE), rtol=1e-7, atol=1e-9)


def test_c_ranpac_on_the_samples_that_our_head_draws(paper: dict[str, Any]) -> None:
    statistics = class_statistics(np.concatenate(list(BASE.values())), np.repeat(list(BASE), 30))
    chosen, drawn = Calibration(alpha=0.9, beta=0.5), {}
    for label, rows in NEW.items():
        gaussian = calibrate(summarize(rows), statistics, chosen)
        mean, covariance = paper["calibrated"](rows, BASE, beta=0.5)
        np.testing.assert_allclose(gaussian.mean, mean, rtol=1e-10)
        np.testing.assert_allclose(gaussian.factor.T @ gaussian.factor, covariance, rtol=1e-8, atol=1e-10)
        drawn[label] = gaussian_samples(gaussian, PER_CLASS, seed=derived_seed(SEED, label))
    found = paper["ranpac"](BASE, drawn, X, projection(), LAMBDA)
    expected = scores("c-ranpac", **RIDGE, per_class=PER_CLASS)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_samples_have_the_calibrated_mean_and_covariance(paper: dict[str, Any]) -> None:
    drawn = paper["calibrated_samples"](BASE, NEW, np.random.default_rng(0), per_class=40_000)
    for label, rows in NEW.items():
        mean, covariance = paper["calibrated"](rows, BASE, beta=0.5)
        np.testing.assert_allclose(drawn[label].mean(axis=0), mean, atol=0.05)
        np.testing.assert_allclose(np.cov(drawn[label], rowvar=False), covariance, atol=0.1)


def test_c_ranpac_is_ranpac_on_these_samples(paper: dict[str, Any]) -> None:
    found = paper["c_ranpac"](BASE, NEW, X, projection(), LAMBDA, np.random.default_rng(1))
    drawn = paper["calibrated_samples"](BASE, NEW, np.random.default_rng(1))
    np.testing.assert_array_equal(found, paper["ranpac"](BASE, drawn, X, projection(), LAMBDA))


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_lambda_is_chosen_as_our_heads_choose_it(paper: dict[str, Any], scale: float) -> None:
    W = projection()
    train = {label: scale * rows[6:] for label, rows in BASE.items()}
    held_out = {label: scale * rows[:6] for label, rows in BASE.items()}
    features = scale * np.concatenate(list(BASE.values()))
    codes, first = np.repeat(np.arange(4), 30), np.tile(np.arange(30) < 6, 4)
    expected = ridge.best_lambda(
        features,
        np.eye(4)[codes],
        lambda part: np.maximum(part @ W, 0),
        train=np.flatnonzero(~first),
        held_out=np.flatnonzero(first),
        lambdas=[10.0**k for k in range(-1, 9)],
    )
    assert paper["best_lambda"](train, held_out, W) == expected

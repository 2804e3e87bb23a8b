"""Classifiers fitted again: what scikit-learn, or its formula, says of all samples at once."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, draw, flat, queries
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fiveshot.core.scorers import RefittedScorer, make_scorer
from fiveshot.core.scorers.refitted import RIDGE_ALPHAS
from fiveshot.heads import check_head
from fiveshot.heads._testing import PROMISES

SESSIONS = (draw(BASE), draw(FIRST | {70: 5}), draw(SECOND), draw({30: 4, 25: 2}, seed=5))
X, Y = (np.concatenate(part) for part in zip(*map(flat, SESSIONS), strict=True))


def learned(head: RefittedScorer) -> RefittedScorer:
    for session in SESSIONS:
        head = head.learn(*flat(session))
    return head


@pytest.mark.parametrize(("balanced", "strength"), [(False, 1.0), (True, 1.0), (False, 0.01)])
def test_logistic_regression_is_that_of_all_samples(balanced: bool, strength: float) -> None:
    logistic = LogisticRegression(C=strength, max_iter=1000, class_weight="balanced" if balanced else None)
    expected = make_pipeline(StandardScaler(), logistic).fit(X, Y)
    found = learned(RefittedScorer("logistic", balanced=balanced, strength=strength)).probabilities(queries())
    np.testing.assert_allclose(found, expected.predict_proba(queries()), atol=1e-5)


@pytest.mark.parametrize("balanced", [False, True])
def test_shrinkage_lda_is_that_of_all_samples(balanced: bool) -> None:
    labels, counts = np.unique(Y, return_counts=True)
    priors = np.full(len(labels), 1 / len(labels)) if balanced else counts / len(Y)
    means = np.stack([X[label == Y].mean(axis=0) for label in labels])

    def shrunk(rows: np.ndarray) -> np.ndarray:
        """As scikit-learn has it: Ledoit and Wolf's for features of variance one, scaled back."""
        scale = rows.std(axis=0)
        scale[scale < 1e-12] = 1
        found, _ = ledoit_wolf((rows - rows.mean(axis=0)) / scale)
        return scale[:, None] * found * scale[None, :]

    covariance = sum(
        prior * shrunk(X[label == Y]) for prior, label, n in zip(priors, labels, counts, strict=True) if n > 1
    )
    inverse = np.linalg.inv(covariance)
    logits = queries() @ inverse @ means.T - np.einsum("cd,de,ce->c", means, inverse, means) / 2 + np.log(priors)
    expected = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    found = learned(RefittedScorer("lda", balanced=balanced)).probabilities(queries())
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(("n_features", "constant"), [(40, 0), (40, 3), (1, 0)])
def test_shrinkage_lda_is_that_of_the_library(n_features: int, constant: int) -> None:
    """Also with fewer samples than features, with features that do not vary, and with one."""
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(6), 4)
    rows = rng.normal(size=(24, n_features)) + rng.normal(size=(6, n_features))[codes]
    rows[:, :constant] = 0.1
    expected = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(rows, codes)
    asked = rng.normal(size=(10, n_features))
    asked[:, :constant] = 0.1
    found = RefittedScorer("lda").learn(rows, codes).probabilities(asked)
    np.testing.assert_allclose(found, expected.predict_proba(asked), atol=1e-9)


def ridge(rows: np.ndarray, targets: np.ndarray, weights: np.ndarray, alpha: float) -> np.ndarray:
    """Return W and b, (d + 1, n_classes), of least weighted squared error, by the normal equations."""
    with_one = np.c_[rows, np.ones(len(rows))]
    penalty = alpha * np.diag([1.0] * rows.shape[1] + [0.0])
    left = with_one.T @ (weights[:, None] * with_one) + penalty
    return np.linalg.solve(left, with_one.T @ (weights[:, None] * targets))


@pytest.mark.parametrize("balanced", [False, True])
def test_ridge_regression_is_that_of_all_samples(balanced: bool) -> None:
    labels, codes, counts = np.unique(Y, return_inverse=True, return_counts=True)
    targets = np.where(Y[:, None] == labels, 1.0, -1.0)
    weights = (len(Y) / len(labels) / counts)[codes] if balanced else np.ones(len(Y))
    head = learned(RefittedScorer("ridge", balanced=balanced))
    alpha = head.model.classifier.alpha_
    expected = np.c_[queries(), np.ones(len(queries()))] @ ridge(X, targets, weights, alpha)
    np.testing.assert_allclose(head.scores(queries()), expected, rtol=1e-6, atol=1e-8)
    if not balanced:
        assert alpha == min(RIDGE_ALPHAS, key=lambda tried: left_out_error(targets, tried))


def left_out_error(targets: np.ndarray, alpha: float) -> float:
    errors = []
    for row in range(len(X)):
        rest = np.arange(len(X)) != row
        found = np.r_[X[row], 1.0] @ ridge(X[rest], targets[rest], np.ones(rest.sum()), alpha)
        errors.append(((found - targets[row]) ** 2).mean())
    return float(np.mean(errors))


def test_the_five_nearest_vote_by_the_inverse_of_their_distance() -> None:
    distances = np.sqrt(((queries()[:, None] - X[None]) ** 2).sum(axis=2))
    nearest = np.argsort(distances, axis=1)[:, :5]
    labels = np.unique(Y)
    votes = np.zeros((len(queries()), len(labels)))
    for row, places in enumerate(nearest):
        for place in places:
            votes[row, np.searchsorted(labels, Y[place])] += 1 / distances[row, place]
    shares = votes / votes.sum(axis=1, keepdims=True)
    head = learned(RefittedScorer("knn"))
    np.testing.assert_allclose(head.scores(queries()), np.log(shares + 1e-3), rtol=1e-9)
    np.testing.assert_allclose(head.probabilities(queries()).argmax(axis=1), shares.argmax(axis=1))


def test_classes_that_were_seen_once_have_no_covariance_and_the_nearest_wins() -> None:
    rows, labels = np.eye(4), ["a", "b", "c", "d"]
    assert RefittedScorer("lda").learn(rows, labels).classify(0.9 * rows).tolist() == labels


def test_a_class_that_is_forgotten_leaves_no_sample() -> None:
    head = learned(RefittedScorer("knn")).forget(30)
    assert 30 not in head.model.evidence.rows
    assert sum(map(len, head.model.evidence.rows.values())) == int((Y != 30).sum())


@pytest.mark.parametrize("name", ["joint-ridge-balanced", "joint-logistic", "shrinkage-lda"])
def test_the_contract_is_kept(name: str) -> None:
    """Nearest neighbors keep it with the other recipes."""
    assert set(check_head(lambda: make_scorer(name))) == set(PROMISES)

"""Deep SLDA beside the published rule, one sample after the other in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, FIRST, N_FEATURES, draw, queries, shuffled
from sklearn.covariance import OAS

from fiveshot.core.scorers import StreamingLDAScorer
from fiveshot.errors import InputError


class Stream:
    """The published procedure: a base session at once, then sample by sample."""

    def __init__(self, X: np.ndarray, y: np.ndarray, *, from_zero: bool) -> None:
        self.means = {k: X[y == k].mean(axis=0) for k in np.unique(y).tolist()}
        self.counts = {k: int((y == k).sum()) for k in self.means}
        centered = X - np.stack([self.means[k] for k in y.tolist()])
        self.covariance = OAS(assume_centered=True).fit(centered).covariance_
        self.seen = len(y)
        self.from_zero = from_zero

    def learn(self, z: np.ndarray, k: int) -> None:
        mean = self.means.get(k, np.zeros_like(z) if self.from_zero else z)
        t, c = self.seen, self.counts.get(k, 0)
        delta = t * np.outer(z - mean, z - mean) / (t + 1)
        self.covariance = (t * self.covariance + delta) / (t + 1)
        self.means[k] = (c * mean + z) / (c + 1)
        self.counts[k] = c + 1
        self.seen += 1

    def scores(self, X: np.ndarray, shrinkage: float) -> np.ndarray:
        inverse = np.linalg.pinv((1 - shrinkage) * self.covariance + shrinkage * np.eye(X.shape[1]))
        weights = np.stack([inverse @ self.means[k] for k in sorted(self.means)])
        shifts = [self.means[k] @ inverse @ self.means[k] / 2 for k in sorted(self.means)]
        return X @ weights.T - np.array(shifts)


@pytest.mark.parametrize("from_zero", [False, True])
@pytest.mark.parametrize("shrinkage", [1e-4, 0.3])
def test_sessions_are_the_published_rule_sample_by_sample(from_zero: bool, shrinkage: float) -> None:
    """New classes, more samples of new and of base classes, all mixed."""
    base = shuffled(draw(BASE))
    head = StreamingLDAScorer(shrinkage, from_zero=from_zero).learn(*base)
    stream = Stream(*base, from_zero=from_zero)
    np.testing.assert_allclose(head.scores(queries()), stream.scores(queries(), shrinkage), rtol=1e-7)
    for number, counts in enumerate((FIRST | {60: 4}, {25: 4, 30: 3, 70: 5}, {80: 1})):
        X, y = shuffled(draw(counts, seed=number), seed=number)
        head = head.learn(X, y)
        for z, k in zip(X, y.tolist(), strict=True):
            stream.learn(z, k)
        np.testing.assert_allclose(head.scores(queries()), stream.scores(queries(), shrinkage), rtol=1e-7)
    assert head.model.seen == stream.seen


def test_the_order_of_samples_matters_as_published() -> None:
    """Why the head leaves the promises about order to others."""
    base, new = draw(BASE), draw({25: 5})[25]
    one, other = (StreamingLDAScorer().learn(*shuffled(base)).learn(rows, [25] * 5) for rows in (new, new[::-1]))
    assert np.abs(one.scores(queries()) - other.scores(queries())).max() > 1e-3


def test_a_class_cannot_be_taken_out_of_the_covariance() -> None:
    head = StreamingLDAScorer().learn(*shuffled(draw(BASE))).learn(*shuffled(draw(FIRST)))
    before = head.scores(queries())
    with pytest.raises(InputError, match="cannot forget 25"):
        head.forget(25)
    np.testing.assert_array_equal(head.scores(queries()), before)
    assert before.shape[1] == len(BASE) + len(FIRST)
    assert head.n_features == N_FEATURES

"""A sketch: a few other classes beside those of a head, at little cost."""

from __future__ import annotations

import numpy as np
import pytest

from fiveshot.core import class_statistics, lda
from fiveshot.core.lda import SpaceModel
from fiveshot.core.memory import Memory
from fiveshot.core.scorers import make_scorer
from fiveshot.data import gaussian_classes

N_BASE, N_NEW, D = 120, 40, 24


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(N_BASE + N_NEW + 3, D))
    y = np.concatenate([np.repeat(np.arange(N_BASE), 12), np.repeat(np.arange(N_BASE, N_BASE + N_NEW + 3), 5)])
    return (centers[y] + 0.7 * rng.normal(size=(len(y), D))).astype(np.float32), y


def learned(head, data: tuple[np.ndarray, np.ndarray]):
    X, y = data
    base, new = y < N_BASE, (y >= N_BASE) & (y < N_BASE + N_NEW)
    return head.learn(X[base], y[base]).learn(X[new], y[new])


def with_more(head, data: tuple[np.ndarray, np.ndarray]) -> Memory:
    """Return the memory with three classes more and one less."""
    X, y = data
    more = y >= N_BASE + N_NEW
    session = class_statistics(head.embed(X[more]), y[more])
    return Memory(head.memory.base, head.memory.new.drop([N_BASE]).merge(session))


@pytest.mark.parametrize("n_random", [0, 64])
def test_the_same_classes_keep_their_scores_to_the_bit(data, n_random):
    head = learned(make_scorer("unbiased-lda", n_random=n_random), data)
    same = head.sketch(head.memory)
    assert np.array_equal(same.scores(data[0]), head.scores(data[0]))


@pytest.mark.parametrize("n_random", [0, 64])
def test_further_classes_score_nearly_as_if_they_had_been_learned(data, n_random):
    head = learned(make_scorer("unbiased-lda", n_random=n_random), data)
    before = head.scores(data[0])
    memory = with_more(head, data)
    sketch = head.sketch(memory)
    exact = make_scorer("unbiased-lda", n_random=n_random).adopt(memory, head.settings())
    assert sketch.classes.tolist() == exact.classes.tolist()
    rough, fine = sketch.scores(data[0]), exact.scores(data[0])
    assert np.abs(rough - fine).max() < 0.2 * fine.std()
    assert np.mean(rough.argmax(axis=1) == fine.argmax(axis=1)) > 0.98
    assert not np.array_equal(rough, fine)  # a sketch: what classes share was not estimated again
    assert np.array_equal(head.scores(data[0]), before)


def test_other_heads_simply_adopt():
    X, y = gaussian_classes(n_classes=6, n_features=5, train_per_class=8, test_per_class=1, seed=0)[:2]
    head = make_scorer("ncm").learn(X, y)
    memory = Memory(head.memory.base.drop([y[0]]), head.memory.new)
    sketch = head.sketch(memory)
    assert y[0] not in sketch.classes
    assert y[0] in head.classes


@pytest.mark.parametrize("n", [1, 5, 13, 40])
def test_scores_of_many_classes_are_those_of_one_product(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    origin, weights, X = rng.normal(size=7), rng.normal(size=(45, 7)), rng.normal(size=(n, 7))
    model = SpaceModel(origin, weights, np.zeros(45), None)
    monkeypatch.setattr(lda, "MANY_CLASSES", 10)
    monkeypatch.setattr(lda, "SMALL_PRODUCT", 24 * 7 * 5)  # up to 5 samples are scored 24 classes at a time, 15 8
    np.testing.assert_allclose(model.scores(X), (X - origin) @ weights.T, rtol=1e-12, atol=1e-12)

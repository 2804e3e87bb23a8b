from __future__ import annotations

import numpy as np
import pytest
from libraries import made, same

from fiveshot.core import NO_CLASSES, ClassStatistics, class_statistics, statistics_of_batches, summarize
from fiveshot.errors import InputError

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, st = hypothesis.given, hypothesis.strategies

WORDS = ["ara", "owl", "kite", "wren", "Ωwl"]


def assert_same(found: ClassStatistics, expected: ClassStatistics, tolerance: float = 1e-10) -> None:
    """Compare counts, means and dense scatters: a factor is known up to a rotation of its rows only."""
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.counts.tolist() == expected.counts.tolist()
    for one, other in zip(found.summaries, expected.summaries, strict=True):
        np.testing.assert_allclose(one.mean, other.mean, atol=tolerance)
        np.testing.assert_allclose(one.factor.T @ one.factor, other.factor.T @ other.factor, atol=tolerance)


def assert_describes(statistics: ClassStatistics, X: np.ndarray, y: np.ndarray, tolerance: float = 1e-10) -> None:
    assert statistics.labels.tolist() == sorted(set(y.tolist()))
    for label in set(y.tolist()):
        summary, rows = statistics[label], X[y == label]
        assert summary.count == len(rows)
        assert summary.factor.shape[0] <= min(len(rows), X.shape[1])
        np.testing.assert_allclose(summary.mean, rows.mean(axis=0), atol=tolerance)
        factor = np.asarray(summary.covariance_factor)
        covariance = np.atleast_2d(np.cov(rows, rowvar=False)) if len(rows) > 1 else np.zeros((X.shape[1],) * 2)
        np.testing.assert_allclose(factor.T @ factor, covariance, atol=tolerance)


@st.composite
def labeled(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n, d = draw(st.integers(1, 24)), draw(st.integers(1, 6))
    y = np.array(draw(st.lists(st.sampled_from(WORDS), min_size=n, max_size=n)))
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(1.0, 2.0, (n, d)), y


@pytest.mark.parametrize("labels", [[3, -1, 20], ["wren", "owl", "ara"]])
@pytest.mark.parametrize(("n", "d"), [(9, 4), (60, 4), (30, 50), (3, 2)])
def test_means_and_covariances_are_numpys(labels: list[object], n: int, d: int) -> None:
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, d)), np.array(labels)[np.arange(n) % 3]
    assert_describes(class_statistics(made(X), y), X, y)


def test_single_precision_stays_single_and_near() -> None:
    X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    y = np.arange(40) % 3
    statistics = class_statistics(made(X), y)
    assert {s.mean.dtype for s in statistics.summaries} | {s.factor.dtype for s in statistics.summaries} == {
        made([0], np.float32).dtype
    }
    assert_describes(statistics, X.astype(np.float64), y, tolerance=1e-5)


@given(data=labeled(), cuts=st.lists(st.integers(0, 24), max_size=5), seed=st.integers(0, 999))
def test_any_batches_in_any_order_give_the_statistics_of_all(
    data: tuple[np.ndarray, np.ndarray], cuts: list[int], seed: int
) -> None:
    X, y = data
    order = np.random.default_rng(seed).permutation(len(X))
    parts = np.split(order, sorted(min(cut, len(X)) for cut in cuts))
    batches = [(made(X[part]), y[part]) for part in parts]
    assert_describes(statistics_of_batches(batches), X, y)


@given(first=labeled(), second=labeled(), third=labeled())
def test_merging_is_associative_commutative_and_exact(first: tuple, second: tuple, third: tuple) -> None:
    d = min(X.shape[1] for X, _ in (first, second, third))
    parts = [(X[:, :d], y) for X, y in (first, second, third)]
    a, b, c = (class_statistics(made(X), y) for X, y in parts)
    assert_same(a.merge(b), b.merge(a))
    assert_same(a.merge(b).merge(c), a.merge(b.merge(c)))
    joined = np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])
    assert_describes(a.merge(b).merge(c), *joined)


def test_merging_touches_neither_part() -> None:
    X = made(np.sqrt(np.arange(24.0).reshape(8, 3)))
    a, b = class_statistics(X[:5], [0, 0, 1, 1, 2]), class_statistics(X[5:], [0, 2, 9])
    before = [made(s.factor) for s in (*a.summaries, *b.summaries)]
    joined = a.merge(b)
    assert all(same(s.factor, f) for s, f in zip((*a.summaries, *b.summaries), before, strict=True))
    assert joined[1] is a[1], "a class that the other part does not know is shared, not copied"
    assert a.labels.tolist() == [0, 1, 2]


def test_adding_samples_of_known_and_new_classes() -> None:
    X = np.random.default_rng(2).normal(size=(20, 5))
    y = np.array(["a"] * 9 + ["b"] * 4 + ["a"] * 3 + ["c"] * 4)
    statistics = class_statistics(made(X[:13]), y[:13]).add(made(X[13:]), y[13:])
    assert_describes(statistics, X, y)


def test_dropping_and_restricting() -> None:
    X, y = made(np.random.default_rng(0).normal(size=(12, 3))), np.arange(12) % 4
    statistics = class_statistics(X, y)
    assert_same(statistics.drop([1, 3]), class_statistics(X[(y == 0) | (y == 2)], y[(y == 0) | (y == 2)]), 0)
    assert_same(statistics.restrict([2, 0]), statistics.drop([1, 3]), 0)
    assert statistics.drop([]).labels.tolist() == [0, 1, 2, 3]
    assert len(statistics.drop(range(4))) == len(statistics.restrict([])) == 0
    assert statistics.labels.tolist() == [0, 1, 2, 3], "a value is never changed"
    for change in (statistics.drop, statistics.restrict):
        with pytest.raises(InputError, match="no class 7; known classes are 0, 1, 2, 3"):
            change([0, 7])


def test_an_unknown_class_is_named_and_the_nearest_suggested() -> None:
    words = class_statistics(made(np.eye(3)), ["wren", "owl", "kite"])
    with pytest.raises(InputError, match=r"no class 'wrn'; did you mean 'wren'\? choose from kite, owl, wren"):
        words["wrn"]
    many = class_statistics(made(np.eye(60)), [f"class {i}" for i in range(60)])
    with pytest.raises(InputError, match=r"no class 'class 99'; known classes are .*\(60 in all\)"):
        many["class 99"]
    assert "wren" in words
    assert "wrn" not in words
    assert 0 not in words


def test_one_sample_has_a_mean_and_no_covariance() -> None:
    summary = summarize(made([[1.0, 2.0, 3.0]]))
    assert summary.mean.tolist() == [1.0, 2.0, 3.0]
    assert summary.covariance_factor.shape == (0, 3)
    grown = summary.merge(summarize(made([[3.0, 2.0, 1.0]])))
    np.testing.assert_allclose(grown.factor.T @ grown.factor, np.outer([2, 0, -2], [2, 0, -2]) / 2, atol=1e-6)


def test_the_empty_statistics_are_neutral() -> None:
    some = class_statistics(made(np.eye(2)), ["a", "b"])
    assert NO_CLASSES.merge(some) is some
    assert some.merge(NO_CLASSES) is some
    assert len(class_statistics(made(np.empty((0, 2))), [])) == 0
    with pytest.raises(InputError, match="no class is known"):
        _ = NO_CLASSES.means


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2, 3]])
def test_each_row_needs_a_label(labels: list[int]) -> None:
    with pytest.raises(InputError, match=rf"features of shape \(3, 3\) do not fit {len(labels)} labels; give one"):
        class_statistics(made(np.eye(3)), labels)
    with pytest.raises(InputError, match="give one row of features per label"):
        class_statistics(made(np.ones(3)), [0, 1, 2])


def test_what_does_not_fit_together_is_not_merged() -> None:
    three = class_statistics(made(np.eye(3)), [0, 1, 2])
    with pytest.raises(
        InputError, match="statistics of 3 and of 2 features; both must come from the same backbone"
    ):
        three.merge(class_statistics(made(np.eye(2)), [0, 1]))
    with pytest.raises(InputError, match="label 'a' does not fit"):
        three.merge(class_statistics(made(np.eye(3)), ["a", "b", "c"]))


def test_stacked_factors_are_the_covariance_factors_with_their_owners() -> None:
    X, y = made(np.random.default_rng(1).normal(size=(11, 3))), [0] * 6 + [1] + [2] * 4
    statistics = class_statistics(X, y)
    factors, owners = statistics.stacked_factors
    assert len(factors) == len(owners)
    for code, label in enumerate((0, 1, 2)):
        rows = factors[owners == code]
        own = statistics[label].covariance_factor
        np.testing.assert_allclose(rows.T @ rows, own.T @ own, atol=1e-12)

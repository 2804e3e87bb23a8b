"""Reductions of any blocks, in any order and any tree, are the reduction of all samples at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fiveshot.core import class_statistics
from fiveshot.core.draws import random_features
from fiveshot.errors import InputError
from fiveshot.scale._pipeline import Rows
from fiveshot.scale._reducer import MergeTree
from fiveshot.scale._reductions import (
    PerClass,
    Reduction,
    Ridge,
    Sample,
    Tied,
    TiedStatistics,
    pack,
    reduce_rows,
    tie,
    unpack,
)

TOLERANCE = 1e-5


def samples(seed: int, n: int, d: int, classes: int) -> Rows:
    rng = np.random.default_rng(seed)
    labels = np.array([f"class {label}" for label in rng.integers(0, classes, n)])
    vectors = rng.normal(3, 1, (n, d)) * rng.uniform(0.1, 5, d)
    return Rows(vectors.astype(np.float32), labels, tuple(f"{i}.jpg" for i in range(n)))


def reduced(reduction: Reduction, rows: Rows, seed: int, blocks: int, arity: int) -> Any:
    """Reduce as a cluster does: any blocks, in any order, bucket by bucket, in trees."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, blocks, len(rows.labels))
    trees: list[MergeTree[Any]] = [MergeTree(reduction.merge, arity=arity) for _ in range(reduction.buckets)]
    for block in rng.permutation(blocks):
        for tree, part in zip(trees, reduce_rows(reduction, rows.select(owner == block)), strict=True):
            tree.add(part)
    return reduction.merge([tree.result() for tree in trees])


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.abs(found - expected).max(initial=0) <= TOLERANCE * np.abs(expected).max(initial=1e-12))


def oracle(rows: Rows) -> dict[str, tuple[int, np.ndarray, np.ndarray]]:
    found = {}
    for label in np.unique(rows.labels):
        own = rows.vectors[rows.labels == label].astype(np.float64)
        centered = own - own.mean(axis=0)
        found[str(label)] = len(own), own.mean(axis=0), centered.T @ centered
    return found


partitions = {
    "seed": st.integers(0, 2**16),
    "n": st.integers(1, 90),
    "d": st.integers(1, 6),
    "classes": st.integers(1, 7),
    "blocks": st.integers(1, 12),
    "arity": st.integers(2, 5),
}


@given(**partitions, buckets=st.integers(1, 3))
def test_class_statistics(seed: int, n: int, d: int, classes: int, blocks: int, arity: int, buckets: int) -> None:
    rows = samples(seed, n, d, classes)
    found = unpack(reduced(PerClass(buckets), rows, seed, blocks, arity))
    expected = oracle(rows)
    assert found.labels.tolist() == sorted(expected)
    for label, summary in zip(found.labels.tolist(), found.summaries, strict=True):
        count, mean, scatter = expected[label]
        factor = summary.factor.astype(np.float64)
        assert summary.count == count
        assert close(summary.mean, mean)
        assert len(factor) <= min(count, d)
        largest = max(np.trace(scatter), 1e-3 * np.square(mean).max())  # single samples have no scatter at all
        assert np.abs(factor.T @ factor - scatter).max(initial=0) <= TOLERANCE * largest


@given(**partitions, buckets=st.integers(1, 3))
def test_tied_statistics(seed: int, n: int, d: int, classes: int, blocks: int, arity: int, buckets: int) -> None:
    rows = samples(seed, n, d, classes)
    found: TiedStatistics = reduced(Tied(buckets), rows, seed, blocks, arity)
    expected = oracle(rows)
    scatter = sum(values[2] for values in expected.values())
    assert found.labels.tolist() == sorted(expected)
    assert found.counts.tolist() == [expected[label][0] for label in sorted(expected)]
    assert close(found.means, np.stack([expected[label][1] for label in sorted(expected)]))
    largest = max(np.trace(scatter), 1e-3 * np.square(found.means).max())
    assert np.abs(found.scatter - scatter).max() <= TOLERANCE * largest


@given(**partitions)
def test_samples_are_the_same_few(seed: int, n: int, d: int, classes: int, blocks: int, arity: int) -> None:
    rows = samples(seed, n, d, classes)
    at_once = Sample(3, buckets=1).reduce(rows)
    found = reduced(Sample(3, buckets=2), rows, seed, blocks, arity)
    assert found.labels.tolist() == at_once.labels.tolist()
    assert (found.keys == at_once.keys).all()
    assert (found.vectors == at_once.vectors).all()
    for label in np.unique(rows.labels):
        assert (found.labels == label).sum() == min(3, (rows.labels == label).sum())


@given(**partitions)
def test_ridge_sums(seed: int, n: int, d: int, classes: int, blocks: int, arity: int) -> None:
    rows = samples(seed, n, d, classes)
    found = reduced(Ridge(11, random_state=4), rows, seed, blocks, arity)
    projection = random_features(d, 11, seed=4, like=np.zeros(1, np.float32)).projection.astype(np.float64)
    mapped = np.maximum(rows.vectors.astype(np.float64) @ projection, 0)
    assert close(np.tril(found.gram), np.tril(mapped.T @ mapped))
    expected = [mapped[rows.labels == label].sum(axis=0) for label in np.unique(rows.labels)]
    assert found.labels.tolist() == np.unique(rows.labels).tolist()
    assert close(found.targets, np.stack(expected))


def test_packing_keeps_every_bit() -> None:
    rows = samples(0, 60, 5, 4)
    statistics = class_statistics(rows.vectors, rows.labels)
    again = unpack(pack(statistics))
    assert again.labels.tolist() == statistics.labels.tolist()
    for one, other in zip(again.summaries, statistics.summaries, strict=True):
        assert one.count == other.count
        assert np.array_equal(one.mean, other.mean)
        assert np.array_equal(one.factor, other.factor)


def test_one_merge_of_packed_statistics_is_that_of_class_statistics() -> None:
    first, second = samples(1, 40, 3, 4), samples(2, 50, 3, 5)
    parts = [class_statistics(rows.vectors, rows.labels) for rows in (first, second)]
    expected = parts[0].merge(parts[1])
    found = unpack(PerClass().merge([pack(part) for part in parts]))
    assert found.labels.tolist() == expected.labels.tolist()
    assert np.array_equal(found.counts, expected.counts)
    assert np.allclose(found.means, expected.means, rtol=1e-6)
    for one, other in zip(found.summaries, expected.summaries, strict=True):
        assert np.allclose(one.factor.T @ one.factor, other.factor.T @ other.factor, rtol=1e-5, atol=1e-4)


def test_tying_adds_up_the_scatters() -> None:
    rows = samples(3, 80, 4, 5)
    found, expected = tie(PerClass().reduce(rows)), Tied().reduce(rows)
    assert close(found.scatter, expected.scatter)
    assert close(found.covariance, expected.scatter / (80 - 5))


@pytest.mark.parametrize("reduction", [PerClass(), Tied()])
def test_other_widths_are_refused(reduction: Reduction) -> None:
    parts = [reduction.reduce(rows) for rows in (samples(0, 5, 3, 2), samples(0, 5, 4, 2))]
    with pytest.raises(InputError, match="3 and of 4 features"):
        reduction.merge(parts)


def test_labels_of_another_kind_are_refused() -> None:
    rows = samples(0, 4, 2, 2)
    texts, numbers = PerClass().reduce(rows), PerClass().reduce(replace(rows, labels=np.arange(4)))
    with pytest.raises(InputError, match="use one label type"):
        PerClass().merge([texts, numbers])


def test_sums_of_other_projections_are_refused() -> None:
    rows = samples(0, 4, 2, 2)
    with pytest.raises(InputError, match="of 5 and of 6 random features"):
        Ridge(5).merge([Ridge(5).reduce(rows), Ridge(6).reduce(rows)])


@pytest.mark.parametrize("reduction", [PerClass(2), Tied(2), Sample(3, 2), Ridge(4)])
def test_blocks_without_rows_change_nothing(reduction: Reduction) -> None:
    rows = samples(5, 30, 3, 4)
    nothing = rows.select(np.zeros(30, bool))

    def together(blocks: Sequence[Rows]) -> Any:
        parts = [reduce_rows(reduction, block) for block in blocks]
        return reduction.merge([reduction.merge(list(bucket)) for bucket in zip(*parts, strict=True)])

    alone, among = together([rows]), together([nothing, rows, nothing])
    for name in vars(alone):
        assert (getattr(alone, name) == getattr(among, name)).all(), name
    assert len(together([nothing, nothing])) == 0


@pytest.mark.parametrize("reduction", [PerClass(), Tied(), Sample()])
def test_a_bucket_without_classes_takes_no_room(reduction: Reduction) -> None:
    """Most buckets of a block are such, and each is sent."""
    nothing = samples(5, 30, 3, 4).select(np.zeros(30, bool))
    assert sum(array.nbytes for array in vars(reduction.reduce(nothing)).values()) == 0

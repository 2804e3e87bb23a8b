from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from libraries import made, same

from fiveshot.core import ClassGaussian, SummedGaussian
from fiveshot.core.draws import (
    Sampling,
    derived_seed,
    factored_samples,
    gaussian_samples,
    hold_back,
    normal_numbers,
    random_features,
    stratified_split,
)
from fiveshot.errors import InputError


def gaussian(rank: int, d: int = 8, dtype: Any = np.float64) -> ClassGaussian:
    rng = np.random.default_rng(rank)
    factor = rng.normal(size=(rank, d))
    return ClassGaussian(made(rng.normal(size=d), dtype), made(factor, dtype))


@pytest.mark.parametrize("rank", [1, 4, 8, 30])
def test_samples_have_the_mean_and_covariance_of_the_class(rank: int) -> None:
    n = 40_000
    target = gaussian(rank)
    samples = np.asarray(gaussian_samples(target, n, seed=3))
    covariance = np.asarray(target.factor.T @ target.factor)
    deviations = np.sqrt(np.diag(covariance))
    # Five standard errors: of a mean σ/√n, of a covariance √((σ_i² σ_j² + σ_ij²) / n).
    assert (np.abs(samples.mean(axis=0) - np.asarray(target.mean)) < 5 * deviations / np.sqrt(n)).all()
    errors = np.sqrt((np.outer(deviations, deviations) ** 2 + covariance**2) / n)
    assert (np.abs(np.cov(samples.T) - covariance) < 5 * errors).all()


def test_samples_stay_in_the_span_of_the_factor() -> None:
    target = gaussian(3)
    samples = np.asarray(gaussian_samples(target, 50, seed=0) - target.mean)
    assert np.linalg.matrix_rank(samples, tol=1e-9) == 3


def test_samples_are_normal_in_every_direction() -> None:
    target = gaussian(8)
    white = np.asarray(gaussian_samples(target, 20_000, seed=1) - target.mean) @ np.linalg.inv(
        np.asarray(target.factor)
    )
    kurtosis = (white**4).mean(axis=0)
    assert np.abs(kurtosis - 3).max() < 5 * np.sqrt(96 / 20_000)  # Var(z⁴) = 96


def test_a_summed_covariance_is_drawn_from_as_its_factor() -> None:
    factor = np.triu(np.random.default_rng(0).normal(size=(8, 8)))
    factor[np.arange(8), np.arange(8)] = np.abs(np.diag(factor)) + 1  # the one that is triangular and positive
    mean = np.arange(8.0)
    summed = SummedGaussian(made(mean), made(np.tril(factor.T @ factor)))
    expected = gaussian_samples(ClassGaussian(made(mean), made(factor)), 20, seed=4)
    np.testing.assert_allclose(gaussian_samples(summed, 20, seed=4), expected, atol=1e-12)


@pytest.mark.parametrize("rank", [0, 3])
def test_samples_are_mapped_through_their_factor(rank: int) -> None:
    target, features = gaussian(rank), random_features(8, 30, seed=0, like=made([0.0]))
    rows, whole = factored_samples(target, 12, seed=4), gaussian_samples(target, 12, seed=4)
    np.testing.assert_allclose(features(rows), features(whole), atol=1e-12)
    np.testing.assert_allclose(features(rows[3:7] * 2.0), features(2 * whole[3:7]), atol=1e-12)


def test_a_class_without_covariance_repeats_its_mean() -> None:
    mean = made(np.arange(4.0))
    found = gaussian_samples(ClassGaussian(mean, made(np.empty((0, 4)))), 3, seed=0)
    assert same(found, made(np.tile(np.arange(4.0), (3, 1))))


def test_the_same_seed_gives_the_same_numbers_and_another_does_not() -> None:
    target = gaussian(5)
    one, again, other = (gaussian_samples(target, 10, seed=seed) for seed in (7, 7, 8))
    assert same(one, again)
    assert not np.isclose(one, other).any(axis=1).all()
    features = [random_features(3, 5, seed=s, like=made([0.0])).projection for s in (1, 1, 2)]
    assert same(features[0], features[1])
    assert not same(features[0], features[2])


def test_precision_does_not_change_the_draw() -> None:
    single, double = (gaussian_samples(gaussian(5, dtype=t), 20, seed=7) for t in (np.float32, np.float64))
    dtypes = [made([0], t).dtype for t in (np.float32, np.float64)]
    assert [single.dtype, double.dtype] == dtypes
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-5)
    projections = [random_features(6, 40, seed=1, like=made([0], t)) for t in (np.float32, np.float64)]
    assert [p.projection.dtype for p in projections] == dtypes
    np.testing.assert_allclose(projections[0].projection, projections[1].projection, rtol=1e-6)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 + 5, 2**63 - 1, 123456789012345])
def test_normal_numbers_are_torchs(seed: int) -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    for size in (*range(1, 50), 100, 1000, 32_768, 32_769, 32_784, 70_001):
        expected = torch.randn(size, generator=torch.Generator().manual_seed(seed)).numpy()
        np.testing.assert_allclose(normal_numbers((1, size), seed=seed)[0], expected, atol=2e-6)


def test_no_global_generator_is_touched() -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    torch.manual_seed(0)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    gaussian_samples(gaussian(3), 5, seed=0)
    random_features(3, 5, seed=0, like=made([0.0]))
    stratified_split(np.arange(20) % 3, held_out=0.2, seed=0)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002


def test_random_features_are_gaussian_and_rectified() -> None:
    features = random_features(50, 2000, seed=0, like=made([0.0]))
    assert features.projection.shape == (50, 2000)
    assert float(features.projection.mean()) == pytest.approx(0, abs=5 / np.sqrt(1e5))
    assert float(features.projection.var()) == pytest.approx(1, abs=5 * np.sqrt(2 / 1e5))
    X = np.random.default_rng(0).normal(size=(7, 50))
    given = made(X)
    np.testing.assert_allclose(features(given), np.maximum(X @ np.asarray(features.projection), 0), atol=1e-12)
    assert same(given, made(X))


def test_derived_seeds_differ_by_seed_name_and_type_of_the_name() -> None:
    names = [*range(50), *map(str, range(50)), "projection", "held out"]
    seeds = {derived_seed(seed, name) for seed in range(5) for name in names}
    assert len(seeds) == 5 * len(names)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_derived_seeds_never_change() -> None:
    """Saved heads go on drawing with them: the first 63 bits of a SHA-256, the same on any machine."""
    digest = hashlib.sha256(b"3|str|owl").hexdigest()
    assert derived_seed(3, "owl") == int(digest[:16], 16) // 2 == 4075536171236687202
    assert derived_seed(3, 7) == int(hashlib.sha256(b"3|int|7").hexdigest()[:16], 16) // 2


@pytest.mark.parametrize("counts", [[10, 5, 20], [2, 1, 3], [1, 1], [100]])
def test_the_split_takes_a_fifth_of_every_class(counts: list[int]) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    train, held_out = stratified_split(labels, held_out=0.2, seed=0)
    assert sorted([*train, *held_out]) == list(range(len(labels)))
    for label, count in enumerate(counts):
        taken = int(np.sum(labels[held_out] == label))
        assert taken == (max(1, round(0.2 * count)) if count > 1 else 0)
    again = stratified_split(labels, held_out=0.2, seed=0)
    assert (again[0] == train).all()
    if len(held_out) > 5:
        assert not np.array_equal(held_out, stratified_split(labels, held_out=0.2, seed=1)[1])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"per_class": 0}, "per_class must be a whole number of at least 1, got 0; the paper draws 800"),
        ({"classes": "every"}, "no choice of sampled classes 'every'; choose from all, new"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampling(**parameters)


def test_each_class_holds_a_quarter_back() -> None:
    labels = np.repeat(["a", "b", "c", "d"], [1, 3, 8, 200])
    held = hold_back(labels, seed=0)
    assert [int(held[labels == label].sum()) for label in "abcd"] == [0, 1, 2, 20]
    held = hold_back(labels, seed=0, least=4)
    assert [int(held[labels == label].sum()) for label in "abcd"] == [0, 0, 2, 20]
    assert (held == hold_back(labels, seed=0, least=4)).all()
    assert (held != hold_back(labels, seed=1, least=4)).any()

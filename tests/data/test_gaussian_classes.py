from __future__ import annotations

import numpy as np
import pytest

from fiveshot.data.synthetic import gaussian_classes, gaussian_parameters
from fiveshot.errors import InputError

SHAPE = {"n_classes": 20, "n_features": 12, "seed": 3, "n_families": 4}


def test_samples_follow_the_stated_means_and_covariances():
    parameters = gaussian_parameters(**SHAPE, rank=3)
    x, y, _, _ = gaussian_classes(**SHAPE, rank=3, train_per_class=20_000, test_per_class=0)
    for label in (0, 7):
        of_class = x[y == label].astype(np.float64)
        covariance = parameters.covariance(label)
        error = np.abs(of_class.mean(axis=0) - parameters.means[label])
        assert error.max() < 5 * np.sqrt(covariance.diagonal().max() / 20_000)
        assert np.linalg.norm(np.cov(of_class.T) - covariance) < 0.05 * np.linalg.norm(covariance)


def test_similar_means_come_with_similar_covariances():
    parameters = gaussian_parameters(n_classes=30, n_features=24, seed=0, n_families=5)
    covariances = [parameters.covariance(label) for label in range(30)]
    near, far = [], []
    for a in range(30):
        for b in range(a):
            means = np.linalg.norm(parameters.means[a] - parameters.means[b])
            pair = (means, np.linalg.norm(covariances[a] - covariances[b]))
            (near if parameters.families[a] == parameters.families[b] else far).append(pair)
    assert np.mean(near, axis=0)[0] < 0.7 * np.mean(far, axis=0)[0]
    assert np.mean(near, axis=0)[1] < 0.7 * np.mean(far, axis=0)[1]


def test_perturbation_runs_from_one_shared_covariance_to_none():
    shared = gaussian_parameters(**SHAPE, perturbation=0.0)
    np.testing.assert_array_equal(shared.covariance(0), shared.covariance(4))
    own = gaussian_parameters(**SHAPE, perturbation=1.0)
    assert np.linalg.norm(own.covariance(0) - own.covariance(4)) > 1


def test_separation_is_the_distance_between_means_of_a_family():
    means = gaussian_parameters(n_classes=40, n_features=500, seed=0, n_families=1, separation=7.0).means
    distances = [np.linalg.norm(means[a] - means[b]) for a in range(40) for b in range(a)]
    assert np.mean(distances) == pytest.approx(7.0, rel=0.05)


def test_the_seed_decides_and_more_images_keep_the_classes():
    few = gaussian_classes(**SHAPE, train_per_class=3, test_per_class=2)
    again = gaussian_classes(**SHAPE, train_per_class=3, test_per_class=2)
    other = gaussian_classes(**{**SHAPE, "seed": 4}, train_per_class=3, test_per_class=2)
    for one, two in zip(few, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(few[0], other[0])
    many = gaussian_classes(**SHAPE, train_per_class=900, test_per_class=0)
    assert np.linalg.norm(many[0][many[1] == 5].mean(0) - gaussian_parameters(**SHAPE).means[5]) < 0.5
    assert few[0].dtype == np.float32
    assert few[1].dtype == np.int64


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n_classes": 0}, "at least 1"),
        ({"n_families": 21}, "n_families=21"),
        ({"perturbation": 1.5}, "perturbation=1.5"),
        ({"train_per_class": -1}, "negative"),
    ],
)
def test_impossible_requests_are_refused(wrong, says):
    request = {**SHAPE, "train_per_class": 1, "test_per_class": 1, **wrong}
    with pytest.raises(InputError, match=says):
        gaussian_classes(**request)

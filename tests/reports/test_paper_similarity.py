from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import linregress
from toys import toy_features

from fiveshot.benchmark import Protocol, get_protocol
from fiveshot.core import class_statistics
from fiveshot.errors import InputError
from fiveshot.features import embedded_features
from fiveshot.reports._paper_figures import covariance_similarity, similarity_points


@pytest.mark.parametrize("images", [2, 5, 40])  # fewer and more than dimensions
def test_similarity_is_the_cosine_of_dense_covariances(images: int) -> None:
    rng = np.random.default_rng(images)
    samples = {name: rng.normal(size=(images, 6)) @ rng.normal(size=(6, 6)) for name in "abcde"}
    first, second = ["a", "b"], ["c", "d", "e"]
    statistics = [
        class_statistics(np.concatenate([samples[name] for name in names]), np.repeat(names, images))
        for names in (first, second)
    ]
    dense = {name: np.cov(x.T).ravel() for name, x in samples.items()}
    expected = [
        [dense[a] @ dense[b] / np.linalg.norm(dense[a]) / np.linalg.norm(dense[b]) for b in second] for a in first
    ]
    np.testing.assert_allclose(covariance_similarity(*statistics), expected, rtol=1e-10)
    np.testing.assert_allclose(np.diag(covariance_similarity(statistics[0], statistics[0])), 1)


def test_points_use_all_images_of_session_one_and_the_base() -> None:
    features = toy_features("toys", 7, rng=np.random.default_rng(0))
    protocol = Protocol("p", "toys", n_classes=7, base_classes=3, increment=2)
    points = similarity_points(protocol, features)
    base, new = protocol.session_classes[:2]
    means = {label: features.train_x[features.train_y == label].astype(float).mean(axis=0) for label in range(7)}
    expected = [[np.linalg.norm(means[n] - means[b]) for b in sorted(base)] for n in sorted(new)]
    np.testing.assert_allclose(points.distance, expected, rtol=1e-6)
    assert points.similarity.shape == (2, 3)
    line = linregress(points.distance.ravel(), points.similarity.ravel())
    assert points.correlation == pytest.approx(line.rvalue)
    assert points.trend == pytest.approx((line.slope, line.intercept))


def test_near_birds_have_similar_covariances() -> None:
    # The paper's observation, on the features of photographs that come with the package.
    assert similarity_points(get_protocol("cub200/small"), embedded_features()).correlation < -0.7


def test_a_class_of_one_image_has_no_covariance() -> None:
    one = class_statistics(np.eye(3), [0, 1, 1])
    with pytest.raises(InputError, match="needs two different images"):
        covariance_similarity(one, one)


def test_without_a_second_session_there_is_nothing_to_compare() -> None:
    features = toy_features("toys", 3, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="no session after the base session"):
        similarity_points(Protocol("p", "toys", 3, 3, 1), features)

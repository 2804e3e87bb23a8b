from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, draw, flat, queries
from oracles import covariance, fecam_scores
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from fiveshot.core import Calibration
from fiveshot.errors import InputError
from fiveshot.heads import FeCAM

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, st = hypothesis.given, hypothesis.strategies

CALIBRATIONS = [
    None,
    Calibration(alpha=0.9, beta=1.0),
    Calibration(alpha=0.7, beta=0.5, tau=3.0),
    Calibration(alpha=0.9, beta=None),
    Calibration(alpha=0.9, beta=1.0, prototypes="unit"),
    Calibration(alpha=0.9, beta=0.5, similarity="dot"),
]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("normalization", ["correlation", "rows", "none"])
@pytest.mark.parametrize("calibration", CALIBRATIONS, ids=str)
def test_scores_are_equation_5(normalization: str, normalize: bool, calibration: Calibration | None) -> None:
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()
    parameters = {"normalization": normalization, "normalize": normalize, "calibration": calibration}
    for gamma in (100.0, 8.0):
        head = FeCAM(gamma, **parameters).fit(*flat(base)).partial_fit(*flat(new))
        expected = fecam_scores(base, new, X, gamma=gamma, **parameters)
        np.testing.assert_allclose(head.class_scores(X), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("n_features", [40, 64])
def test_scores_are_equation_5_where_few_samples_meet_many_features(n_features: int) -> None:
    base = draw({3: 9, 1: 60, 2: 4}, n_features=n_features)  # low rank, full rank, low rank
    new = draw({7: 5, 0: 1}, n_features=n_features)
    X = flat(draw({0: 3, 1: 3, 2: 3, 3: 3, 7: 3}, seed=5, n_features=n_features))[0]
    for gamma in (100.0, 0.1):
        head = FeCAM(gamma, calibration=None).fit(*flat(base)).partial_fit(*flat(new))
        expected = fecam_scores(
            base, new, X, gamma=gamma, normalization="correlation", normalize=True, calibration=None
        )
        np.testing.assert_allclose(head.class_scores(X), expected, rtol=1e-9)


def test_without_normalisation_it_is_quadratic_discriminant_analysis() -> None:
    """They differ by log-determinant and prior, which FeCAM has not, and by n or n − 1 in the covariance."""
    rows = {label: draw({label: 30})[label][:, :6] for label in (0, 1, 2, 3)}
    X, y = flat(rows)
    test = np.random.default_rng(1).permutation(X)[:40] + 1.0
    qda = QuadraticDiscriminantAnalysis(store_covariance=True).fit(X, y)
    determinants = [np.linalg.slogdet(theirs)[1] for theirs in qda.covariance_]
    expected = 2 * (qda.decision_function(test) - np.log(qda.priors_)) + determinants
    share = np.trace(qda.covariance_[0]) / np.trace(covariance(rows[0]))  # 1, or (n − 1) / n in later releases
    head = FeCAM(0.0, normalization="none", normalize=False).fit(X, y)
    np.testing.assert_allclose(head.class_scores(test) / share, expected, rtol=1e-8)


def test_with_one_covariance_it_is_linear_discriminant_analysis() -> None:
    """They coincide when the classes are equally many and have the same scatter; the other divides it by n."""
    n, d = 25, 5
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    means = 2 * rng.normal(size=(4, d))
    X, y = np.concatenate([mean + cloud - cloud.mean(axis=0) for mean in means]), np.repeat(np.arange(4), n)
    test = 2 * rng.normal(size=(60, d))
    head = FeCAM(0.0, normalization="none", normalize=False).fit(X, y)
    lda = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    assert head.predict(test).tolist() == lda.predict(test).tolist()
    ours, theirs = head.class_scores(test) * n / (n - 1) / 2, lda.decision_function(test)
    np.testing.assert_allclose(ours - ours[:, :1], theirs - theirs[:, :1], rtol=1e-8, atol=1e-8)


def test_with_a_huge_gamma_it_is_the_nearest_mean() -> None:
    base, X = draw(BASE), queries()
    scores = FeCAM(1e12, normalize=False).fit(*flat(base)).class_scores(X)
    means = np.stack([base[label].mean(axis=0) for label in sorted(base)])
    np.testing.assert_allclose(scores, -((X[:, None] - means) ** 2).sum(axis=2), rtol=1e-6)


def test_calibration_changes_new_classes_only() -> None:
    base, new, X = draw(BASE), draw(SECOND), queries()
    plain = FeCAM().fit(*flat(base)).partial_fit(*flat(new)).class_scores(X)
    calibrated = FeCAM(calibration=Calibration()).fit(*flat(base)).partial_fit(*flat(new)).class_scores(X)
    np.testing.assert_allclose(calibrated[:, :-1], plain[:, :-1], rtol=1e-12)
    assert (np.abs(calibrated[:, -1] - plain[:, -1]) > 1e-6).all()


@pytest.mark.parametrize("normalization", ["correlation", "none"])
@pytest.mark.parametrize("shots", [1, 3])
def test_a_singular_covariance_needs_a_gamma(normalization: str, shots: int) -> None:
    X = np.tile([1.0, 2.0, 3.0, 4.0], (shots, 1))  # no scatter at all
    with pytest.raises(InputError, match=r"singular with gamma = 0.*; choose a larger gamma"):
        FeCAM(0.0, normalization=normalization, normalize=False).fit(X, [0] * shots)


def test_row_correlations_need_two_features() -> None:
    with pytest.raises(InputError, match="rows"):
        FeCAM(normalization="rows").fit(np.array([[1.0], [2.0], [3.0]]), [0, 1, 1])


@st.composite
def labeled(draw_: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    d = draw_(st.integers(2, 5))
    sizes = draw_(st.lists(st.integers(1, 7), min_size=4, max_size=6))
    rng = np.random.default_rng(draw_(st.integers(0, 2**32 - 1)))
    y = np.repeat(rng.permutation(50)[: len(sizes)], sizes)
    return rng.normal(1.0, 1.0, (len(y), d)), y, rng.normal(1.0, 1.0, (5, d))


FLAVOURS = st.sampled_from(["correlation", "rows", "none"])


@given(data=labeled(), normalization=FLAVOURS, seed=st.integers(0, 99))
def test_the_order_of_sessions_and_samples_does_not_matter(data: tuple, normalization: str, seed: int) -> None:
    X, y, test = data
    labels = list(dict.fromkeys(y.tolist()))
    is_base = np.isin(y, labels[:2])
    parameters = {"normalization": normalization, "calibration": Calibration()}
    one, other = (FeCAM(1.0, **parameters).fit(X[is_base], y[is_base]) for _ in range(2))
    one.partial_fit(X[~is_base], y[~is_base])
    for label in np.random.default_rng(seed).permutation(labels[2:]):
        other.partial_fit(X[y == label][::-1].copy(), y[y == label])
    np.testing.assert_allclose(one.class_scores(test), other.class_scores(test), rtol=1e-7, atol=1e-9)


@given(data=labeled(), normalization=FLAVOURS, which=st.integers(0, 99))
def test_a_forgotten_class_was_never_there(data: tuple, normalization: str, which: int) -> None:
    X, y, test = data
    labels = list(dict.fromkeys(y.tolist()))
    gone = labels[which % len(labels)]
    parameters = {"normalization": normalization, "calibration": Calibration()}
    head, never = FeCAM(1.0, **parameters), FeCAM(1.0, **parameters)
    for session in (labels[:2], labels[2:]):
        part = np.isin(y, session)
        head.partial_fit(X[part], y[part])
        never.partial_fit(X[part & (y != gone)], y[part & (y != gone)])
    np.testing.assert_array_equal(head.forget(gone).class_scores(test), never.class_scores(test))

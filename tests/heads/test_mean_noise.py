"""The correction for noisy means in NCM, TEEN and FeCAM: spelled out in NumPy, and simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, Rows, draw, flat, queries
from oracles import covariance, fecam_scores, gaussians, ncm_scores, normalised

from fiveshot.benchmark import get_protocol, run
from fiveshot.core import Calibration
from fiveshot.errors import InputError
from fiveshot.features import embedded_features
from fiveshot.heads import NCM, FeCAM, make_head

RAW, UNIT = Calibration(alpha=0.8), Calibration(alpha=0.8, prototypes="unit")


def pooled(base: Rows) -> np.ndarray:
    """Return the covariance within base classes."""
    scatter = sum((len(rows) - 1) * covariance(rows) for rows in base.values())
    return scatter / sum(len(rows) - 1 for rows in base.values())


def of_unit_mean(sigma: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the covariance of noise after a vector has been scaled to length one: J Σ Jᵀ with its Jacobian J."""
    length = np.linalg.norm(mean)
    J = (np.eye(len(mean)) - np.outer(mean, mean) / length**2) / length
    return J @ sigma @ J.T


def with_base(rows: np.ndarray, lent: np.ndarray) -> np.ndarray:
    """Return a class's covariance, the base classes' counting as one sample."""
    return ((len(rows) - 1) * covariance(rows) + lent) / len(rows)


@pytest.mark.parametrize("bias", [0.5, 1.0])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("calibration", [None, RAW, UNIT], ids=str)
def test_the_nearest_mean_subtracts_the_trace(metric: str, calibration: Calibration | None, bias: float) -> None:
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()
    head = NCM(metric, calibration=calibration, bias=bias).fit(*flat(base)).partial_fit(*flat(new))
    plain = ncm_scores(base, new, X, metric=metric, calibration=calibration)
    inflations = []
    for label in sorted(base | new):
        rows = (base | new)[label]
        own, lent = with_base(rows, pooled(base)), 1.0
        if label in new and calibration is not None:
            lent = calibration.alpha**2
            own = of_unit_mean(own, rows.mean(axis=0)) if calibration.prototypes == "unit" else own
        inflations.append(bias * lent * np.trace(own) / len(rows))
    if metric == "euclidean":
        expected = plain + inflations
    else:
        squared = np.array([mean @ mean for mean, _ in gaussians(base, new, calibration)])
        expected = plain * np.sqrt(squared / np.maximum(squared - inflations, 0.1 * squared))
    np.testing.assert_allclose(head.class_scores(X), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("normalization", ["correlation", "none", "rows"])
@pytest.mark.parametrize("calibration", [None, RAW, UNIT], ids=str)
def test_fecam_subtracts_the_trace_in_the_metric_of_the_class(
    calibration: Calibration | None, normalization: str, normalize: bool
) -> None:
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()
    parameters = {"normalization": normalization, "normalize": normalize, "calibration": calibration}
    head = FeCAM(20.0, bias=0.5, **parameters).fit(*flat(base)).partial_fit(*flat(new))
    expected = fecam_scores(base, new, X, gamma=20.0, **parameters)
    lent = pooled(base)
    for column, (label, (mean, sigma)) in enumerate(
        zip(sorted(base | new), gaussians(base, new, calibration), strict=True)
    ):
        rows = (base | new)[label]
        N = normalised(sigma + 20.0 * np.eye(len(mean)), normalization)
        share, noise = 1.0, lent
        if label in new and calibration is not None:
            share = calibration.alpha
            noise = of_unit_mean(noise, rows.mean(axis=0)) if calibration.prototypes == "unit" else noise
        noise = of_unit_mean(noise, mean) if normalize else noise
        wider = np.trace(with_base(rows, lent)) / np.trace(lent)
        inverse = np.linalg.pinv(N, rcond=1e-12, hermitian=True)
        expected[:, column] += 0.5 * share**2 * wider * np.trace(inverse @ noise) / len(rows)
    np.testing.assert_allclose(head.class_scores(X), expected, rtol=1e-8, atol=1e-8)


D, MANY = 16, 300


def simulated(shots: int) -> tuple[np.ndarray, Rows, Rows]:
    """Draw 30 base classes and many of a few samples, all with one covariance; return it and the rows.

    The true means of the few-shot classes are multiples of (1, ..., 1).
    """
    rng = np.random.default_rng(shots)
    mixing = rng.normal(size=(D, D)) * np.sqrt(1 / np.arange(1, D + 1))
    base = {label: 30 * rng.normal(size=D) + rng.normal(size=(25, D)) @ mixing for label in range(30)}
    new = {label: label + rng.normal(size=(shots, D)) @ mixing for label in range(100, 100 + MANY)}
    return mixing.T @ mixing, base, new


@pytest.mark.parametrize("shots", [2, 5])
def test_the_euclidean_inflation_is_what_the_noise_adds(shots: int) -> None:
    _, base, new = simulated(shots)
    head = NCM("euclidean", bias=1.0).fit(*flat(base)).partial_fit(*flat(new))
    measured = [np.sum((rows.mean(axis=0) - label) ** 2) for label, rows in new.items()]
    formula = [head.scorer_.model.models[label].inflation for label in new]
    error = np.std(measured) / np.sqrt(MANY)
    assert abs(np.mean(measured) - np.mean(formula)) < 3 * error
    assert np.mean(measured) > 20 * error


@pytest.mark.parametrize("shots", [2, 5])
def test_the_squared_length_of_a_prototype_is_right_on_average(shots: int) -> None:
    _, base, new = simulated(shots)
    head = NCM("cosine", bias=1.0).fit(*flat(base)).partial_fit(*flat(new))
    plain, corrected = [], []
    for label in new:
        prototype = head.scorer_.model.models[label]
        squared = float((prototype.mean**2).sum()) - D * label**2
        plain.append(squared)
        corrected.append(squared - prototype.inflation)
    inflation = np.mean(plain) - np.mean(corrected)
    # The product of mean and noise averages out only slowly; it is the same in both.
    products = [2 * float(head.scorer_.model.models[c].mean.sum() * c - D * c**2) for c in new]
    assert abs(np.mean(corrected) - np.mean(products)) < 0.15 * inflation


@pytest.mark.parametrize("normalization", ["none", "correlation"])
def test_fecams_inflation_is_what_the_noise_adds_and_not_the_optimistic_one(normalization: str) -> None:
    """With a small γ, five samples lie so well in their own metric that their own trace says far too little."""
    _, base, new = simulated(5)
    head = FeCAM(0.5, normalization=normalization, normalize=False, bias=1.0).fit(*flat(base))
    head.partial_fit(*flat(new))
    measured, formula, optimistic = [], [], []
    for label, rows in new.items():
        N = normalised(covariance(rows) + 0.5 * np.eye(D), normalization)
        inverse = np.linalg.inv(N)
        off = rows.mean(axis=0) - label
        measured.append(off @ inverse @ off)
        formula.append(head.scorer_.model.models[label].inflation)
        optimistic.append(np.trace(inverse @ covariance(rows)) / 5)
    assert np.mean(formula) == pytest.approx(np.mean(measured), rel=0.12)
    assert np.mean(optimistic) < 0.5 * np.mean(measured)


@pytest.mark.parametrize("kind", [NCM, FeCAM])
@pytest.mark.parametrize("bias", [-0.1, math.nan, math.inf])
def test_a_bias_that_makes_no_sense_is_refused(kind: type[NCM] | type[FeCAM], bias: float) -> None:
    with pytest.raises(InputError, match=f"bias must be finite and not negative, got {bias}; 1 removes"):
        kind(bias=bias).fit(*flat(draw(BASE)))


@pytest.mark.parametrize("name", ["ncm", "teen"])
@pytest.mark.parametrize("protocol", ["cub200/big", "cub200/small"])
def test_half_of_the_correction_helps_new_classes_and_costs_no_accuracy(name: str, protocol: str) -> None:
    features = embedded_features("cub200")
    plain, fair = (run(get_protocol(protocol), features, make_head(head)).metrics for head in (name, f"{name}+"))
    gain = [after.a_hm - before.a_hm for before, after in zip(plain.sessions[1:], fair.sessions[1:], strict=True)]
    assert np.mean(gain) > 0.005
    assert fair.a_last > plain.a_last
    assert fair.a_inc > plain.a_inc

"""The paper's claim where the truth is known: calibrated statistics of new classes raise A_HM.

Ten families of Gaussian classes, covariances correlated and alike within a family; 20 base classes of 30 samples,
then four sessions of five classes with five samples each. γ is set near the best for the *uncalibrated* FeCAM on
these features, whose variances are some hundred times smaller than a backbone's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveshot.data.synthetic import gaussian_classes
from fiveshot.heads import FewShotHead, Sampling, make_head

SEEDS = range(6)
N_BASE, N_NEW, N_SESSIONS = 20, 5, 4
WIDE = {"n_projections": 600}
SAMPLED = WIDE | {"sampling": Sampling(per_class=100)}


def harmonic_mean(head: FewShotHead, seed: int) -> float:
    """Return A_HM in percent: the harmonic mean of old and new accuracy, averaged over the sessions."""
    train_x, train_y, test_x, test_y = gaussian_classes(
        n_classes=N_BASE + N_SESSIONS * N_NEW,
        n_features=32,
        n_families=10,
        train_per_class=30,
        test_per_class=20,
        seed=seed,
    )
    head.fit(train_x[train_y < N_BASE], train_y[train_y < N_BASE])
    means = []
    for start in range(N_BASE, N_BASE + N_SESSIONS * N_NEW, N_NEW):
        shots = np.concatenate([np.flatnonzero(train_y == c)[:5] for c in range(start, start + N_NEW)])
        right = head.partial_fit(train_x[shots], train_y[shots]).predict(test_x) == test_y
        old, new = right[test_y < start].mean(), right[(start <= test_y) & (test_y < start + N_NEW)].mean()
        means.append(2 * old * new / (old + new) if old + new else 0.0)
    return 100 * float(np.mean(means))


@pytest.mark.parametrize(
    ("plain", "calibrated", "flavor", "parameters", "margin"),
    [
        (("ncm", {}), ("teen", {}), "paper", {}, 1.0),
        (("ncm", {}), ("teen", {}), "published", {}, 1.0),
        (("fecam", {}), ("c-fecam", {}), "paper", {"gamma": 16.0}, 5.0),
        (("fecam", {}), ("c-fecam", {}), "published", {"gamma": 64.0}, 3.0),
        (("ranpac", WIDE), ("c-ranpac", SAMPLED), "paper", {}, 10.0),
        (("ranpac", WIDE), ("c-ranpac", SAMPLED), "published", {}, 10.0),
        (("ranpac*", SAMPLED), ("c-ranpac", SAMPLED), "paper", {}, 4.0),
    ],
)
def test_calibration_raises_the_harmonic_mean(
    plain: tuple[str, dict[str, Any]],
    calibrated: tuple[str, dict[str, Any]],
    flavor: str,
    parameters: dict[str, Any],
    margin: float,
) -> None:
    def figures(name: str, own: dict[str, Any]) -> np.ndarray:
        return np.array([harmonic_mean(make_head(name, flavor, **own, **parameters), seed) for seed in SEEDS])

    gains = figures(*calibrated) - figures(*plain)
    standard_error = gains.std(ddof=1) / np.sqrt(len(gains))
    assert gains.mean() > margin
    assert gains.mean() > 3 * standard_error

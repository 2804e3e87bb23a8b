"""scikit-learn's own checks, all of them, for every recipe; none is expected to fail."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fiveshot.heads import RECIPES, FewShotHead, Sampling, make_head


def small(name: str, flavour: str) -> FewShotHead:
    parameters: dict[str, Any] = {"n_projections": 40} if "ranpac" in name else {}
    if name in ("ranpac*", "c-ranpac"):
        parameters["sampling"] = Sampling(per_class=20)
    return make_head(name, flavour, **parameters)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([small(name, flavour) for name in RECIPES for flavour in ("paper", "published")])
def test_scikit_learns_checks(estimator: FewShotHead, check: Any) -> None:
    check(estimator)

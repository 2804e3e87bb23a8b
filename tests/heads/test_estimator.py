"""Heads in the hands of scikit-learn: searches over nested parameters, pipelines, log probabilities, booleans."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from cases import BASE, FIRST, Case, draw, learned, queries
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from fiveshot.core import Calibration
from fiveshot.errors import InputError
from fiveshot.heads import NCM, FeCAM, FewShotHead, RanPAC, UnbiasedLDA, load_head, make_head, save_head

ALPHAS = [0.25, 0.5, 1.0]


def samples(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(["kite", "owl", "wren"], 8)
    return rng.normal(size=(24, 6)) + 3 * np.eye(6)[np.unique(y, return_inverse=True)[1]], y


@pytest.mark.parametrize("name", ["calibration__alpha", "alpha"])
def test_a_search_tries_values_of_a_calibration(name: str) -> None:
    search = GridSearchCV(make_head("teen"), {name: ALPHAS, "bias": [0.0, 0.5]}, cv=2, error_score="raise")
    search.fit(*samples())
    assert len(search.cv_results_["params"]) == 6
    assert search.best_estimator_.calibration.alpha == search.best_params_[name]


def test_a_search_reaches_into_a_pipeline() -> None:
    steps = Pipeline([("scale", StandardScaler()), ("head", make_head("c-fecam"))])
    grid = {"head__calibration__alpha": ALPHAS, "head__gamma": [10.0, 100.0]}
    search = GridSearchCV(steps, grid, cv=2, error_score="raise").fit(*samples())
    assert search.best_estimator_["head"].calibration.alpha in ALPHAS


def test_a_search_reaches_into_a_head_that_tunes_itself() -> None:
    tuned = make_head("teen", bias="auto")
    assert tuned.get_params()["head__calibration__alpha"] == 0.9
    assert tuned.set_params(head__calibration__alpha=0.5).head.calibration.alpha == 0.5


def test_fields_of_a_calibration_are_parameters() -> None:
    teen = make_head("teen")
    deep, own = teen.get_params(), teen.get_params(deep=False)
    assert deep.keys() - own.keys() == {
        f"calibration__{name}" for name in ("alpha", "prototypes", "similarity", "tau")
    }
    assert deep["calibration__alpha"] == teen.calibration.alpha
    assert make_head("ncm").get_params() == make_head("ncm").get_params(deep=False)


def test_what_get_params_names_can_be_set(case: Case) -> None:
    head = case.make()
    before = head.get_params()
    after = head.set_params(**before).get_params()
    before.pop("scorer", None), after.pop("scorer", None)  # a copy: its parameters are there by their names
    assert after == before
    assert clone(head).get_params(deep=False).keys() == head.get_params(deep=False).keys()


@pytest.mark.parametrize("changed", [{"alpha": 0.5}, {"tau": 8.0, "bias": 1.0}, {"similarity": "dot"}])
def test_set_params_takes_the_short_names_of_make_head(changed: dict[str, object]) -> None:
    assert repr(make_head("teen").set_params(**changed)) == repr(make_head("teen", **changed))


def test_a_calibration_and_its_field_can_be_set_together() -> None:
    head = NCM().set_params(calibration__alpha=0.5, calibration=Calibration(tau=8.0))
    assert (head.calibration.alpha, head.calibration.tau) == (0.5, 8.0)


@pytest.mark.parametrize("name", ["prior__strength", "strength"])
def test_fields_of_a_default_that_none_stands_for_can_be_set(name: str) -> None:
    head = make_head("unbiased-lda")
    assert head.prior is None
    assert head.set_params(**{name: 0.5}).prior.strength == 0.5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"calibration__alpha": 1.5}, r"alpha must lie in \[0, 1\], got 1.5"),
        ({"bias": 0.25, "calibration__gamma": 1}, "Invalid parameter 'gamma' for calibration=.*'alpha'"),
        (
            {"bias": 0.25, "calibration__beta": 1.0},
            "Invalid parameter 'beta' for calibration=",
        ),  # TEEN has no use for it
        ({"bias": 0.25, "gamma": 1}, "Invalid parameter 'gamma' for estimator .*'alpha'.*'bias'"),
        ({"bias": 0.25, "gamma__alpha": 1}, "Invalid parameter 'gamma' for estimator"),
        ({"bias": 0.25, "metric__alpha": 1}, "Invalid parameter 'alpha' for metric='euclidean'"),
    ],
)
def test_what_cannot_be_set_changes_nothing(changed: dict[str, object], said: str) -> None:
    head = make_head("teen")
    before = repr(head)
    with pytest.raises(InputError, match=said):
        head.set_params(**changed)
    assert repr(head) == before


def test_a_field_of_nothing_names_the_way_out() -> None:
    with pytest.raises(InputError, match=r"'alpha' for calibration=None .*; give calibration a value first"):
        NCM().set_params(calibration__alpha=0.5)


def test_log_probabilities_are_those_of_the_probabilities(case: Case) -> None:
    head = learned(case, draw(BASE), draw(FIRST))
    logs, probabilities = head.predict_log_proba(queries()), head.predict_proba(queries())
    assert np.isfinite(logs).all()
    np.testing.assert_allclose(np.exp(logs), probabilities, rtol=1e-5, atol=1e-12)
    far = head.predict_log_proba(1e4 * queries())
    assert np.isfinite(far).all()


def test_booleans_are_labels(case: Case, tmp_path: Path) -> None:
    X, y = samples()
    head = case.make().fit(X, y == "owl")
    assert (head.classes_.dtype, head.classes_.tolist()) == (np.bool_, [False, True])
    found = head.predict(X)
    assert (found.dtype, head.score(X, y == "owl") > 0.8) == (np.bool_, True)
    head.partial_fit(X[y == "owl"] + 1, [True] * 8)
    save_head(head, tmp_path / "head.safetensors")
    loaded = load_head(tmp_path / "head.safetensors")
    assert loaded.classes_.dtype == np.bool_
    np.testing.assert_array_equal(loaded.predict(X), head.predict(X))


def test_booleans_are_scored_by_scikit_learn() -> None:
    X, y = samples()
    scores = cross_val_score(make_head("ncm"), X, y == "owl", cv=4, scoring="roc_auc", error_score="raise")
    assert scores.min() > 0.8


def test_booleans_and_integers_do_not_mix() -> None:
    X, y = samples()
    head = make_head("ncm").fit(X, y == "owl")
    with pytest.raises(InputError, match=r"label 1 does not fit: .* booleans \(for example False\)"):
        head.partial_fit(X, np.ones(len(X), dtype=int))


@pytest.mark.parametrize("kind", [NCM, FeCAM, RanPAC, UnbiasedLDA])
def test_an_estimator_has_the_parameters_of_its_scorer(kind: type[FewShotHead]) -> None:
    own, scorers = (signature(one).parameters for one in (kind, kind.scorer_class))
    assert {name: (one.default, one.kind) for name, one in own.items()} == {
        name: (one.default, one.kind) for name, one in scorers.items()
    }


@pytest.mark.parametrize("name", ["scorer__shrinkage", "shrinkage"])
def test_a_search_tries_values_of_any_scorer(name: str) -> None:
    search = GridSearchCV(make_head("deep-slda"), {name: [1e-4, 0.3]}, cv=2, error_score="raise").fit(*samples())
    assert search.best_estimator_.scorer.shrinkage == search.best_params_[name]


def test_a_changed_parameter_counts_from_the_next_session_on() -> None:
    X, y = samples()
    head = NCM("euclidean").fit(X, y)
    before = head.predict_proba(X)
    head.set_params(temperature=2.0)
    np.testing.assert_array_equal(head.predict_proba(X), before)
    again = NCM("euclidean", temperature=2.0).fit(X, y).partial_fit(X[:1] + 9, ["kite"])
    np.testing.assert_array_equal(head.partial_fit(X[:1] + 9, ["kite"]).predict_proba(X), again.predict_proba(X))


def test_learning_leaves_the_scorer_before_as_it_was() -> None:
    X, y = samples()
    scorer = make_head().fit(X, y).scorer_
    before = scorer.scores(X)
    later = scorer.learn(X[:2] + 9, ["rook"] * 2)
    assert (len(scorer.classes), len(later.classes)) == (3, 4)
    later.forget("rook"), later.adopt(scorer.memory)
    np.testing.assert_array_equal(scorer.scores(X), before)
    assert len(later.classes) == 4

"""``"auto"``: what is chosen on the base session, and that the head then is the plain one with it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from fiveshot.core import Calibration
from fiveshot.core.scorers import NCMScorer, register_head, unregister_head
from fiveshot.data.synthetic import gaussian_classes
from fiveshot.errors import InputError
from fiveshot.heads import (
    NCM,
    FewShotHead,
    RanPAC,
    ScorerHead,
    TunedHead,
    check_head,
    choose_parameters,
    load_head,
    make_head,
    save_head,
    tune_on_base,
)
from fiveshot.heads._testing import PROMISES

D = 24
SMALL = {"n_projections": 64, "per_class": 40}  # of C-RanPAC


def sessions(n_classes: int = 17, seed: int = 0) -> tuple[Any, Any, Any, Any, Any]:
    """Return a base session, one of three new classes, and samples of all."""
    X, y, asked, _ = gaussian_classes(
        n_classes=n_classes, n_features=D, train_per_class=20, test_per_class=4, seed=seed
    )
    old = y < n_classes - 3
    few = np.concatenate([np.flatnonzero(y == label)[:5] for label in range(n_classes - 3, n_classes)])
    return X[old], y[old], X[few], y[few], asked


def tuned(name: str, **parameters: Any) -> TunedHead:
    head = make_head(name, **parameters)
    assert isinstance(head, TunedHead)
    return head.set_params(episodes=3)


CASES = [
    ("teen", {"alpha": "auto", "bias": "auto"}),
    ("fecam", {"gamma": "auto", "bias": "auto"}),
    ("c-fecam", {"alpha": "auto", "beta": "auto", "tau": "auto"}),
    ("c-ranpac", {"alpha": "auto", **SMALL}),
    ("unbiased-lda", {"shrinkage": "auto", "n_random": 0}),
]


@pytest.mark.parametrize(("name", "parameters"), CASES, ids=[name for name, _ in CASES])
def test_it_is_the_plain_head_with_what_was_chosen(name: str, parameters: dict[str, Any], tmp_path: Path) -> None:
    X, y, few_X, few_y, asked = sessions()
    head = tuned(name, **parameters).fit(X, y)
    assert list(head.chosen_) == [key for key, value in parameters.items() if value == "auto"]
    plain = make_head(name, **{**parameters, **head.chosen_}).fit(X, y)
    for one in (head, plain):
        one.partial_fit(few_X, few_y)
    np.testing.assert_array_equal(head.class_scores(asked), plain.class_scores(asked))
    np.testing.assert_array_equal(head.predict_proba(asked), plain.predict_proba(asked))
    np.testing.assert_array_equal(head.familiarity(asked), plain.familiarity(asked))
    save_head(head, tmp_path / "head.safetensors")
    again = load_head(tmp_path / "head.safetensors")
    assert isinstance(again, TunedHead)
    assert again.chosen_ == head.chosen_
    np.testing.assert_array_equal(again.class_scores(asked), head.class_scores(asked))
    more = [one.partial_fit(few_X[:5] + 3, [99] * 5).class_scores(asked) for one in (again, plain)]
    np.testing.assert_allclose(*more, rtol=1e-3, atol=1e-5)


def test_parameters_are_chosen_one_after_the_other() -> None:
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(14), 30)
    X = (0.45 * rng.normal(size=(14, 96)))[y] + 2 * rng.normal(size=(len(y), 96))  # the noise of means matters
    given = make_head("teen")
    first = tune_on_base(given, X, y, candidates=[{"bias": b} for b in (0.25, 0.5, 0.75, 1.0)], episodes=3)
    second = tune_on_base(first.head, X, y, candidates=[{"alpha": a} for a in (0.5, 0.75, 1.0)], episodes=3)
    chosen = choose_parameters(given, X, y, names=["bias", "alpha"], episodes=3)
    assert chosen == {"bias": second.head.bias, "alpha": second.head.calibration.alpha}
    assert chosen["bias"] != 0.0, "or the order would not matter here"


def test_a_calibration_that_erases_new_classes_is_not_kept() -> None:
    """With alpha = 0 a new class is only a mixture of base classes."""
    X, y, *_ = sessions()
    for head in (make_head("teen", alpha=0.0), make_head("c-ranpac", alpha=0.0, **SMALL)):
        assert choose_parameters(head, X, y, names=["alpha"], episodes=3)["alpha"] >= 0.5


def test_ranpac_is_tuned_from_samples_with_one_base_session_for_all_calibrations() -> None:
    X, y, *_ = sessions()
    head = make_head("c-ranpac", **SMALL)
    together = tune_on_base(head, X, y, candidates=[{"alpha": 0.5}, {"tau": 4.0, "beta": 2.0}], episodes=2)
    for index, changes in enumerate([{}, {"alpha": 0.5}, {"tau": 4.0, "beta": 2.0}]):
        alone = tune_on_base(clone(head).set_params(**changes), X, y, candidates=[], episodes=2)
        assert alone.scores[0].mean == together.scores[index].mean


def test_with_few_base_classes_the_recipe_stays() -> None:
    X, y, few_X, few_y, asked = sessions(n_classes=9)
    head = tuned("c-fecam", alpha="auto").fit(X, y)
    assert head.chosen_ == {"alpha": 0.9}
    plain = make_head("c-fecam").fit(X, y)
    np.testing.assert_array_equal(head.class_scores(asked), plain.class_scores(asked))
    head.partial_fit(few_X, few_y)
    assert len(head.classes_) == 9


def test_copies_and_clones_are_apart() -> None:
    X, y, few_X, few_y, asked = sessions()
    head = tuned("teen", bias="auto").fit(X, y)
    before = head.class_scores(asked)
    copy(head).partial_fit(few_X, few_y)
    np.testing.assert_array_equal(head.class_scores(asked), before)
    fresh = clone(head)
    assert not hasattr(fresh, "head_")
    assert fresh.fit(X, y).chosen_ == head.chosen_


def test_an_error_leaves_it_as_it_was() -> None:
    X, y, *_, asked = sessions()
    head = tuned("teen", bias="auto").fit(X, y)
    before = head.class_scores(asked)
    with pytest.raises(InputError):
        head.partial_fit(np.full((5, D), np.nan), [50] * 5)
    np.testing.assert_array_equal(head.class_scores(asked), before)


def test_statistics_and_settings_are_enough() -> None:
    X, y, few_X, few_y, asked = sessions()
    for name, parameters in (("teen", {"bias": "auto"}), ("unbiased-lda", {"strength": "auto"})):
        head = tuned(name, **parameters).fit(X, y).partial_fit(few_X, few_y)
        other = tuned(name, **parameters).adopt(head.memory_, head.settings())
        np.testing.assert_allclose(other.class_scores(asked), head.class_scores(asked), rtol=1e-4, atol=1e-5)


def test_it_keeps_the_contract_of_all_heads() -> None:
    """Episodes draw samples by their order and classes by their labels; all other promises are kept."""
    kept = check_head(
        lambda: TunedHead(NCM("euclidean"), ("bias",), episodes=2), without=["sample order", "label values"]
    )
    assert set(kept) == set(PROMISES) - {"sample order", "label values"}


def test_the_heads_own_seed_and_device_stay_unless_others_are_given() -> None:
    X, y, *_ = sessions(n_classes=9)
    inside = (
        TunedHead(RanPAC(64, random_state=5, device="cpu", calibration=Calibration()), ["alpha"]).fit(X, y).head_
    )
    assert (inside.random_state, inside.device) == (5, "cpu")


def test_seed_and_device_reach_the_head_inside() -> None:
    head = make_head("c-ranpac", alpha="auto", random_state=7, device="cpu", **SMALL)
    X, y, *_ = sessions(n_classes=9)
    inside = head.fit(X, y).head_
    assert isinstance(inside, RanPAC)
    assert (inside.random_state, inside.device) == (7, "cpu")


def test_fields_of_values_are_named_directly() -> None:
    assert make_head("c-ranpac", alpha=0.75, per_class=100).calibration.alpha == 0.75
    assert make_head("c-ranpac", per_class=100).sampling.per_class == 100
    assert make_head(shrinkage=0.5).prior.shrinkage == 0.5
    assert make_head("c-ranpac").calibration.alpha == 0.9, "recipes stay"


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("ncm", {"alpha": "auto"}, "head 'ncm' has no parameter 'alpha'; it has bias, calibration, device"),
        ("teen", {"beta": "auto"}, "head 'teen' has no parameter 'beta'"),
        (
            "ncm",
            {"temperature": "auto"},
            "'temperature' of NCM cannot be chosen .* be chosen: bias",
        ),
        ("ranpac", {"n_projections": "auto"}, "cannot be chosen by episodes.*parameters that can be chosen: none"),
        ("c-fecam", {"beta": "auto", "calibration": Calibration(beta=None)}, "chosen: alpha, bias, gamma, tau"),
        ("teen", {"tau": "auto", "alpha": 2.0}, r"alpha must lie in \[0, 1\], got 2.0"),
    ],
)
def test_what_cannot_be_chosen_is_refused(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_head(name, **parameters)


def test_ranpac_inside_does_not_follow_from_statistics_either() -> None:
    X, y, *_ = sessions(n_classes=9)
    memory = NCM().fit(X, y).memory_
    with pytest.raises(InputError, match="RanPACScorer cannot be built from class statistics"):
        make_head("c-ranpac", alpha="auto", **SMALL).adopt(memory)


def test_a_list_of_lambdas_does_not_stop_a_choice() -> None:
    X, y, *_ = sessions()
    head = make_head("c-ranpac", alpha="auto", lambdas=[1.0, 10.0], **SMALL).set_params(episodes=2)
    assert head.fit(X, y).chosen_["alpha"] in (0.5, 0.75, 0.9, 1.0)


def test_a_word_that_a_parameter_may_have_is_left_to_the_head() -> None:
    register_head("with-modes", WithModes)
    try:
        assert make_head("with-modes", mode="auto").scorer.mode == "auto"
    finally:
        unregister_head("with-modes")


@dataclass(eq=False)
class WithModes(NCMScorer):
    """A scorer of one's own for whose parameter auto is a value."""

    mode: str = "fast"


def test_a_file_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    class Unknown(NCMScorer):
        """Nobody has registered it."""

    X, y, *_ = sessions(n_classes=9)
    head = TunedHead(ScorerHead(Unknown()), ["bias"]).fit(X, y)
    with pytest.raises(InputError, match=r"Unknown of .* is not registered"):
        save_head(head, tmp_path / "head.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_the_order_of_parameters_does_not_matter() -> None:
    for given in ({"alpha": 0.5, "calibration": Calibration()}, {"calibration": Calibration(), "alpha": 0.5}):
        assert make_head("teen", **given).calibration.alpha == 0.5


def test_one_name_must_be_in_a_list_too() -> None:
    X, y, *_ = sessions(n_classes=9)
    with pytest.raises(InputError, match=r"auto must be a list of names, got 'alpha'; for example \['alpha'\]"):
        TunedHead(make_head("teen"), "alpha").fit(X, y)


@pytest.mark.parametrize("head", ["teen", None, TunedHead(NCM(), ("bias",))])
def test_only_a_plain_head_can_be_inside(head: Any) -> None:
    X, y, *_ = sessions(n_classes=9)
    with pytest.raises(InputError, match="head must be a FewShotHead"):
        TunedHead(head, ("bias",)).fit(X, y)


def test_every_name_inside_is_checked_before_anything_is_played() -> None:
    X, y, *_ = sessions(n_classes=9)
    head: FewShotHead = TunedHead(NCM(), ("bias", "gamma"))
    with pytest.raises(InputError, match="no parameter 'gamma'"):
        head.fit(X, y)

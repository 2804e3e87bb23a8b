"""Registering a head: the name and the class it takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiveshot.core.draws import Sampling
from fiveshot.core.scorers import (
    RECIPES,
    FeCAMScorer,
    NCMScorer,
    Scorer,
    load_scorer,
    make_scorer,
    own_parameters,
    recipes,
    register_head,
    save_scorer,
    source_digest,
    unregister_head,
)
from fiveshot.errors import InputError
from fiveshot.heads import load_head, make_head, save_head


class Mine(NCMScorer):
    """A scorer of the tests.

    With more to say.
    """


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    tables: list[dict[str, Any]] = [recipes._registered, recipes._registered_classes]
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def test_a_registered_head_is_made_saved_and_loaded(tmp_path: Path) -> None:
    register_head("mine", partial(Mine, "euclidean"), "one of mine")
    head = make_head("mine", temperature=2.0).fit([[0.0], [4.0]], ["a", "b"])
    scorer = head.scorer_
    assert (type(scorer), scorer.metric, scorer.temperature) == (Mine, "euclidean", 2.0)
    assert make_scorer("mine", "published").metric == "euclidean", "one recipe is both flavors"
    assert RECIPES["mine"].description == "one of mine"
    save_head(head, tmp_path / "head")
    back = load_head(tmp_path / "head")
    assert type(back.scorer_) is Mine
    np.testing.assert_array_equal(back.class_scores([[1.0]]), head.class_scores([[1.0]]))
    unregister_head("mine")
    assert "mine" not in RECIPES
    assert type(load_head(tmp_path / "head").scorer_) is Mine, "files of it can still be read"


def test_flavors_may_differ() -> None:
    register_head("mine", {"paper": Mine, "published": lambda: Mine("euclidean")})
    assert [make_scorer("mine", flavor).metric for flavor in ("paper", "published")] == ["cosine", "euclidean"]
    assert RECIPES["mine"].description == "A scorer of the tests"
    with pytest.raises(InputError, match=r"head 'mine' has the flavors \['paper'\]; give paper and published"):
        register_head("mine", {"paper": Mine})


def test_the_same_again_is_harmless_and_another_is_refused() -> None:
    register_head("mine", Mine)
    register_head("mine", lambda: Mine("euclidean"))
    assert make_scorer("mine").metric == "euclidean"
    with pytest.raises(InputError, match=r"the name 'mine' is taken by a head of .*test_register_head; choose"):
        register_head("mine", FeCAMScorer)
    for name in ("ncm", "c-fecam+", "unbiased-lda"):
        with pytest.raises(InputError, match=r"is taken by a head of fiveshot; choose another"):
            register_head(name, Mine)
    assert make_scorer("mine").metric == "euclidean", "what was refused changed nothing"


def test_a_class_of_a_known_name_is_refused() -> None:
    """A file names the class of its head, so two classes cannot share a name."""
    namesake = type("FeCAMScorer", (NCMScorer,), {"__module__": __name__})
    said = r"a class called 'FeCAMScorer' is known already, from fiveshot\.core\.scorers\.fecam"
    with pytest.raises(InputError, match=said):
        register_head("mine", namesake)
    assert "mine" not in RECIPES


@dataclass
class NoScores(Scorer):
    temperature: float = 1.0
    device: Any = None

    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        return memory


@dataclass
class NoTemperature(Scorer):
    device: Any = None

    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        return memory

    def score_classes(self, X: Any, labels: Any) -> Any:
        return X


class NoDataclass(NCMScorer):
    power: float = 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (dict, "dict is not a scorer; make it a subclass of fiveshot.core.scorers.Scorer"),
        (Path, "is not a scorer; make it a subclass"),
        (NoScores, "the scorer NoScores lacks score_classes; see fiveshot.core.scorers.Scorer"),
        (NoTemperature, "the scorer NoTemperature lacks the parameters temperature; add them to its fields"),
        (NoDataclass, "the scorer NoDataclass is not a dataclass; write @dataclass above its class"),
        (lambda: Mine(bias=object()), "the parameters of Mine cannot be written to a file .*use numbers, strings"),
        (lambda: Mine(calibration=slice(3)), "the parameters of Mine cannot be written to a file"),
        (Mine(), r"needs a class or a function that returns an unlearned scorer, not Mine\("),
    ],
)
def test_what_is_no_scorer_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        register_head("mine", make)
    assert "mine" not in RECIPES


def test_parameters_that_files_hold_are_accepted_and_come_back(tmp_path: Path) -> None:
    register_head("mine", lambda: Mine("euclidean", calibration=Sampling(3)))
    scorer = make_scorer("mine").learn([[0.0], [1.0]], [0, 1])
    save_scorer(scorer, tmp_path / "head")
    again, _ = load_scorer(tmp_path / "head")
    assert type(again) is Mine
    assert own_parameters(again) == own_parameters(scorer)
    assert again.calibration == Sampling(3)
    assert again.classify([[0.1], [0.9]]).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["", "my head", "a,b", "a/b", "-x", "ncm.published", "all*"])
def test_names_that_a_list_or_a_path_cannot_hold_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a head; use letters, digits"):
        register_head(name, Mine)


def test_only_registered_names_are_taken_away() -> None:
    for name in ("ncm", "nonesuch"):
        with pytest.raises(InputError, match="is not a registered head; those of the package stay"):
            unregister_head(name)
    assert "ncm" in RECIPES


def test_a_head_that_is_not_registered_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Mine of .*test_register_head is not registered.*register_head first"):
        save_scorer(Mine().learn([[0.0], [1.0]], [0, 1]), tmp_path / "head")
    assert list(tmp_path.iterdir()) == []


def test_only_classes_from_outside_have_a_digest() -> None:
    assert source_digest(NCMScorer) is None
    own = source_digest(Mine)
    assert own is not None
    assert len(own) == 64

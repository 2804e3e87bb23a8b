"""Registering a head: the name and the class it takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fiveshot.errors import InputError
from fiveshot.heads import (
    NCM,
    RECIPES,
    FeCAM,
    FewShotHead,
    Sampling,
    load_head,
    make_head,
    register_head,
    registry,
    save_head,
    unregister_head,
)
from fiveshot.heads.registry import source_digest


class Mine(NCM):
    """A head of the tests.

    With more to say.
    """


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    tables: list[dict[str, Any]] = [registry._registered, registry._registered_classes]
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def test_a_registered_head_is_made_saved_and_loaded(tmp_path: Path) -> None:
    register_head("mine", partial(Mine, "euclidean"), "one of mine")
    head = make_head("mine", temperature=2.0).fit([[0.0], [4.0]], ["a", "b"])
    assert (type(head), head.metric, head.temperature) == (Mine, "euclidean", 2.0)
    assert make_head("mine", "published").metric == "euclidean", "one recipe is both flavors"
    assert RECIPES["mine"].description == "one of mine"
    save_head(head, tmp_path / "head")
    back = load_head(tmp_path / "head")
    assert type(back) is Mine
    np.testing.assert_array_equal(back.class_scores([[1.0]]), head.class_scores([[1.0]]))
    unregister_head("mine")
    assert "mine" not in RECIPES
    assert type(load_head(tmp_path / "head")) is Mine, "files of it can still be read"


def test_flavors_may_differ() -> None:
    register_head("mine", {"paper": Mine, "published": lambda: Mine("euclidean")})
    assert [make_head("mine", flavor).metric for flavor in ("paper", "published")] == ["cosine", "euclidean"]
    assert RECIPES["mine"].description == "A head of the tests"
    with pytest.raises(InputError, match=r"head 'mine' has the flavors \['paper'\]; give paper and published"):
        register_head("mine", {"paper": Mine})


def test_the_same_again_is_harmless_and_another_is_refused() -> None:
    register_head("mine", Mine)
    register_head("mine", lambda: Mine("euclidean"))
    assert make_head("mine").metric == "euclidean"
    with pytest.raises(InputError, match=r"the name 'mine' is taken by a head of .*test_register_head; choose"):
        register_head("mine", FeCAM)
    for name in ("ncm", "c-fecam+", "unbiased-lda"):
        with pytest.raises(InputError, match=r"is taken by a head of fiveshot; choose another"):
            register_head(name, Mine)
    assert make_head("mine").metric == "euclidean", "what was refused changed nothing"


def test_a_class_of_a_known_name_is_refused() -> None:
    """A file names the class of its head, so two classes cannot share a name."""
    namesake = type("FeCAM", (NCM,), {"__module__": __name__})
    with pytest.raises(InputError, match=r"a class called 'FeCAM' is known already, from fiveshot\.heads\.fecam"):
        register_head("mine", namesake)
    assert "mine" not in RECIPES


class NoScores(FewShotHead):
    def __init__(self, *, temperature: float = 1.0, device: Any = None) -> None:
        self.temperature, self.device = temperature, device

    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        return memory


class NoTemperature(NoScores):
    def __init__(self, *, device: Any = None) -> None:
        self.device = device

    def score_classes(self, X: Any, labels: Any) -> Any:
        return X


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (dict, "dict is not a head; make it a subclass of fiveshot.heads.FewShotHead"),
        (Path, "is not a head; make it a subclass"),
        (NoScores, "the head NoScores lacks score_classes; see fiveshot.heads.FewShotHead"),
        (NoTemperature, "the head NoTemperature lacks the parameters temperature; add them to its __init__"),
        (lambda: Mine(bias=object()), "the parameters of Mine cannot be written to a file .*use numbers, strings"),
        (lambda: Mine(calibration=slice(3)), "the parameters of Mine cannot be written to a file"),
        (Mine(), r"needs a class or a function that returns an unfitted head, not Mine\(\)"),
    ],
)
def test_what_is_no_head_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        register_head("mine", make)
    assert "mine" not in RECIPES


def test_parameters_that_files_hold_are_accepted_and_come_back(tmp_path: Path) -> None:
    register_head("mine", lambda: Mine("euclidean", calibration=Sampling(3)))
    head = make_head("mine").fit([[0.0], [1.0]], [0, 1])
    save_head(head, tmp_path / "head")
    again = load_head(tmp_path / "head")
    assert type(again) is Mine
    assert again.get_params(deep=False) == head.get_params(deep=False)
    assert again.calibration == Sampling(3)
    assert again.predict([[0.1], [0.9]]).tolist() == [0, 1]


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
        save_head(Mine().fit([[0.0], [1.0]], [0, 1]), tmp_path / "head")
    assert list(tmp_path.iterdir()) == []


def test_only_classes_from_outside_have_a_digest() -> None:
    assert source_digest(NCM) is None
    own = source_digest(Mine)
    assert own is not None
    assert len(own) == 64

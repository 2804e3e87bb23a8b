"""What TAB offers for classes and heads; commands and options are Typer's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer import Context
from typer.main import get_command
from typer.testing import CliRunner

from fiveshot.cli import completion
from fiveshot.cli.app import app
from fiveshot.core.scorers import RECIPES
from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.recognition.snapshot import head_record, require_statistics_head
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with classes, some of whose names a shell would take for something else."""
    folder = tmp_path_factory.mktemp("completion") / "birds"
    create_model(folder, Manifest(BackboneRecord("none", 4, "a" * 64), head_record("ncm")))
    rng = np.random.default_rng(0)
    with Recognizer.open(folder) as model:
        for name in ("wren", "auk", "barn owl", "c*t", "$(touch caught)"):
            model.learn_features(name, rng.normal(size=(2, 4)))
    return folder


def asked(**parameters: object) -> Context:
    """Return the words before the cursor, as a completion gets them."""
    context = Context(get_command(app))
    context.params.update(parameters)
    return context


def test_classes_whose_names_need_no_quoting_are_offered(birds: Path) -> None:
    assert completion.classes(asked(model=str(birds))) == ["auk", "wren"]


def test_photos_are_added_to_known_classes_and_learned_under_new_names(birds: Path) -> None:
    assert completion.classes_to_add_to(asked(model=str(birds), add=True)) == ["auk", "wren"]
    assert completion.classes_to_add_to(asked(model=str(birds), add=False)) == []


def test_a_damaged_model_offers_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "classes.sqlite").write_bytes(b"no database at all")
    assert completion.classes(asked(model=str(tmp_path))) == []
    assert completion.classes(asked()) == []


def test_a_shell_is_answered(birds: Path) -> None:
    words = {"COMP_WORDS": f"fiveshot\nforget\n{birds}\nw", "COMP_CWORD": "3"}
    reply = CliRunner().invoke(app, env={"_FIVESHOT_COMPLETE": "complete_bash", **words}, prog_name="fiveshot")
    assert reply.output.split() == ["wren"]


def test_the_heads_that_are_offered_are_those_that_can_be_had() -> None:
    def can_be_had(name: str) -> bool:
        try:
            require_statistics_head(name)
        except InputError:
            return False
        return True

    offered = completion.model_heads()
    assert offered == [name for name in RECIPES if can_be_had(name)]
    assert 0 < len(offered) < len(RECIPES)

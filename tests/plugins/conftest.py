from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from city_head import CITY
from typer.testing import CliRunner

import fiveshot.data.registry
import fiveshot.plugins
from fiveshot.cli.app import app
from fiveshot.core.scorers import recipes
from fiveshot.data.synthetic import gaussian_classes


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what a test loads and registers from the tests after it."""
    monkeypatch.setenv("FIVESHOT_PLUGINS", "")
    datasets, files = fiveshot.data.registry._registered, fiveshot.plugins._loaded
    tables: list[dict] = [recipes._registered, recipes._registered_classes, datasets, files]
    before = [dict(table) for table in tables]
    files.clear()
    yield
    for module in files.values():
        sys.modules.pop(module.__name__, None)
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


@pytest.fixture
def city(tmp_path: Path) -> Path:
    """A plugin file with one head, called city."""
    path = tmp_path / "city_head.py"
    path.write_text(CITY)
    return path


@pytest.fixture
def features(tmp_path: Path) -> Path:
    """Eight classes of feature vectors."""
    train_x, train_y, test_x, test_y = gaussian_classes(
        n_classes=8, n_features=12, train_per_class=7, test_per_class=5, seed=0
    )
    names = np.array([f"bird {chr(97 + label)}" for label in range(8)])
    np.savez(tmp_path / "birds.npz", train_x=train_x, train_y=names[train_y], test_x=test_x, test_y=names[test_y])
    return tmp_path / "birds.npz"


@pytest.fixture
def command() -> Callable[..., Any]:
    """Run the command line in this process; an error made on purpose is the result's exception."""

    def run(*arguments: object) -> Any:
        with pytest.MonkeyPatch.context() as kept:
            kept.setenv("FIVESHOT_PLUGINS", os.environ["FIVESHOT_PLUGINS"])  # the option changes it
            return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run

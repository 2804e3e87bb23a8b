from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Test modules are imported without their folder being importable; what they share lies beside them.
sys.path.insert(0, str(Path(__file__).parent))

from live import Live, live
from tiny import tiny_model

from fiveshot.recognizer import Recognizer


@pytest.fixture(scope="session")
def new_path(tmp_path_factory: pytest.TempPathFactory, tiny_file: Path) -> Path:
    """A model without classes that is not changed, only copied."""
    return tiny_model(tmp_path_factory.mktemp("new") / "model", tiny_file)


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory, new_path: Path) -> Path:
    return shutil.copytree(new_path, tmp_path_factory.mktemp("model") / "model")


@pytest.fixture
def fresh_path(tmp_path: Path, new_path: Path) -> Path:
    return shutil.copytree(new_path, tmp_path / "model")


@pytest.fixture
def embedded_path(tmp_path: Path) -> Path:
    """A new model of the embedded backbone: what serves it need not import PyTorch, which takes seconds."""
    Recognizer.create(tmp_path / "embedded", device="cpu", views=1).close()
    return tmp_path / "embedded"


@pytest.fixture
def start(fresh_path: Path) -> Iterator[Callable[..., Live]]:
    """Serve a new model with the settings given; ended with the test."""
    with ExitStack() as running:
        yield lambda **given: running.enter_context(live(fresh_path, **given))

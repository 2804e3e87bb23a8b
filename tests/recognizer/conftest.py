from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Test modules are imported without their folder being importable; the models beside them are needed.
sys.path.insert(0, str(Path(__file__).parent))

from models import new_model

from fiveshot.recognizer import Recognizer


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Recognizer]]:
    """Make a model by name in the test's folder; all are closed in the end."""
    with ExitStack() as opened:
        yield lambda name="model", **given: opened.enter_context(new_model(tmp_path / name, **given))


@pytest.fixture
def reopen() -> Iterator[Callable[..., Recognizer]]:
    """Open a model once more; closed in the end."""
    with ExitStack() as opened:
        yield lambda path, **given: opened.enter_context(Recognizer.open(path, **given))

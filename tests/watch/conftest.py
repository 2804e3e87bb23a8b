from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Test modules are imported without their folder being importable; what they share lies beside them.
sys.path.insert(0, str(Path(__file__).parent))

from watching import draw

from fiveshot.recognizer import Recognizer
from fiveshot.watch import sources


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look five times as often as one would."""
    monkeypatch.setattr(sources, "TICK", 0.05)
    monkeypatch.setattr(sources, "RETRY", 0.2)


@pytest.fixture(scope="session")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the embedded backbone that knows red and blue pictures."""
    folder = tmp_path_factory.mktemp("colors")
    with Recognizer.create(folder / "model", views=1) as model:
        model.learn_many({name: [draw(name, number) for number in range(3)] for name in ("red", "blue")})
    return folder / "model"


@pytest.fixture(scope="module")
def recognizer(colors: Path) -> Iterator[Recognizer]:
    """The model, open to answer."""
    with Recognizer.open(colors, readonly=True) as opened:
        yield opened

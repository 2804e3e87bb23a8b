from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Test modules are imported without their folder being importable; the modules beside them are needed.
sys.path.insert(0, str(Path(__file__).parent))

from material import draw_photos
from reader import SCRIPTS, Reader


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of everything a page runs: nothing of the user's own, no network, one thread."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("FIVESHOT", "PYTEST", "XDG"))
    }
    home = tmp_path_factory.mktemp("home")
    (home / ".curlrc").write_text("fail-with-body\nno-progress-meter\nnoproxy = *\n")  # a refusal is a failure
    return kept | {
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the photos of every page."""
    folder = tmp_path_factory.mktemp("photos")
    draw_photos(folder)
    return folder


@pytest.fixture
def reader(environment: dict[str, str]) -> Callable[[Path], Reader]:
    """Make a reader for a directory."""
    return lambda folder: Reader(folder, environment)

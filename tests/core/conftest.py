from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Test modules are imported without their folder being importable; what they share is needed.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "heads")]

import libraries


@pytest.fixture(params=libraries.LIBRARIES, scope="module", autouse=True)
def library(request: pytest.FixtureRequest) -> Iterator[str]:
    """The library that arrays of a test come from."""
    if request.param == "torch":
        pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    libraries.chosen[0] = request.param
    yield request.param
    libraries.chosen[0] = "numpy"

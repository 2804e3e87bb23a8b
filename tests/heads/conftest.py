from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Test modules are imported without their folder being importable; the oracles and cases beside them are needed.
sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, KINDS, Case


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    """One recipe in one flavor, small enough to be fast."""
    return request.param


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Case:
    """One recipe of a class of heads."""
    return request.param

from __future__ import annotations

import pytest
from cases import CASES, Case


@pytest.fixture
def library() -> str:
    """What the folder above asks of both libraries; the contract of all heads does so for scorers."""
    return "numpy"


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    """One recipe in one flavor, small enough to be fast."""
    return request.param

"""Examples in docstrings run the same benchmarks again and again: each run of a pack is made once."""

from __future__ import annotations

from functools import cache

import pytest

from fiveshot import benchmark, features
from fiveshot.benchmark import Protocol, RunRecord
from fiveshot.features import FeatureSet
from fiveshot.heads import FewShotHead

load, run = cache(features.embedded_features), benchmark.run


@cache
def run_of_a_pack(protocol: Protocol, pack: str, method: str) -> RunRecord:
    return run(protocol, load(pack), method)


def run_once(protocol: Protocol, given: FeatureSet, head: FewShotHead | str) -> RunRecord:
    if given is load("cub200") and isinstance(head, str):
        return run_of_a_pack(protocol, "cub200", head)
    return run(protocol, given, head)


@pytest.fixture(autouse=True)
def _examples_share_runs(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.setattr(features, "embedded_features", lambda name="cub200": load(name))
        monkeypatch.setattr(benchmark, "run", run_once)

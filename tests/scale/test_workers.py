from __future__ import annotations

from pathlib import Path

import pytest

from fiveshot.backbones import Preprocessing
from fiveshot.features import Provenance
from fiveshot.scale._extraction import ClusterExtraction, ShardFolder
from fiveshot.scale._pipeline import VectorFacts
from fiveshot.scale.cluster import Resources, Tally, share_out

FACTS = VectorFacts(Preprocessing(32, 36), 8, "a" * 64, Provenance.unknown("none"), "float32", {})


@pytest.mark.parametrize("cpus", [1, 2, 7, 512])
@pytest.mark.parametrize("gpus", [0, 8])
@pytest.mark.parametrize("workers", [None, 1, 1000])
def test_every_stage_finds_room_beside_the_others(cpus: int, gpus: int, workers: int | None) -> None:
    """Actors stay and readers may wait forever; a reduction must still find room."""
    shared = share_out(Resources(cpus, gpus, 1e9), gpus=gpus > 0, workers=workers)
    held = (
        shared.forward * shared.forward_cpus
        + shared.decode * shared.decode_cpus
        + shared.readers * shared.read_cpus
    )
    assert held + shared.reducers * shared.reduce_cpus <= cpus + 1e-9
    assert shared.forward * shared.forward_gpus <= gpus
    assert min(shared.forward, shared.decode, shared.readers, shared.reducers) >= 1


def test_one_worker_is_one_worker(tmp_path: Path) -> None:
    folder = ShardFolder(tmp_path, FACTS)

    def said(cpus: int, gpus: int) -> str:
        workers = share_out(Resources(cpus, gpus, 1e9), gpus=gpus > 0)
        return ClusterExtraction(folder, (), 0, (), Tally(), 0.0, workers).runtime

    assert said(1, 0) == "Ray, backbone on 1 CPU worker"
    assert said(2, 0) == "Ray, backbone on 2 CPU workers"
    assert said(8, 1) == "Ray, backbone on 1 GPU worker"

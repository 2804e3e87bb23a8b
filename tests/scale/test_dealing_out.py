from __future__ import annotations

import pytest

from fiveshot.scale.cluster import Resources, deal_out


@pytest.mark.parametrize("cpus", [1, 2, 3, 4, 7, 16, 64, 512])
@pytest.mark.parametrize("gpus", [0, 1, 8])
@pytest.mark.parametrize("workers", [None, 1, 5, 1000])
def test_every_stage_finds_room_beside_the_others(cpus: int, gpus: int, workers: int | None) -> None:
    """Actors stay where they are, readers may wait for ever: a reduction must fit in all the same."""
    dealt = deal_out(Resources(cpus, gpus, 1e9), gpus=gpus > 0, workers=workers)
    held = dealt.forward * dealt.forward_cpus + dealt.decode * dealt.decode_cpus + dealt.readers * dealt.read_cpus
    assert held + dealt.reducers * dealt.reduce_cpus <= cpus + 1e-9
    assert dealt.forward * dealt.forward_gpus <= gpus
    assert min(dealt.forward, dealt.decode, dealt.readers, dealt.reducers) >= 1

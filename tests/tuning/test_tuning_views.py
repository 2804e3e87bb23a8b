from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fiveshot.backbones import Backbone
from fiveshot.backbones.preprocessing import INTERPOLATIONS
from fiveshot.data import ImageSplit
from fiveshot.tuning import Execution, TuneRecipe, open_material
from fiveshot.tuning._crops import FILTERS
from fiveshot.tuning._views import LoadedViews, PooledViews, Views, plan_epoch, share_of
from fiveshot.tuning.execution import COMPILE_FROM_IMAGES, place

CPU = torch.device("cpu")


@pytest.fixture(params=["device", "workers"])
def views(request: pytest.FixtureRequest, backbone: Backbone, split: ImageSplit) -> Views:
    found = open_material(backbone, split, Execution(data=request.param).resolved(CPU, images=0)).views
    assert isinstance(found, PooledViews if request.param == "device" else LoadedViews)
    return found


def test_processes_share_every_batch(views: Views) -> None:
    recipe = TuneRecipe(batch_size=5, seed=3)
    rows = np.array([3, 7, 8, 11, 12, 20, 31])
    plan = plan_epoch(recipe, len(rows), epoch=2, processes=2)
    whole = list(views.train(rows, plan, recipe))
    parts = [list(views.train(rows, plan, recipe, part=(rank, 2))) for rank in range(2)]
    assert [len(batch) for batch in whole] == [5, 2]
    for batch, *own in zip(whole, *parts, strict=True):
        assert torch.allclose(batch, torch.cat(own), atol=1e-5)


@pytest.mark.parametrize("n", [4, 5, 7])
def test_shares_make_up_the_batch(n: int) -> None:
    for world in (1, 2, 3, 4):
        shares = [share_of(slice(10, 10 + n), (rank, world)) for rank in range(world)]
        assert [shares[0].start, *(share.stop for share in shares)] == sorted(
            {10, *(share.stop for share in shares)}
        )
        assert shares[-1].stop == 10 + n
        sizes = [share.stop - share.start for share in shares]
        assert max(sizes) - min(sizes) <= 1


def test_epochs_and_seeds_differ_and_repeat(views: Views) -> None:
    rows = np.arange(6)

    def first(seed: int, epoch: int) -> torch.Tensor:
        recipe = TuneRecipe(batch_size=6, seed=seed)
        plan = replace(plan_epoch(recipe, 6, epoch=epoch), order=np.arange(6))
        return next(iter(views.train(rows, plan, recipe)))

    assert torch.equal(first(0, 1), first(0, 1))
    assert not torch.allclose(first(0, 1), first(0, 2))
    assert not torch.allclose(first(0, 1), first(1, 1))


@pytest.mark.parametrize("fails", [False, True])
def test_compiled_crops_are_the_same(
    fails: bool, backbone: Backbone, split: ImageSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are cut out of windows of one size; if compiling fails, the work continues without it."""
    asked: list[tuple[int, int]] = []

    def compiled(crop: Callable[..., torch.Tensor], *, dynamic: bool) -> Callable[..., torch.Tensor]:
        def called(*given: torch.Tensor, extent: tuple[int, int]) -> torch.Tensor:
            asked.append(extent)
            if fails:
                raise RuntimeError("cannot be compiled")
            return crop(*given, extent=extent)

        return called

    monkeypatch.setattr(torch, "compile", compiled)
    recipe, rows = TuneRecipe(batch_size=5, seed=3), np.arange(17)
    plan = plan_epoch(recipe, len(rows), epoch=1)
    plain = open_material(backbone, split, Execution(data="device").resolved(CPU, images=0)).views
    other = open_material(backbone, split, Execution(data="device", compile=True).resolved(CPU, images=0)).views
    expected, found = (list(views.train(rows, plan, recipe)) for views in (plain, other))
    assert len(asked) == (1 if fails else 3), "whole batches alone"
    assert len(set(asked)) == 1
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_the_crop_follows_the_recipe(views: Views) -> None:
    """The whole image without a flip is what a plain resize gives: all epochs show the same."""
    recipe = TuneRecipe(batch_size=4, crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0.0)
    found = []
    for epoch in range(2):
        plan = replace(plan_epoch(recipe, 4, epoch=epoch), order=np.arange(4))
        found.append(next(iter(views.train(np.arange(4), plan, recipe))))
    assert torch.allclose(*found, atol=1e-6)


def test_both_ways_measure_the_same(backbone: Backbone, split: ImageSplit) -> None:
    seen = []
    for data in ("device", "workers"):
        execution = Execution(data=data, short_side=0).resolved(CPU, images=0)
        views = open_material(backbone, split, execution).views
        batches = list(views.measure(np.array([5, 2, 9]), batch_size=2))
        assert [len(batch) for batch in batches] == [2, 1]
        seen.append(torch.cat(batches))
    difference = (seen[0] - seen[1]).abs()
    # In noise the transform's first pass overshoots and is cut off, which happens here after both.
    assert difference.quantile(0.99) <= 2 / 127.5


def test_every_interpolation_of_a_preprocessing_can_be_done_on_the_device() -> None:
    assert set(FILTERS) == set(INTERPOLATIONS)


def test_automatic_choices() -> None:
    cpu = Execution().resolved(CPU, images=10**9)
    assert (cpu.precision, cpu.compile, cpu.cuda_graph, cpu.data, cpu.workers) == (
        "float32",
        False,
        False,
        "workers",
        None,
    )
    cuda = Execution().resolved(torch.device("cuda"), images=COMPILE_FROM_IMAGES)
    assert (cuda.precision, cuda.compile, cuda.cuda_graph, cuda.data) == ("bf16", True, True, "device")
    assert not Execution().resolved(torch.device("cuda"), images=COMPILE_FROM_IMAGES - 1).compile
    assert Execution(compile=True).resolved(CPU, images=0).compile


def test_unknown_ways_to_compute_are_named(backbone: Backbone, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'bf16'"):
        Execution(precision="bf61")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"short_side=0\.5"):
        Execution(short_side=0.5)
    with pytest.raises(ValueError, match="no device 'gpu'"):
        place(backbone, "gpu")

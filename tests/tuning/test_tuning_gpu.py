"""The same on CUDA; run on a machine that has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fiveshot.backbones import Backbone, adapter_state
from fiveshot.data import ImageSplit
from fiveshot.tuning import Execution, TuneProgress, TuneRecipe, tune

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

EVERYTHING = {
    "label_smoothing": 0.1,
    "head_scale_learnable": True,
    "schedule": "cosine-per-epoch",
    "crop_scale": (0.5, 1.0),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_recorded_step_is_the_eager_step(
    make_backbone: Callable[[], Backbone], make_split: Callable[..., ImageSplit], optimizer: str
) -> None:
    split = make_split(4, 20)
    recipe = TuneRecipe(optimizer=optimizer, lr=1e-3, batch_size=8, epochs=3, bottleneck=8, dropout=0.0)
    found = []
    for graph in (False, True):
        backbone = make_backbone()
        execution = Execution(cuda_graph=graph, precision="float32", compile=False)
        found.append((tune(backbone, split, recipe=recipe, device="cuda", execution=execution), backbone))
    assert found[0][0].history[-1].loss == pytest.approx(found[1][0].history[-1].loss, rel=1e-3)
    for name, tensor in adapter_state(found[0][1].model).items():
        assert torch.allclose(tensor, adapter_state(found[1][1].model)[name], atol=1e-3), name


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("changes", [{}, EVERYTHING], ids=["plain", "everything"])
def test_the_same_seed_gives_the_same_adapters_in_bf16(
    make_backbone: Callable[[], Backbone],
    make_split: Callable[..., ImageSplit],
    graph: bool,
    changes: dict[str, object],
) -> None:
    split = make_split(4, 20)
    recipe = TuneRecipe(lr=5e-3, batch_size=8, epochs=3, bottleneck=8).replace(**changes)
    hashes = []
    for _ in range(2):
        backbone = make_backbone()
        result = tune(backbone, split, recipe=recipe, device="cuda", execution=Execution(cuda_graph=graph))
        hashes.append(backbone.adapter_hash)
        assert result.history[-1].loss < result.history[0].loss
    assert hashes[0] == hashes[1]


# The compiler of some torch releases imports parts that they themselves deprecate.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_run_learns(
    make_backbone: Callable[[], Backbone], make_split: Callable[..., ImageSplit]
) -> None:
    recipe = TuneRecipe(lr=5e-3, batch_size=8, epochs=3, bottleneck=8)
    result = tune(
        make_backbone(),
        make_split(4, 20),
        recipe=recipe,
        device="cuda",
        execution=Execution(compile=True),
    )
    assert result.history[-1].loss < 0.7 * result.history[0].loss


@pytest.mark.parametrize("graph", [False, True])
def test_a_stopped_run_goes_on_to_the_same_adapters_on_cuda(
    make_backbone: Callable[[], Backbone],
    make_split: Callable[..., ImageSplit],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    graph: bool,
) -> None:
    monkeypatch.setattr("fiveshot.tuning._trainer._REPORT_SECONDS", -1.0)
    split = make_split(4, 20)
    recipe = TuneRecipe(lr=5e-3, batch_size=8, epochs=4, bottleneck=8)
    options = {"recipe": recipe, "device": "cuda", "execution": Execution(cuda_graph=graph)}

    def stop(now: TuneProgress) -> None:
        if now.epoch == 3:
            raise KeyboardInterrupt

    whole, resumed = make_backbone(), make_backbone()
    tune(whole, split, **options)
    with pytest.raises(KeyboardInterrupt):
        tune(make_backbone(), split, **options, out=tmp_path / "a.safetensors", progress=stop)
    tune(resumed, split, **options, out=tmp_path / "a.safetensors", resume=True)
    assert resumed.adapter_hash == whole.adapter_hash

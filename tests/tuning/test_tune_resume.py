from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray
from PIL import Image

from fiveshot.backbones import Backbone, adapter_state, load_adapter
from fiveshot.data import ImageSplit
from fiveshot.errors import InputError, StorageError
from fiveshot.storage import read_tensors, write_tensors
from fiveshot.tuning import Execution, FewShotTest, Selection, TuneProgress, TuneRecipe, tune

HERE = Path(__file__).parent


class StopError(Exception):
    pass


def stop_in(epoch: int, phase: str = "tuning") -> Callable[[TuneProgress], None]:
    def progress(now: TuneProgress) -> None:
        if (now.phase, now.epoch) == (phase, epoch):
            raise StopError

    return progress


@pytest.fixture(autouse=True)
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fiveshot.tuning._trainer._REPORT_SECONDS", -1.0)


RECIPES = {
    "adamw": {},
    "sgd": {"optimizer": "sgd", "lr": 0.05, "head_scale_learnable": True, "schedule": "cosine-per-epoch"},
    "smoothed": {"label_smoothing": 0.1, "crop_scale": (0.3, 0.9)},
}


@pytest.mark.parametrize("changes", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("data", ["device", "workers"])
def test_a_stopped_run_goes_on_to_the_same_adapters(
    make_backbone: Callable[[], Backbone],
    split: ImageSplit,
    quick: TuneRecipe,
    tmp_path: Path,
    changes: dict[str, object],
    data: str,
) -> None:
    recipe = quick.replace(epochs=4, **changes)
    options = {"recipe": recipe, "execution": Execution(data=data), "held_out": 0.25}
    whole, resumed, out = make_backbone(), make_backbone(), tmp_path / "adapter.safetensors"
    expected = tune(whole, split, **options)
    with pytest.raises(StopError):
        tune(make_backbone(), split, **options, out=out, progress=stop_in(3))
    assert not out.exists()
    kept = tmp_path / "adapter.safetensors.checkpoints"
    assert [path.name for path in kept.iterdir()] == ["tuning.safetensors"]
    epochs: list[int] = []
    result = tune(
        resumed,
        split,
        **options,
        out=out,
        resume=True,
        progress=lambda now: epochs.append(now.epoch),
    )
    assert set(epochs) == {0, 3, 4}  # nothing is trained twice
    assert resumed.adapter_hash == whole.adapter_hash
    figures = [(r.epoch, r.loss, r.train_accuracy, r.held_out_accuracy) for r in result.history]
    assert figures == [(r.epoch, r.loss, r.train_accuracy, r.held_out_accuracy) for r in expected.history]
    assert [path.name for path in tmp_path.iterdir()] == ["adapter.safetensors"]


def test_a_selection_goes_on_in_the_run_where_it_stopped(
    make_backbone: Callable[[], Backbone], make_split: Callable[..., ImageSplit], quick: TuneRecipe, tmp_path: Path
) -> None:
    split = make_split(6, 6, noise=70)
    selection = Selection("few-shot-classes", folds=2, test=FewShotTest(shots=2, draws=3))
    options = {"recipe": quick, "selection": selection, "execution": Execution(data="device")}
    whole, resumed = make_backbone(), make_backbone()
    expected = tune(whole, split, **options)
    folder = tmp_path / "kept" / "here"
    with pytest.raises(StopError):
        tune(make_backbone(), split, **options, checkpoint_folder=folder, progress=stop_in(2, "selection-2"))
    phases: list[tuple[str, int]] = []
    result = tune(
        resumed,
        split,
        **options,
        checkpoint_folder=folder,
        resume=True,
        progress=lambda now: phases.append((now.phase, now.epoch)),
    )
    assert ("selection-1", 1) not in phases
    assert ("selection-2", 1) not in phases
    assert ("selection-2", 2) in phases
    assert result.best_epoch == expected.best_epoch
    assert resumed.adapter_hash == whole.adapter_hash
    assert not folder.exists()


SCRIPT = """
import sys, time
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
import fiveshot.tuning._trainer as trainer
from pathlib import Path
from conftest import coloured_split, tiny_backbone
from fiveshot.tuning import TuneRecipe, tune
trainer._REPORT_SECONDS = -1.0

def progress(now):
    if now.epoch == 3:  # two epochs are in the checkpoint; wait here to be killed
        Path(sys.argv[3]).touch()
        time.sleep(60)

tune(tiny_backbone(), coloured_split(), recipe=TuneRecipe(lr=5e-3, batch_size=8, epochs=4, bottleneck=8, seed=1),
     out=sys.argv[2], progress=progress)
"""


def test_a_killed_process_leaves_a_checkpoint_to_go_on_from(
    make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe, tmp_path: Path
) -> None:
    out, waiting = tmp_path / "adapter.safetensors", tmp_path / "waiting"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(HERE), str(out), str(waiting)], env=environment)
    try:
        deadline = time.monotonic() + 120
        while not waiting.exists():
            assert process.poll() is None, "the process ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    checkpoint = read_tensors(
        tmp_path / "adapter.safetensors.checkpoints" / "tuning.safetensors", kind="tuning checkpoint", version=1
    )
    assert [record["epoch"] for record in checkpoint.meta["history"]] == [1, 2]
    recipe = quick.replace(epochs=4)
    whole, resumed = make_backbone(), make_backbone()
    tune(whole, split, recipe=recipe)
    tune(resumed, split, recipe=recipe, out=out, resume=True)
    assert resumed.adapter_hash == whole.adapter_hash
    fresh = make_backbone()
    load_adapter(out, fresh)
    assert adapter_state(fresh.model).keys() == adapter_state(whole.model).keys()
    assert fresh.adapter_hash == whole.adapter_hash


@pytest.fixture
def stopped(make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe, tmp_path: Path) -> Path:
    out = tmp_path / "adapter.safetensors"
    with pytest.raises(StopError):
        tune(make_backbone(), split, recipe=quick, out=out, progress=stop_in(2))
    return out


def test_a_checkpoint_of_another_recipe_is_refused(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, stopped: Path
) -> None:
    with pytest.raises(InputError, match=r"another run: recipe lr is 0.005 there and 0.001 here\. Use the same"):
        tune(backbone, split, recipe=quick.replace(lr=1e-3), out=stopped, resume=True)


def test_a_checkpoint_of_another_backbone_is_refused(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, stopped: Path
) -> None:
    next(backbone.model.parameters()).data += 0.1
    with pytest.raises(InputError, match="another run: backbone weights is"):
        tune(backbone, split, recipe=quick, out=stopped, resume=True)


def test_a_checkpoint_of_other_images_is_refused(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, stopped: Path
) -> None:
    with pytest.raises(InputError, match="another run: images is"):
        tune(backbone, split.select(range(1, 32)), recipe=quick, out=stopped, resume=True)


def test_a_damaged_checkpoint_is_refused(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, stopped: Path
) -> None:
    path = stopped.with_name("adapter.safetensors.checkpoints") / "tuning.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(StorageError, match="truncated"):
        tune(backbone, split, recipe=quick, out=stopped, resume=True)


def test_a_checkpoint_with_something_missing_is_damaged(
    make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe, stopped: Path
) -> None:
    path = stopped.with_name("adapter.safetensors.checkpoints") / "tuning.safetensors"
    whole = read_tensors(path, kind="tuning checkpoint", version=1)
    kept = {name: tensor.copy() for name, tensor in whole.tensors.items()}
    first = next(name for name in kept if name.startswith("state:parameters/"))
    damages: list[tuple[dict[str, NDArray[Any]], dict[str, Any]]] = [
        (kept, {key: value for key, value in whole.meta.items() if key != "bound_to"}),
        (kept, {**whole.meta, "bound_to": None}),
        (kept, {**whole.meta, "history": [{"epoch": 1}]}),
        (kept, {**whole.meta, "best_epoch": 9}),
        ({**kept, "stray": kept[first].copy()}, whole.meta),
        ({name: tensor for name, tensor in kept.items() if name != first}, whole.meta),
    ]
    for tensors, meta in damages:
        write_tensors(path, tensors, kind="tuning checkpoint", version=1, meta=meta)
        with pytest.raises(StorageError, match=r"tuning\.safetensors is damaged .*start again without resume"):
            tune(make_backbone(), split, recipe=quick, out=stopped, resume=True)


@pytest.mark.parametrize("change", [{"metric": "new"}, {"draws": 4}], ids=["metric", "draws"])
def test_a_checkpoint_scored_by_another_test_is_refused(
    make_backbone: Callable[[], Backbone],
    make_split: Callable[..., ImageSplit],
    quick: TuneRecipe,
    tmp_path: Path,
    change: dict[str, Any],
) -> None:
    split, test = make_split(6, 6, noise=70), FewShotTest(shots=2, draws=3)
    options: dict[str, Any] = {
        "recipe": quick,
        "execution": Execution(data="device"),
        "checkpoint_folder": tmp_path,
    }
    with pytest.raises(StopError):
        tune(
            make_backbone(),
            split,
            selection=Selection("few-shot-classes", folds=2, test=test),
            progress=stop_in(2, "selection-1"),
            **options,
        )
    other = Selection("few-shot-classes", folds=2, test=replace(test, **change))
    (name,) = change
    with pytest.raises(
        InputError, match=f"checkpoint of another run: test {name} is .* there and {change[name]} here"
    ):
        tune(make_backbone(), split, selection=other, resume=True, **options)


def test_without_resume_a_checkpoint_is_ignored(
    make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe, stopped: Path
) -> None:
    epochs: list[int] = []
    tune(
        make_backbone(),
        split,
        recipe=quick.replace(lr=1e-3),
        out=stopped,
        progress=lambda n: epochs.append(n.epoch),
    )
    assert set(epochs) == {0, 1, 2, 3}


def test_nothing_to_resume_from(backbone: Backbone, split: ImageSplit, quick: TuneRecipe, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="resume needs checkpoints"):
        tune(backbone, split, recipe=quick, resume=True)
    tune(backbone, split, recipe=quick.replace(epochs=1), resume=True, out=tmp_path / "a.safetensors")


def test_other_files_beside_checkpoints_are_left_alone(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    Image.new("RGB", (2, 2)).save(tmp_path / "photo.png")
    tune(backbone, split, recipe=quick.replace(epochs=1), checkpoint_folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "photo.png"]

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from file_limits import no_file_may_grow_beyond

from fiveshot.backbones import Backbone, Preprocessing, adapter_state, adapters, load_adapter
from fiveshot.data import ArraySource, BytesSource, ImageDataset, ImageSplit, decode
from fiveshot.errors import InputError, StorageError
from fiveshot.tuning import Execution, Fold, TuneProgress, TuneRecipe, TuningRun, open_material, tune
from fiveshot.tuning import _run as run_module
from fiveshot.tuning._run import write_checkpoint
from fiveshot.tuning._trainer import make_network
from fiveshot.tuning.first_task import SelectionKind
from fiveshot.tuning.material import hold_out_rows

ON_DEVICE = Execution(data="device")
SIDE = 32


@dataclass(frozen=True)
class Untouchable:
    """A test image: reading it is an error."""

    name: str = "test/0/0"

    def read(self) -> bytes:
        raise AssertionError("a test image was read")


def weights(backbone: Backbone) -> dict[str, torch.Tensor]:
    own = adapter_state(backbone.model)
    return {name: t.clone() for name, t in backbone.model.state_dict().items() if name not in own}


@pytest.mark.parametrize("execution", [Execution(), ON_DEVICE], ids=["workers", "device"])
def test_the_loss_goes_down_and_only_adapters_change(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, execution: Execution
) -> None:
    before = weights(backbone)
    result = tune(backbone, split, recipe=quick.replace(epochs=5), execution=execution, held_out=0.25)
    losses = [record.loss for record in result.history]
    assert losses[-1] < 0.5 * losses[0]
    assert result.best.held_out_accuracy >= 0.75
    assert result.best_epoch == 5
    after = weights(backbone)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(adapter.up.weight.abs().max() > 0 for adapter in adapters(backbone.model))
    assert not any(p.requires_grad for p in backbone.model.parameters())
    assert not backbone.model.training


def test_the_same_seed_gives_the_same_adapters(
    make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe
) -> None:
    found = []
    for recipe in (quick, quick, quick.replace(seed=2)):
        backbone = make_backbone()
        torch.manual_seed(len(found))  # the global generator has no say
        state = torch.get_rng_state()
        tune(backbone, split, recipe=recipe.replace(epochs=2))
        assert torch.equal(torch.get_rng_state(), state)
        found.append(backbone.adapter_hash)
    assert found[0] == found[1] != found[2]


def test_the_file_holds_what_was_trained(
    make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe, tmp_path: Path
) -> None:
    backbone, out = make_backbone(), tmp_path / "adapter.safetensors"
    result = tune(backbone, split, recipe=quick, out=out)
    fresh = make_backbone()
    meta = load_adapter(out, fresh)
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fresh.features(images), backbone.features(images))
    assert TuneRecipe.from_json(meta["training"]["recipe"]) == quick
    assert meta["training"]["best_epoch"] == 3
    assert result.out == out
    assert [path.name for path in tmp_path.iterdir()] == ["adapter.safetensors"]


def small_tiny_vit() -> Backbone:
    """Return a TinyViT of the embedded network's kind, narrow and for small images."""
    sizes = {"embed_dims": (16, 16, 32, 32), "depths": (1, 1, 2, 1), "num_heads": (1, 1, 2, 2)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        vit = timm.create_model("tiny_vit_5m_224", num_classes=0, **sizes)
    return Backbone(vit.requires_grad_(False).eval(), "small_tiny_vit", Preprocessing(size=SIDE, resize=36))


def test_a_tiny_vit_is_tuned_and_its_own_weights_stay(
    split: ImageSplit, quick: TuneRecipe, tmp_path: Path
) -> None:
    backbone, out = small_tiny_vit(), tmp_path / "adapter.safetensors"
    before = weights(backbone)
    recipe = quick.replace(epochs=5, margin=0.1)
    result = tune(backbone, split, recipe=recipe, out=out, selection="held-out-images", held_out=0.25)
    assert result.history[-1].loss < result.history[1].loss  # the first entry is before any training
    after = weights(backbone)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    fresh = small_tiny_vit()
    load_adapter(out, fresh)
    images = torch.randn(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fresh.features(images), backbone.features(images))
    assert len(adapters(fresh.model)) == 4


@pytest.mark.parametrize("execution", [Execution(), ON_DEVICE], ids=["workers", "device"])
def test_the_classifier_starts_at_the_class_means(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, execution: Execution
) -> None:
    pixels = np.stack([backbone.preprocessing.pixels(decode(image)) for image in split.images])[:, 0]
    vectors = backbone.features(torch.from_numpy(backbone.preprocessing.normalize(pixels))).numpy()
    means = np.stack([vectors[split.labels == label].mean(axis=0) for label in np.unique(split.labels)])
    material = open_material(backbone, split, execution.resolved(backbone.device, images=len(split)))
    rows = np.arange(len(split))
    run = TuningRun(material, Fold.of(rows, rows[:0]), quick.replace(classifier_start="means"))
    found = run.trainer.network.classifier.weight.detach().numpy()
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    cosines = found @ expected.T
    assert np.diag(cosines).min() > 0.99  # crops made on the device are not rounded to whole gray levels
    assert np.allclose(np.linalg.norm(found, axis=1), 1)
    assert (cosines.argmax(axis=1) == np.arange(len(means))).all()


@pytest.mark.parametrize("selection", ["none", "held-out-images", "few-shot-classes"])
@pytest.mark.parametrize("execution", [Execution(), ON_DEVICE], ids=["workers", "device"])
def test_test_images_are_never_read(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, selection: SelectionKind, execution: Execution
) -> None:
    test = ImageSplit((Untouchable(),), np.array([0]))
    dataset = ImageDataset("colours", ("a", "b", "c", "d"), split, test)
    tune(backbone, dataset, recipe=quick.replace(epochs=1), selection=selection, execution=execution)


def test_held_out_images_are_not_trained_on(
    make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe
) -> None:
    """Changing a held-out image changes no weight, changing a training image does."""
    train, held = hold_out_rows(split.labels, share=0.25, seed=quick.seed)

    def tuned(spoilt: int | None) -> str | None:
        images = list(split.images)
        if spoilt is not None:
            images[spoilt] = ArraySource(255 - images[spoilt].array, images[spoilt].name)  # type: ignore[attr-defined]
        backbone = make_backbone()
        tune(backbone, ImageSplit(tuple(images), split.labels), recipe=quick.replace(epochs=1), held_out=0.25)
        return backbone.adapter_hash

    assert tuned(None) == tuned(int(held[0])) != tuned(int(train[0]))


def test_nothing_is_recorded_in_front_of_the_first_adapter(backbone: Backbone, quick: TuneRecipe) -> None:
    network = make_network(backbone, 4, quick)
    seen: dict[str, bool] = {}
    for name in ("patch_embed", "blocks.0.attn", "blocks.0.mlp", "blocks.0.adapter", "blocks.1.attn"):

        def note(_module: object, _inputs: object, output: torch.Tensor, name: str = name) -> None:
            seen[name] = output.requires_grad

        backbone.model.get_submodule(name).register_forward_hook(note)
    network(torch.zeros(2, 3, 32, 32)).sum().backward()
    assert seen == {
        "patch_embed": False,
        "blocks.0.attn": False,
        "blocks.0.mlp": False,
        "blocks.0.adapter": True,
        "blocks.1.attn": True,
    }
    named = dict(network.named_parameters())
    assert {name for name, p in named.items() if p.grad is not None} == {
        name for name in named if ".adapter." in name or name.startswith("classifier.")
    }


def test_the_frozen_parts_stay_in_eval_mode(backbone: Backbone, quick: TuneRecipe) -> None:
    network = make_network(backbone, 4, quick).train()
    training = {name for name, module in network.named_modules() if module.training and name}
    assert all(".adapter" in name or name == "classifier" for name in training)
    assert any(name.endswith("adapter.dropout") for name in training)


def test_progress_is_told(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fiveshot.tuning._trainer._REPORT_SECONDS", -1.0)
    told: list[TuneProgress] = []
    result = tune(backbone, split, recipe=quick.replace(epochs=2), progress=told.append, held_out=0.25)
    assert [now.done for now in told if now.phase == "decode"] == [32]
    training = [now for now in told if now.phase == "tuning" and now.finished is None]
    assert tuple(now.finished for now in told if now.finished is not None) == result.history
    assert [(now.epoch, now.done, now.total) for now in training] == [
        (epoch, done, 24) for epoch in (1, 2) for done in (8, 16, 24)
    ]
    assert training[-1].seconds_left == 0
    assert all(now.loss > 0 and 0 <= now.accuracy <= 1 and now.images_per_second > 0 for now in training)


def test_everything_at_once_runs(backbone: Backbone, split: ImageSplit, quick: TuneRecipe) -> None:
    recipe = quick.replace(
        epochs=4,
        label_smoothing=0.1,
        head_scale_learnable=True,
        crop_scale=(0.5, 1.0),
    )
    result = tune(backbone, split, recipe=recipe, execution=ON_DEVICE, held_out=0.25)
    assert result.history[-1].loss < result.history[0].loss


def test_a_loss_that_explodes_is_named_and_leaves_the_backbone_alone(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe
) -> None:
    blocks = list(backbone.model.blocks)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="lower lr"):
        tune(backbone, split, recipe=quick.replace(lr=1e30, optimizer="sgd", epochs=4))
    assert list(backbone.model.blocks) == blocks  # type: ignore[arg-type]
    assert not adapters(backbone.model)


def test_one_class_is_too_few(backbone: Backbone, split: ImageSplit) -> None:
    with pytest.raises(InputError, match="at least 2 classes; there are 1"):
        tune(backbone, split.select(np.flatnonzero(split.labels == 0)))


def test_a_class_of_one_image_is_named(backbone: Backbone, split: ImageSplit) -> None:
    rows = [*np.flatnonzero(split.labels != 2), np.flatnonzero(split.labels == 2)[0]]
    with pytest.raises(InputError, match=r"1 of 4 classes have a single image, such as train/2/0"):
        tune(backbone, split.select(rows))


@dataclass(frozen=True)
class Damaged:
    name: str = "train/1/bad.jpg"

    def read(self) -> bytes:
        return b"\xff\xd8 no photograph"


@pytest.mark.parametrize("execution", [Execution(), Execution(workers=1), ON_DEVICE])
def test_unreadable_images_are_listed_or_left_out(
    backbone: Backbone, split: ImageSplit, quick: TuneRecipe, execution: Execution
) -> None:
    worse = ImageSplit((Damaged(), *split.images), np.array([1, *split.labels]))
    recipe = quick.replace(epochs=1)
    with pytest.raises(InputError, match=r"1 of 33 images cannot be used:\n  train/1/bad.jpg"):
        tune(backbone, worse, recipe=recipe, execution=execution)
    assert not adapters(backbone.model)
    tune(backbone, worse, recipe=recipe, execution=execution, skip_bad=True)
    assert adapters(backbone.model)


@pytest.mark.parametrize("execution", [Execution(), ON_DEVICE], ids=["workers", "device"])
def test_no_photo_is_decoded_in_this_process(
    backbone: Backbone,
    split: ImageSplit,
    quick: TuneRecipe,
    execution: Execution,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Decoders have limits, so that a file which lies about its size, or never ends, is a refused photo."""
    sources = [ArraySource(np.zeros((20_000, 1, 3), np.uint8), "strip.png"), *split.images]
    read = tuple(BytesSource(source.read(), source.name) for source in sources)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a photo is opened in this process")

    monkeypatch.setattr("PIL.Image.open", never)
    worse = ImageSplit(read, np.array([1, *split.labels]))
    recipe = quick.replace(epochs=1)
    with pytest.raises(InputError, match=r"1 of 33 images cannot be used:\n  strip.png"):
        tune(backbone, worse, recipe=recipe, execution=execution)
    tune(backbone, worse, recipe=recipe, execution=execution, skip_bad=True)
    assert adapters(backbone.model)


def test_places_that_cannot_be_written_to_are_refused_first(
    backbone: Backbone, split: ImageSplit, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match="does not exist; create it first"):
        tune(backbone, split, out=tmp_path / "missing" / "adapter.safetensors")
    with pytest.raises(StorageError, match="it is a folder"):
        tune(backbone, split, out=tmp_path)


def test_a_full_disk_leaves_the_old_adapter_and_what_is_needed_to_go_on(
    make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe, tmp_path: Path, monkeypatch
) -> None:
    out, checkpoints = tmp_path / "adapter.safetensors", tmp_path / "checkpoints"
    out.write_bytes(b"before")
    with no_file_may_grow_beyond(2000), pytest.raises(StorageError):
        tune(make_backbone(), split, recipe=quick, out=out)
    assert out.read_bytes() == b"before"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [out.name]

    def fill_the_disk(*given: Any, **named: Any) -> None:  # after the first epoch, whose checkpoint is there
        write_checkpoint(*given, **named)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        monkeypatch.setattr(run_module, "write_checkpoint", fill_the_disk)
        with pytest.raises(StorageError):
            tune(make_backbone(), split, recipe=quick, out=out, checkpoint_folder=checkpoints)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        monkeypatch.undo()
    assert out.read_bytes() == b"before"
    alone, resumed = make_backbone(), make_backbone()
    tune(alone, split, recipe=quick)
    done = tune(resumed, split, recipe=quick, out=out, checkpoint_folder=checkpoints, resume=True)
    assert len(done.history) == quick.epochs
    assert alone.adapter_hash == resumed.adapter_hash


def test_a_backbone_with_adapters_is_refused(backbone: Backbone, split: ImageSplit, quick: TuneRecipe) -> None:
    tune(backbone, split, recipe=quick.replace(epochs=1))
    with pytest.raises(InputError, match="already has adapters"):
        tune(backbone, split, recipe=quick)


def test_half_precision_is_for_cuda(backbone: Backbone, split: ImageSplit) -> None:
    with pytest.raises(InputError, match="precision 'bf16' is for CUDA"):
        tune(backbone, split, execution=Execution(precision="bf16"))


def test_images_that_do_not_fit_are_loaded_instead(
    make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe
) -> None:
    loaded, cramped = make_backbone(), make_backbone()
    tune(loaded, split, recipe=quick.replace(epochs=1), execution=Execution(data="workers"))
    tune(cramped, split, recipe=quick.replace(epochs=1), execution=Execution(data="device", device_budget=1000))
    assert loaded.adapter_hash == cramped.adapter_hash


def test_workers_change_nothing(
    make_backbone: Callable[[], Backbone], split: ImageSplit, quick: TuneRecipe
) -> None:
    hashes = set()
    for workers in (1, 2):
        backbone = make_backbone()
        tune(backbone, split, recipe=quick.replace(epochs=2), execution=Execution(workers=workers))
        hashes.add(backbone.adapter_hash)
    assert len(hashes) == 1

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fiveshot.backbones import Backbone, adapters
from fiveshot.data import ImageSplit
from fiveshot.errors import InputError
from fiveshot.tuning import (
    EpochRecord,
    Execution,
    FewShotScore,
    FewShotTest,
    Fold,
    Selection,
    TuneRecipe,
    TuningRun,
    open_material,
    tune,
)
from fiveshot.tuning.first_task import best_epoch, mean_scores
from fiveshot.tuning.material import hold_out_rows

DEVICE = Execution(data="device")
FEW = FewShotTest(shots=3, draws=4)


@pytest.fixture
def birds(make_split: Callable[..., ImageSplit]) -> ImageSplit:
    return make_split(8, 8, noise=70)


def score(new: float) -> FewShotScore:
    return FewShotScore(new, new, new)


def test_scores_are_averaged_over_the_epochs_that_all_runs_reached() -> None:
    runs = [
        (
            EpochRecord(0, few_shot=score(0.2)),
            EpochRecord(1, few_shot=score(0.6)),
            EpochRecord(2, few_shot=score(0.9)),
        ),
        (EpochRecord(0, few_shot=score(0.4)), EpochRecord(1, few_shot=score(0.4))),
    ]
    assert mean_scores(runs, "few-shot", "harmonic") == {0: pytest.approx(0.3), 1: pytest.approx(0.5)}


def test_the_epoch_with_the_best_mean_is_chosen_and_the_fewest_of_equals() -> None:
    runs = [
        tuple(EpochRecord(epoch, few_shot=score(value)) for epoch, value in enumerate(curve))
        for curve in ([0.5, 0.9, 0.1, 0.7], [0.5, 0.6, 0.9, 0.8])
    ]
    assert best_epoch(runs, "few-shot", "harmonic") == 1  # 0.75 on average, as after three epochs


def test_classes_left_out_choose_the_epochs_and_all_classes_are_trained_then(
    make_backbone: Callable[[], Backbone], birds: ImageSplit, quick: TuneRecipe
) -> None:
    backbone = make_backbone()
    selection = Selection("few-shot-classes", share=0.25, folds=2, test=FEW)
    result = tune(backbone, birds, recipe=quick, selection=selection, execution=DEVICE, held_out=0.25)
    assert [[record.epoch for record in run] for run in result.selection] == [[0, 1, 2, 3]] * 2
    means = np.mean([[record.few_shot.harmonic for record in run] for run in result.selection], axis=0)
    assert result.best_epoch == int(means.argmax())
    assert [record.epoch for record in result.history] == (list(range(1, result.best_epoch + 1)) or [0])
    # The same as training on all classes and leaving the schedule there.
    alone = make_backbone()
    material = open_material(alone, birds, DEVICE.resolved(alone.device, images=0))
    rows = hold_out_rows(birds.labels, share=0.25, seed=quick.seed)
    TuningRun(material, Fold.of(*rows), quick).train(epochs=result.best_epoch)
    assert alone.adapter_hash == backbone.adapter_hash


def test_an_adapter_that_harms_is_left_untrained(backbone: Backbone, birds: ImageSplit, quick: TuneRecipe) -> None:
    """Whatever the score of training is, no training at all is among the candidates."""
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    before = backbone.features(images)
    ruinous = quick.replace(lr=0.3, epochs=2, scale=3.0)
    result = tune(
        backbone,
        birds,
        recipe=ruinous,
        selection=Selection("few-shot-classes", folds=1, test=FEW),
        execution=DEVICE,
    )
    assert result.best_epoch == 0
    assert torch.equal(backbone.features(images), before)
    assert adapters(backbone.model)


def test_without_refit_the_selected_run_is_kept(backbone: Backbone, birds: ImageSplit, quick: TuneRecipe) -> None:
    selection = Selection("few-shot-classes", folds=3, test=FEW)
    result = tune(backbone, birds, recipe=quick, selection=selection, refit=False, execution=DEVICE)
    assert len(result.selection) == 1
    assert result.history == result.selection[0]
    best = max(result.history, key=lambda record: record.few_shot.harmonic)
    assert result.best_epoch == best.epoch
    assert not any(p.requires_grad for p in backbone.model.parameters())


def test_held_out_images_choose_the_epoch_whose_adapters_are_kept(
    make_backbone: Callable[[], Backbone], birds: ImageSplit, quick: TuneRecipe
) -> None:
    backbone = make_backbone()
    recipe = quick.replace(epochs=4)
    result = tune(backbone, birds, recipe=recipe, selection="held-out-images", held_out=0.25, execution=DEVICE)
    accuracies = {r.epoch: r.held_out_accuracy for r in result.history if r.epoch}
    assert result.best_epoch == max(accuracies, key=lambda epoch: accuracies[epoch])
    assert result.best.held_out_accuracy == max(accuracies.values())


def test_held_out_images_must_be_held_out(backbone: Backbone, birds: ImageSplit, quick: TuneRecipe) -> None:
    with pytest.raises(InputError, match="needs held-out images"):
        tune(backbone, birds, recipe=quick, selection="held-out-images", held_out=0.0)


def test_classes_too_small_to_be_played_as_new_are_refused(
    backbone: Backbone, make_split: Callable[..., ImageSplit], quick: TuneRecipe, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="too few to treat some as new ones"):
        tune(
            backbone, make_split(4, 5), recipe=quick, selection="few-shot-classes", out=tmp_path / "a.safetensors"
        )
    assert not adapters(backbone.model)


def test_an_unknown_selection_is_named(backbone: Backbone, birds: ImageSplit) -> None:
    with pytest.raises(InputError, match="did you mean 'few-shot-classes'"):
        tune(backbone, birds, selection="few-shots-classes")  # type: ignore[arg-type]

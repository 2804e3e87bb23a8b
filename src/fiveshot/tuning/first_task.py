"""First-task tuning: adapters for a frozen backbone, trained on the base classes.

The number of epochs is chosen without test images.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import torch

from fiveshot.backbones import Backbone, adapters, attach_adapters, detach_adapters, save_adapter
from fiveshot.core.ranges import OneOf
from fiveshot.data import ImageDataset, ImageSplit, content_mark
from fiveshot.errors import InputError
from fiveshot.storage import FilePath, require_writable
from fiveshot.tuning._recipes import TUNE_RECIPES, TuneRecipe
from fiveshot.tuning._run import Checkpoints, EpochChoice, Run, TuningRun, data_mark
from fiveshot.tuning.execution import Execution, place
from fiveshot.tuning.material import (
    FewShotTest,
    Fold,
    HeldOut,
    Material,
    class_folds,
    fold_without,
    hold_out_rows,
    open_material,
)
from fiveshot.tuning.results import EpochRecord, OnProgress, TuneResult

SelectionKind = Literal["few-shot-classes", "held-out-images", "none"]


@dataclass(frozen=True)
class Selection:
    """How the number of epochs is chosen; never with test images.

    Parameters
    ----------
    kind : {"none", "few-shot-classes", "held-out-images"}
        ``none`` takes the last epoch. ``held-out-images`` takes the epoch with the best accuracy on held-out
        images. ``few-shot-classes`` leaves some base classes out of training, treats them as new classes, and
        takes the epoch with the best score, averaged over the folds. Epoch 0 (no change) is a candidate, too.
    share : float
        Share of the base classes that a fold leaves out.
    folds : int
        Number of runs, with different classes left out.
    test : FewShotTest
        How the left-out classes are tested as new classes.

    Examples
    --------
    >>> from fiveshot.tuning import Selection
    >>> Selection("few-shot-classes", folds=2)
    Selection(kind='few-shot-classes', share=0.25, folds=2, test=FewShotTest(shots=5, draws=20, metric='harmonic'))
    """

    kind: SelectionKind = "none"
    share: float = 0.25
    folds: int = 3
    test: FewShotTest = field(default_factory=FewShotTest)

    def __post_init__(self) -> None:
        """Refuse unknown kinds and empty folds."""
        OneOf(get_args(SelectionKind)).check("selection", self.kind)
        if not 0 < self.share < 1 or self.folds < 1:
            raise InputError(f"a selection needs 0 < share < 1 and folds ≥ 1, not {self.share} and {self.folds}")


def tune(
    backbone: Backbone,
    data: ImageDataset | ImageSplit,
    *,
    recipe: TuneRecipe = TUNE_RECIPES["ours"],
    out: FilePath | None = None,
    held_out: HeldOut = 0.1,
    selection: Selection | SelectionKind = "none",
    refit: bool = True,
    device: str | torch.device | None = None,
    execution: Execution | None = None,
    progress: OnProgress | None = None,
    resume: bool = False,
    checkpoint_folder: FilePath | None = None,
    skip_bad: bool = False,
    accelerator: Any = None,
) -> TuneResult:
    """Add adapters to the backbone, train them on the images of the base classes, and freeze them.

    After an error the backbone is unchanged.

    Parameters
    ----------
    backbone : Backbone
        The network to adapt; it must not have adapters.
    data : ImageDataset or ImageSplit
        The base images. For a dataset, only its training split is used.
    recipe : TuneRecipe
        How to train.
    out : path, optional
        The adapter file to write.
    held_out : float or "auto"
        Share of every class's images that is held out from training, for the reported accuracy. The adapter file
        lists these images. A model with the adapter and these base images sets its rejection thresholds on them.
        ``"auto"`` holds out as many as a model does: a quarter of each class, at most 20.
    selection : Selection or str
        How the number of epochs is chosen.
    refit : bool
        Whether to train again on all classes if the selection left some out; otherwise the adapters of the first
        fold are kept.
    device : str or torch.device, optional
        Device for training; by default that of the backbone.
    execution : Execution, optional
        How to run the computation.
    progress : callable, optional
        Called with a :class:`TuneProgress`.
    resume : bool
        Whether to resume an interrupted run from its checkpoints; the result is the same as without interruption.
    checkpoint_folder : path, optional
        Folder for a checkpoint after every epoch, which is removed at the end; by default next to ``out``. Without
        either there are no checkpoints.
    skip_bad : bool
        Whether to leave unreadable images out; otherwise they are an error.
    accelerator : accelerate.Accelerator, optional
        Shares the work among several processes.

    Returns
    -------
    TuneResult
        The measures of the run.

    Raises
    ------
    InputError
        When the images, the recipe or the backbone cannot be used.
    StorageError
        When ``out`` or a checkpoint cannot be written or read.

    Examples
    --------
    >>> import numpy as np, timm
    >>> from fiveshot.backbones import Backbone, Preprocessing, adapters
    >>> from fiveshot.data import ArraySource, ImageSplit
    >>> from fiveshot.tuning import TuneRecipe, tune
    >>> vit = timm.create_model("test_vit", img_size=32, num_classes=0)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=32, resize=36))
    >>> black, white = (ArraySource(np.full((40, 40, 3), gray, np.uint8), str(gray)) for gray in (0, 255))
    >>> split = ImageSplit((black, white) * 4, np.array([0, 1] * 4))
    >>> result = tune(backbone, split, recipe=TuneRecipe(epochs=1, bottleneck=8), held_out=0.25)
    >>> result.best_epoch, len(adapters(backbone.model))  # one beside the MLP of each block
    (1, 6)
    """
    started = time.perf_counter()
    selection = Selection(kind=selection) if isinstance(selection, str) else selection
    target = None if out is None else require_writable(out)
    if adapters(backbone.model):
        raise InputError(f"{backbone.name} already has adapters", hint="load the backbone again to tune it")
    split = data.train if isinstance(data, ImageDataset) else data
    where = place(backbone, accelerator.device if accelerator is not None else device)
    material = open_material(
        backbone,
        split,
        (execution or Execution()).resolved(where, images=len(split) * recipe.epochs),
        few_shot=selection.test,
        skip_bad=skip_bad,
        accelerator=accelerator,
        progress=progress,
    )
    rows = hold_out_rows(material.labels, share=held_out, seed=recipe.seed)
    if selection.kind == "held-out-images" and not len(rows[1]):
        raise InputError("selection by held-out images needs held-out images", hint="held_out=0.1, for example")
    checkpoints = Checkpoints.beside(checkpoint_folder, target, resume=resume)
    tuning = _Tuning(material, recipe, Fold.of(*rows), selection, checkpoints, progress)
    try:
        result = replace(tuning.result(refit=refit), out=target, seconds=time.perf_counter() - started)
        if target is not None and material.is_main:
            held_back = [content_mark(material.images[row]) for row in rows[1]]
            save_adapter(target, backbone, meta={**result.to_json(), "held_back": sorted(held_back)})
    except BaseException:
        detach_adapters(backbone.model)
        raise
    if material.is_main:
        checkpoints.remove(tuning.names)
    return result


@dataclass(frozen=True, eq=False)
class _Tuning:
    """The runs of one tuning."""

    material: Material
    recipe: TuneRecipe
    fold: Fold
    selection: Selection
    checkpoints: Checkpoints
    progress: OnProgress | None
    names: list[str] = field(default_factory=list)  # of the finished runs

    def result(self, *, refit: bool) -> TuneResult:
        """Choose the number of epochs, train for that many, and leave the adapters in the backbone."""
        if self.selection.kind == "none":
            return self._result(self.train("tuning", self.fold, "last"))
        choice, folds = self._folds(self.selection.folds if refit else 1)
        runs = []
        for number, fold in enumerate(folds, start=1):
            runs.append(self.train(f"selection-{number}", fold, choice))
            detach_adapters(self.material.backbone.model)
        histories = tuple(run.history for run in runs)
        if refit and self.selection.kind == "few-shot-classes":
            epochs = best_epoch(histories, choice, self.selection.test.metric)
            run = self.train("tuning", self.fold, "last", epochs=epochs)
        else:
            run = runs[0]
            self._attach(run)
        return self._result(run, selection=histories)

    def train(self, name: str, fold: Fold, choice: EpochChoice, *, epochs: int | None = None) -> Run:
        """Train fresh adapters and leave them in the backbone."""
        run = TuningRun(self.material, fold, self.recipe, choose=choice)
        checkpoint = self.checkpoints.checkpoint_of(name, self._bound_to(fold, choice))
        self.names.append(name)
        return run.train(epochs=epochs, checkpoint=checkpoint, phase=name, progress=self.progress)

    def _folds(self, count: int) -> tuple[EpochChoice, list[Fold]]:
        """Return the criterion for choosing the epoch, and the rows of the runs for it."""
        if self.selection.kind == "held-out-images":
            return "held-out", [self.fold]
        labels, least = self.material.labels, self.selection.test.shots + 1
        left_out = class_folds(
            labels, share=self.selection.share, folds=count, least_images=least, seed=self.recipe.seed
        )
        return "few-shot", [fold_without(labels, self.fold, classes) for classes in left_out]

    def _bound_to(self, fold: Fold, choice: EpochChoice) -> dict[str, Any]:
        """Return everything that affects a run's result, as JSON values."""
        backbone, labels = self.material.backbone, self.material.labels
        rows = [fold.train, fold.held_out, fold.new]
        return {
            "backbone": {"name": backbone.name, "weights": backbone.weights_hash},
            "preprocessing": backbone.preprocessing.to_json(),
            "recipe": self.recipe.to_json(),
            "images": data_mark(self.material.names, labels.tolist()),
            "split": data_mark([str(part.tolist()) for part in rows], []),
            "choice": choice,
            **({"test": asdict(self.selection.test)} if choice == "few-shot" else {}),
        }

    def _attach(self, run: Run) -> None:
        model, recipe = self.material.backbone.model, self.recipe
        attach_adapters(model, recipe.bottleneck, recipe.scale, recipe.dropout, seed=recipe.seed)
        model.load_state_dict(run.adapters, strict=False)
        model.requires_grad_(False).eval()

    def _result(self, run: Run, *, selection: tuple[tuple[EpochRecord, ...], ...] = ()) -> TuneResult:
        rates = [record.images_per_second for record in run.history if record.images_per_second]
        rate = sum(rates) / len(rates) if rates else 0.0
        return TuneResult(self.recipe, run.history, run.best_epoch, rate, run.seconds, selection=selection)


def best_epoch(histories: Sequence[tuple[EpochRecord, ...]], choice: EpochChoice, metric: str) -> int:
    """Return the epoch with the best mean score over the runs; of equal ones, the first."""
    scores = mean_scores(histories, choice, metric)
    return max(scores, key=lambda epoch: scores[epoch])


def mean_scores(
    histories: Sequence[tuple[EpochRecord, ...]], choice: EpochChoice, metric: str
) -> dict[int, float]:
    """Return the score of each epoch that all runs reached and measured, averaged over the runs."""
    per_run = [
        {record.epoch: score for record in history if (score := record.score(choice, metric)) is not None}
        for history in histories
    ]
    common = sorted(set.intersection(*(set(scores) for scores in per_run)))
    return {epoch: float(np.mean([scores[epoch] for scores in per_run])) for epoch in common}

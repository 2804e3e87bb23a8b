"""First-task tuning: adapters for a frozen backbone, trained on the base classes.

The number of epochs, and one of several recipes, is chosen without a single test image.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from fiveshot.backbones import Backbone, adapters, attach_adapters, save_adapter
from fiveshot.data import ImageDataset, ImageSplit
from fiveshot.errors import InputError, StorageError, unknown_name
from fiveshot.storage import FilePath
from fiveshot.tuning.few_shot import FewShotTest, Fold, Integers, class_folds, fold_without, hold_out_rows
from fiveshot.tuning.images.material import Material, open_material
from fiveshot.tuning.recipes import TUNE_RECIPES, TuneRecipe
from fiveshot.tuning.results import EpochRecord, OnProgress, TuneResult
from fiveshot.tuning.training.checkpoint import Checkpoints, data_mark
from fiveshot.tuning.training.execution import Execution, place
from fiveshot.tuning.training.network import plain_blocks, restore_blocks
from fiveshot.tuning.training.run import Choice, Run, TuningRun

SelectionKind = Literal["few-shot-classes", "held-out-images", "none"]
Train = Callable[[str, Fold, TuneRecipe, Choice], Run]  # a name for the run, its rows, recipe and choice


@dataclass(frozen=True)
class Selection:
    """How the number of epochs, and one of several recipes, is chosen; never with test images.

    Parameters
    ----------
    kind : {"none", "few-shot-classes", "held-out-images"}
        ``none`` takes the last epoch. ``held-out-images`` takes the one with the best accuracy on held-out images.
        ``few-shot-classes`` leaves some base classes out of training, plays them as new ones, and takes the epoch
        with the best score, averaged over the folds; epoch 0 (no change at all) is among them.
    share : float
        Share of the base classes that a fold leaves out.
    folds : int
        Number of runs, with different classes left out.
    test : FewShotTest
        How the classes left out are played as new ones.

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
        if self.kind not in get_args(SelectionKind):
            raise unknown_name("selection", self.kind, get_args(SelectionKind))
        if not 0 < self.share < 1 or self.folds < 1:
            raise InputError(f"a selection needs 0 < share < 1 and folds ≥ 1, not {self.share} and {self.folds}")


def tune(
    backbone: Backbone,
    data: ImageDataset | ImageSplit,
    *,
    recipe: TuneRecipe | Sequence[TuneRecipe] = TUNE_RECIPES["ours"],
    out: FilePath | None = None,
    held_out: float = 0.1,
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
    """Put adapters into the backbone, train them on the images of the base classes, and freeze them.

    When anything fails, the backbone is left as it was.

    Parameters
    ----------
    backbone : Backbone
        The network to adapt; it has no adapters yet.
    data : ImageDataset or ImageSplit
        The base images. Of a dataset the training split is used and nothing else.
    recipe : TuneRecipe or sequence of TuneRecipe
        How to train. Of several recipes ``selection`` chooses the best.
    out : path, optional
        The adapter file to write.
    held_out : float
        Share of every class's images that is not trained on and gives the reported accuracy.
    selection : Selection or str
        How the number of epochs is chosen.
    refit : bool
        Whether to train again on all classes where the selection left some out; otherwise the adapters of the
        first fold are kept.
    device : str or torch.device, optional
        Where to train; where the backbone is unless given.
    execution : Execution, optional
        How to compute.
    progress : callable, optional
        Told where the run stands, as a :class:`TuneProgress`.
    resume : bool
        Whether to go on from the checkpoints of a run that was killed, to the result it would have had.
    checkpoint_folder : path, optional
        Where a checkpoint is written after every epoch, and removed in the end; beside ``out`` unless given.
        Without either there are no checkpoints.
    skip_bad : bool
        Whether to leave unreadable images out; otherwise they are an error.
    accelerator : accelerate.Accelerator, optional
        Shares the work among several processes.

    Returns
    -------
    TuneResult
        The figures of the run.

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
    >>> black, white = (ArraySource(np.full((40, 40, 3), grey, np.uint8), str(grey)) for grey in (0, 255))
    >>> split = ImageSplit((black, white) * 4, np.array([0, 1] * 4))
    >>> result = tune(backbone, split, recipe=TuneRecipe(epochs=1, bottleneck=8), held_out=0.25)
    >>> result.best_epoch, len(adapters(backbone.model))  # one beside the MLP of each block
    (1, 6)
    """
    started = time.perf_counter()
    recipes = _recipes(recipe)
    selection = Selection(kind=selection) if isinstance(selection, str) else selection
    target = _checked_out(out)
    if len(recipes) > 1 and selection.kind == "none":
        raise InputError(
            "several recipes need a selection to choose by", hint="few-shot-classes or held-out-images"
        )
    if adapters(backbone.model):
        raise InputError(f"{backbone.name} has adapters already", hint="load the backbone again to tune it")
    if selection.kind == "held-out-images" and held_out == 0:
        raise InputError("selection by held-out images needs some", hint="held_out=0.1, for example")
    split = data.train if isinstance(data, ImageDataset) else data
    where = place(backbone, accelerator.device if accelerator is not None else device)
    material = open_material(
        backbone,
        split,
        (execution or Execution()).resolved(where, images=len(split) * recipes[0].epochs),
        few_shot=selection.test,
        skip_bad=skip_bad,
        accelerator=accelerator,
        progress=progress,
    )
    rows = hold_out_rows(material.labels, share=held_out, seed=recipes[0].seed)
    checkpoints = Checkpoints.beside(checkpoint_folder, target, resume=resume)
    tuning = _Tuning(material, Fold.of(*rows), selection, checkpoints, progress)
    blocks = plain_blocks(backbone)
    try:
        result = tuning.result(recipes, refit=refit)
        result = result.finished(out=target, seconds=time.perf_counter() - started)
        if target is not None and material.is_main:
            save_adapter(target, backbone, meta=result.to_json())
    except BaseException:
        restore_blocks(backbone, blocks)
        raise
    if material.is_main:
        checkpoints.remove(tuning.names)
    return result


@dataclass(frozen=True, eq=False)
class _Tuning:
    """The runs of one tuning."""

    material: Material
    fold: Fold
    selection: Selection
    checkpoints: Checkpoints
    progress: OnProgress | None
    names: list[str] = field(default_factory=list)  # of the runs made

    def result(self, recipes: Sequence[TuneRecipe], *, refit: bool) -> TuneResult:
        """Choose where there is a choice, train what was chosen, and leave its adapters in the backbone."""
        if self.selection.kind == "none":
            return _result(recipes[0], self.train("tuning", self.fold, recipes[0], "last"))
        blocks = plain_blocks(self.material.backbone)

        def trial(name: str, fold: Fold, recipe: TuneRecipe, choice: Choice) -> Run:
            run = self.train(name, fold, recipe, choice)
            restore_blocks(self.material.backbone, blocks)
            return run

        folds = self.selection.folds if refit else 1
        chosen = select(
            recipes, self.material.labels, self.fold, selection=self.selection, folds=folds, train=trial
        )
        if refit and self.selection.kind == "few-shot-classes":
            run = self.train("tuning", self.fold, chosen.recipe, "last", epochs=chosen.epochs)
        else:
            run = chosen.run
            self._attach(chosen.recipe, run)
        return _result(chosen.recipe, run, selection=chosen.histories)

    def train(
        self, name: str, fold: Fold, recipe: TuneRecipe, choice: Choice, *, epochs: int | None = None
    ) -> Run:
        """Train fresh adapters and leave them in the backbone."""
        run = TuningRun(self.material, fold, recipe, choose=choice)
        keeping = self.checkpoints.keeping(name, self._bound_to(fold, recipe, choice))
        self.names.append(name)
        return run.train(epochs=epochs, keeping=keeping, phase=name, progress=self.progress)

    def _bound_to(self, fold: Fold, recipe: TuneRecipe, choice: Choice) -> dict[str, Any]:
        """Return, as JSON values, what decides a run's result."""
        backbone, labels = self.material.backbone, self.material.labels
        rows = [fold.train, fold.held_out, fold.new]
        return {
            "backbone": {"name": backbone.name, "weights": backbone.weights_hash},
            "preprocessing": backbone.preprocessing.to_json(),
            "recipe": recipe.to_json(),
            "images": data_mark(self.material.names, labels.tolist()),
            "split": data_mark([str(part.tolist()) for part in rows], []),
            "choice": choice,
            **({"test": asdict(self.selection.test)} if choice == "few-shot" else {}),
        }

    def _attach(self, recipe: TuneRecipe, run: Run) -> None:
        model = self.material.backbone.model
        attach_adapters(model, recipe.bottleneck, recipe.scale, recipe.dropout, seed=recipe.seed)
        model.load_state_dict(run.adapters, strict=False)
        model.requires_grad_(False).eval()


@dataclass(frozen=True, eq=False)
class Chosen:
    """What a selection came to, and the runs it rests on; ``run`` is one with the chosen recipe."""

    recipe: TuneRecipe
    epochs: int
    score: float
    run: Run
    histories: tuple[tuple[EpochRecord, ...], ...]


def select(
    recipes: Sequence[TuneRecipe],
    labels: Integers,
    rows: Fold,
    *,
    selection: Selection,
    folds: int,
    train: Train,
) -> Chosen:
    """Train every recipe on every fold and return the best by mean score, with its best number of epochs."""
    histories: list[tuple[EpochRecord, ...]] = []
    best: Chosen | None = None
    for index, recipe in enumerate(recipes):
        choice, parts = _folds(recipe, labels, rows, selection, folds)
        runs = [train(f"selection-{index + 1}-{j + 1}", fold, recipe, choice) for j, fold in enumerate(parts)]
        histories += [run.history for run in runs]
        scores = mean_scores([run.history for run in runs], choice, selection.test.metric)
        epochs = max(scores, key=lambda epoch: scores[epoch])  # the first, i.e. the fewest, of equals
        if best is None or scores[epochs] > best.score:
            best = Chosen(recipe, epochs, scores[epochs], runs[0], ())
    if best is None:
        raise InputError("no recipe to choose from")
    return Chosen(best.recipe, best.epochs, best.score, best.run, tuple(histories))


def mean_scores(histories: Sequence[tuple[EpochRecord, ...]], choice: Choice, metric: str) -> dict[int, float]:
    """Return the score of each epoch that all runs reached and measured, averaged over the runs."""
    per_run = [
        {record.epoch: score for record in history if (score := record.score(choice, metric)) is not None}
        for history in histories
    ]
    common = sorted(set.intersection(*(set(scores) for scores in per_run)))
    return {epoch: float(np.mean([scores[epoch] for scores in per_run])) for epoch in common}


def _folds(
    recipe: TuneRecipe, labels: Integers, rows: Fold, selection: Selection, folds: int
) -> tuple[Choice, list[Fold]]:
    if selection.kind == "held-out-images":
        return "held-out", [rows]
    left_out = class_folds(
        labels, share=selection.share, folds=folds, least_images=selection.test.shots + 1, seed=recipe.seed
    )
    return "few-shot", [fold_without(labels, rows, classes) for classes in left_out]


def _result(recipe: TuneRecipe, run: Run, *, selection: Any = ()) -> TuneResult:
    rates = [record.images_per_second for record in run.history if record.images_per_second]
    rate = sum(rates) / len(rates) if rates else 0.0
    return TuneResult(recipe, run.history, run.best_epoch, rate, run.seconds, selection=selection)


def _recipes(recipe: TuneRecipe | Sequence[TuneRecipe]) -> tuple[TuneRecipe, ...]:
    recipes = (recipe,) if isinstance(recipe, TuneRecipe) else tuple(recipe)
    if not recipes or not all(isinstance(one, TuneRecipe) for one in recipes):
        raise InputError(
            f"recipe must be a TuneRecipe or several, not {recipe!r}", hint="get_recipe('ours') returns one"
        )
    return recipes


def _checked_out(out: FilePath | None) -> Path | None:
    """Refuse a place that cannot be written to before hours of work, not after."""
    if out is None:
        return None
    path = Path(out)
    if not path.parent.is_dir():
        raise StorageError(f"cannot write {path}: the folder {path.parent} does not exist", hint="create it first")
    if path.is_dir():
        raise StorageError(f"cannot write {path}: it is a folder", hint="name a file in it")
    return path

"""First-task tuning: adapters for a frozen backbone, trained on the base classes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from fiveshot.backbones import Backbone, adapters, attach_adapters, save_adapter
from fiveshot.data import ImageDataset, ImageSplit
from fiveshot.errors import InputError, StorageError
from fiveshot.tuning.checkpoint import Checkpoints, data_mark
from fiveshot.tuning.execution import Execution, place
from fiveshot.tuning.material import Material, open_material
from fiveshot.tuning.network import plain_blocks, restore_blocks
from fiveshot.tuning.recipe import TuneRecipe
from fiveshot.tuning.recipes import RECIPES
from fiveshot.tuning.result import OnProgress, TuneResult
from fiveshot.tuning.run import Choice, Run, TuningRun
from fiveshot.tuning.selection import Selection, SelectionKind, select
from fiveshot.tuning.split import Fold, hold_out_rows


def tune(
    backbone: Backbone,
    data: ImageDataset | ImageSplit,
    *,
    recipe: TuneRecipe | Sequence[TuneRecipe] = RECIPES["ours"],
    out: str | os.PathLike[str] | None = None,
    held_out: float = 0.1,
    selection: Selection | SelectionKind = "none",
    refit: bool = True,
    device: str | torch.device | None = None,
    execution: Execution | None = None,
    progress: OnProgress | None = None,
    resume: bool = False,
    checkpoint_folder: str | os.PathLike[str] | None = None,
    skip_bad: bool = False,
    accelerator: Any = None,
) -> TuneResult:
    """Put adapters into the backbone, train them on the images of the base classes, and freeze them.

    Of a dataset the training split is used and nothing else. A share ``held_out`` of every class's images is not
    trained on and gives the reported accuracy. ``selection`` chooses the number of epochs, and among several
    recipes the best one. Where it left classes out, ``refit`` trains again on all of them with what was chosen;
    without it the adapters of the first fold are kept.

    After every epoch a checkpoint is written to ``checkpoint_folder`` (beside ``out`` unless given) and removed in
    the end; with ``resume`` a killed run goes on from there, to the result it would have had. Without either
    place there are no checkpoints. When anything fails, the backbone is left as it was.

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
        raise InputError("several recipes need a selection to choose by: few-shot-classes or held-out-images")
    if adapters(backbone.model):
        raise InputError(f"{backbone.name} has adapters already; load the backbone afresh to tune it")
    if selection.kind == "held-out-images" and held_out == 0:
        raise InputError("selection by held-out images needs some: held_out=0.1, for example")
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


def _result(recipe: TuneRecipe, run: Run, *, selection: Any = ()) -> TuneResult:
    rates = [record.images_per_second for record in run.history if record.images_per_second]
    rate = sum(rates) / len(rates) if rates else 0.0
    return TuneResult(recipe, run.history, run.best_epoch, rate, run.seconds, selection=selection)


def _recipes(recipe: TuneRecipe | Sequence[TuneRecipe]) -> tuple[TuneRecipe, ...]:
    recipes = (recipe,) if isinstance(recipe, TuneRecipe) else tuple(recipe)
    if not recipes or not all(isinstance(one, TuneRecipe) for one in recipes):
        raise InputError(f"recipe must be a TuneRecipe or several, not {recipe!r}; get_recipe('ours') returns one")
    return recipes


def _checked_out(out: str | os.PathLike[str] | None) -> Path | None:
    """Refuse a place that cannot be written to before hours of work, not after."""
    if out is None:
        return None
    path = Path(out)
    if not path.parent.is_dir():
        raise StorageError(f"cannot write {path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise StorageError(f"cannot write {path}: it is a folder; name a file in it")
    return path

"""One training of fresh adapters, with figures after every epoch, checkpoints, and the choice of an epoch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from torch import Tensor

from fiveshot.backbones import adapter_state
from fiveshot.tuning.few_shot import Fold, few_shot_score
from fiveshot.tuning.images.material import Material
from fiveshot.tuning.recipes import TuneRecipe
from fiveshot.tuning.results import EpochRecord, FewShotScore, OnProgress, TuneProgress
from fiveshot.tuning.training.checkpoint import (
    Checkpoint,
    Keeping,
    damage_reported,
    read_checkpoint,
    write_checkpoint,
)
from fiveshot.tuning.training.network import make_network
from fiveshot.tuning.training.trainer import OnStep, Trainer

Choice = Literal["last", "held-out", "few-shot"]


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: its figures, and the adapters of the chosen epoch.

    Parameters
    ----------
    history : tuple of EpochRecord
        Its epochs.
    best_epoch : int
        The epoch whose adapters are kept.
    adapters : mapping of str to Tensor
        These adapters.
    seconds : float
        How long it took.

    Examples
    --------
    >>> from fiveshot.tuning import EpochRecord, Run
    >>> run = Run((EpochRecord(1, loss=0.7), EpochRecord(2, loss=0.4)), best_epoch=2, adapters={}, seconds=9.5)
    >>> run.history[-1].loss
    0.4
    """

    history: tuple[EpochRecord, ...]
    best_epoch: int
    adapters: Mapping[str, Tensor]
    seconds: float


class TuningRun:
    """Fresh adapters in the backbone, trained on the rows of a fold.

    Parameters
    ----------
    material : Material
        The backbone and the images.
    fold : Fold
        Which rows train.
    recipe : TuneRecipe
        How to train.
    choose : {"last", "held-out", "few-shot"}
        Which epoch's adapters are kept: the last, or the best by held-out images or few-shot classes.

    Examples
    --------
    >>> import numpy as np, timm
    >>> from fiveshot.backbones import Backbone, Preprocessing
    >>> from fiveshot.data import ArraySource, ImageSplit
    >>> from fiveshot.tuning import Execution, Fold, TuneRecipe, TuningRun, open_material
    >>> vit = timm.create_model("test_vit", img_size=32, num_classes=0)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=32, resize=36))
    >>> black, white = (ArraySource(np.full((40, 40, 3), gray, np.uint8), str(gray)) for gray in (0, 255))
    >>> split = ImageSplit((black, white) * 4, np.array([0, 1] * 4))
    >>> material = open_material(backbone, split, Execution().resolved(backbone.device, images=len(split)))
    >>> fold = Fold.of(train=np.arange(6), held_out=np.arange(6, 8))
    >>> run = TuningRun(material, fold, TuneRecipe(epochs=1, bottleneck=8)).train()
    >>> run.best_epoch, len(run.history)
    (1, 1)
    """

    def __init__(self, material: Material, fold: Fold, recipe: TuneRecipe, *, choose: Choice = "last") -> None:
        self.material, self.fold, self.recipe, self.choose = material, fold, recipe, choose
        self.classes, labels = np.unique(material.labels[fold.train], return_inverse=True)
        self.trainer = Trainer(
            make_network(material.backbone, len(self.classes), recipe, precision=material.execution.precision),
            material.views,
            fold.train,
            labels.astype(np.int64),
            recipe=recipe,
            execution=material.execution,
            accelerator=material.accelerator,
        )
        self.history: list[EpochRecord] = []
        self.best_epoch, self.best_score = 0, -np.inf
        self.best: Mapping[str, Tensor] = {}
        self.seconds = 0.0

    def train(
        self,
        *,
        epochs: int | None = None,
        keeping: Keeping | None = None,
        phase: str = "tuning",
        progress: OnProgress | None = None,
    ) -> Run:
        """Train for the recipe's epochs, or stop after fewer, and put the chosen adapters in place."""
        epochs = self.recipe.epochs if epochs is None else epochs
        if keeping is not None and keeping.resume and keeping.path.is_file():
            with damage_reported(keeping.path):
                self._restore(read_checkpoint(keeping.path, bound_to=keeping.bound_to))
        elif self.choose != "last" or epochs == 0:
            self._note(self._measured(EpochRecord(0)))
        for number in range(self.history[-1].epoch if self.history else 0, epochs):
            started = time.perf_counter()
            stats = self.trainer.epoch(number, on_step=_reporter(phase, number, epochs, progress))
            record = EpochRecord(number + 1, stats.loss, stats.accuracy, images_per_second=stats.rate)
            self._note(self._measured(record))
            self.seconds += time.perf_counter() - started
            if keeping is not None:
                self._write(keeping)
            if progress is not None:
                progress(_finished(phase, epochs, self.history[-1], len(self.fold.train)))
        self.material.backbone.model.load_state_dict(self.best, strict=False)
        self.trainer.network.eval()
        self.material.backbone.model.requires_grad_(False)
        return Run(tuple(self.history), self.best_epoch, self.best, self.seconds)

    def _note(self, record: EpochRecord) -> None:
        """Add an epoch's figures and keep its adapters if they are the best so far."""
        self.history.append(record)
        score = record.score(self.choose, self.material.few_shot.metric)
        if self.best and (score is None or score <= self.best_score):
            return
        self.best_epoch, self.best_score = record.epoch, -np.inf if score is None else score
        state = adapter_state(self.material.backbone.model)
        self.best = {name: tensor.detach().clone() for name, tensor in state.items()}

    def _measured(self, record: EpochRecord) -> EpochRecord:
        """Return the record with the accuracies on images that were not trained on."""
        fold, labels = self.fold, self.material.labels
        held = self.trainer.features(fold.held_out)
        accuracy = None
        if record.epoch and len(held):
            cosines = self.trainer.network.classifier.cosines(held)
            truth = np.searchsorted(self.classes, labels[fold.held_out])
            accuracy = float(np.mean(cosines.argmax(dim=1).cpu().numpy() == truth))
        score = self._few_shot(held) if len(fold.new) else None
        return replace(record, held_out_accuracy=accuracy, few_shot=score)

    def _few_shot(self, held: Tensor) -> FewShotScore:
        fold, labels, test = self.fold, self.material.labels, self.material.few_shot
        return few_shot_score(
            self.trainer.features(fold.train),
            labels[fold.train],
            self.trainer.features(fold.new),
            labels[fold.new],
            held,
            labels[fold.held_out],
            shots=test.shots,
            draws=test.draws,
            rng=np.random.default_rng([self.recipe.seed, 2]),  # the same shots after every epoch
        )

    def _write(self, keeping: Keeping) -> None:
        if self.material.is_main:
            checkpoint = Checkpoint(
                tuple(self.history), self.best_epoch, self.trainer.state(), self.best, self.seconds
            )
            write_checkpoint(keeping.path, checkpoint, bound_to=keeping.bound_to)

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.trainer.restore(checkpoint.state)
        self.history, self.best_epoch = list(checkpoint.history), checkpoint.best_epoch
        self.best, self.seconds = checkpoint.best, checkpoint.seconds
        best = next(record for record in self.history if record.epoch == self.best_epoch)
        score = best.score(self.choose, self.material.few_shot.metric)
        self.best_score = -np.inf if score is None else score


def _finished(phase: str, epochs: int, record: EpochRecord, images: int) -> TuneProgress:
    """Return where a run stands when an epoch is over."""
    rate = record.images_per_second
    left = (epochs - record.epoch) * images / rate if rate else None
    figures = (record.loss, record.train_accuracy, rate, left)
    return TuneProgress(phase, record.epoch, epochs, images, images, *figures, finished=record)


def _reporter(phase: str, number: int, epochs: int, progress: OnProgress | None) -> OnStep | None:
    if progress is None:
        return None
    started = time.perf_counter()

    def report(done: int, total: int, loss: float, accuracy: float) -> None:
        rate = done / (time.perf_counter() - started)
        left = (total - done + (epochs - number - 1) * total) / rate
        progress(TuneProgress(phase, number + 1, epochs, done, total, loss, accuracy, rate, left))

    return report

"""Choose the number of epochs, and one of several recipes, without a single test image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from fiveshot.errors import InputError, unknown_name
from fiveshot.tuning.fewshot import FewShotTest
from fiveshot.tuning.recipe import TuneRecipe
from fiveshot.tuning.result import EpochRecord
from fiveshot.tuning.run import Choice, Run
from fiveshot.tuning.split import Fold, Integers, class_folds, fold_without

SelectionKind = Literal["few-shot-classes", "held-out-images", "none"]
Train = Callable[[str, Fold, TuneRecipe, Choice], Run]  # a name for the run, its rows, recipe and choice


@dataclass(frozen=True)
class Selection:
    """How the number of epochs, and one of several recipes, is chosen; never with test images.

    ``few-shot-classes``: in each of ``folds`` runs a ``share`` of the base classes is left out of training and
    played as few-shot ones; the epoch with the best score, averaged over the folds, is chosen, 0 (no change at
    all) among them. ``held-out-images``: the epoch with the best accuracy on held-out images. ``none``: the last.

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

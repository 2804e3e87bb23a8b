"""What is minimised: cross-entropy of scaled cosines, with margin, smoothing and mixed labels."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fiveshot.tuning.augment import Batch
from fiveshot.tuning.recipe import TuneRecipe


def tuning_loss(cosines: Tensor, scale: Tensor, batch: Batch, recipe: TuneRecipe) -> Tensor:
    """Return the mean loss of a batch of cosines (n, n_classes)."""
    first = _cross_entropy(cosines, scale, batch.first, recipe)
    if recipe.mixing == "none":
        return first.mean()
    second = _cross_entropy(cosines, scale, batch.second, recipe)
    return (batch.share * first + (1 - batch.share) * second).mean()


def _cross_entropy(cosines: Tensor, scale: Tensor, labels: Tensor, recipe: TuneRecipe) -> Tensor:
    if recipe.margin:
        cosines = cosines - recipe.margin * one_hot(labels, cosines.shape[1])
    return cross_entropy(scale * cosines, labels, reduction="none", label_smoothing=recipe.label_smoothing)

"""Backbone, adapters and temporary classifier as one trainable network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fiveshot.backbones import Backbone, Readout, adapters, attach_adapters
from fiveshot.backbones.readout import read_features
from fiveshot.tuning.classifier import CosineClassifier
from fiveshot.tuning.recipe import TuneRecipe


class TuningNetwork(nn.Module):
    """Images to logits; only adapters and classifier have gradients.

    Nothing is recorded for the backward pass before the first adapter: neither the images nor the weights in
    front of it need a gradient, so automatic differentiation starts there, and the stem, the patch embedding
    and the first block's attention and MLP run as they do without gradients.
    """

    def __init__(self, model: nn.Module, readout: Readout, classifier: CosineClassifier) -> None:
        super().__init__()
        self.model, self.readout, self.classifier = model, readout, classifier

    def train(self, mode: bool = True) -> TuningNetwork:
        """Put adapters and classifier into training mode; the frozen parts stay as they are used later."""
        super().train(False)
        for adapter in adapters(self.model):
            adapter.train(mode)
        self.classifier.train(mode)
        return self

    def features(self, images: Tensor) -> Tensor:
        """Return the features (n, width)."""
        return read_features(self.model, images, self.readout)

    def forward(self, images: Tensor) -> Tensor:
        """Return the cosines (n, n_classes) to the classes' weights."""
        return self.classifier.cosines(self.features(images))


def make_network(backbone: Backbone, n_classes: int, recipe: TuneRecipe) -> TuningNetwork:
    """Attach fresh adapters to the backbone and put a fresh classifier behind it."""
    model: Any = backbone.model
    attach_adapters(model, recipe.bottleneck, recipe.scale, recipe.dropout, seed=recipe.seed)
    classifier = CosineClassifier(
        backbone.width,
        n_classes * recipe.rotation_classes,
        scale=recipe.head_scale,
        learnable=recipe.head_scale_learnable,
        generator=torch.Generator().manual_seed(recipe.seed + 1),
    )
    return TuningNetwork(model, backbone.readout, classifier.to(backbone.device)).train()


def plain_blocks(backbone: Backbone) -> list[nn.Module]:
    """Return the blocks as they are now, for ``restore_blocks``."""
    return list(_blocks(backbone))


def restore_blocks(backbone: Backbone, blocks: list[nn.Module]) -> None:
    """Take adapters out again by putting the blocks they replaced back."""
    for index, block in enumerate(blocks):
        _blocks(backbone)[index] = block
    backbone.model.requires_grad_(False).eval()


def _blocks(backbone: Backbone) -> Any:
    model: Any = backbone.model
    return getattr(model, "blocks", [])

"""Backbone, adapters and temporary classifier as one trainable network, and what is minimized."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from fiveshot.backbones import Backbone, Readout, adapters, attach_adapters
from fiveshot.backbones.backbone import read_features
from fiveshot.backbones.gpu import quick_vit
from fiveshot.tuning.recipes import TuneRecipe


@dataclass(frozen=True, eq=False)
class Batch:
    """Images and their classes."""

    images: Tensor  # (n, 3, side, side), normalized
    labels: Tensor  # (n,)
    weight: float = 1.0  # of this part of a batch, where several processes have parts of unequal size

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)


def tuning_loss(cosines: Tensor, scale: Tensor, batch: Batch, recipe: TuneRecipe) -> Tensor:
    """Return the mean cross-entropy of a batch of cosines (n, n_classes), scaled and with smoothed labels."""
    return F.cross_entropy(scale * cosines, batch.labels, label_smoothing=recipe.label_smoothing)


class CosineClassifier(nn.Module):
    """scale · cos(feature, weight of the class), with a scale that is learnt or fixed."""

    def __init__(
        self, width: int, n_classes: int, *, scale: float, learnable: bool, generator: torch.Generator
    ) -> None:
        """Draw the weights uniformly between ±1/√width from the generator."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_classes, width))
        nn.init.uniform_(self.weight, -1 / math.sqrt(width), 1 / math.sqrt(width), generator=generator)
        if learnable:
            self.scale: Tensor = nn.Parameter(torch.tensor(scale))
        else:
            self.register_buffer("scale", torch.tensor(scale))

    def cosines(self, features: Tensor) -> Tensor:
        """Return the cosines (n, n_classes) in float32."""
        with torch.autocast(features.device.type, enabled=False):
            return F.linear(F.normalize(features.float()), F.normalize(self.weight))

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits (n, n_classes)."""
        return self.scale * self.cosines(features)


class TuningNetwork(nn.Module):
    """Images to logits; only adapters and classifier have gradients.

    Nothing is recorded for the backward pass before the first adapter: neither the images nor the weights in
    front of it need a gradient, so automatic differentiation starts there, and the stem, the patch embedding
    and the first block's attention and MLP run as they do without gradients.
    """

    def __init__(
        self,
        model: nn.Module,
        readout: Readout,
        classifier: CosineClassifier,
        *,
        number_format: torch.dtype = torch.float32,
        autocast: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.readout, self.classifier = model, readout, classifier
        self.number_format, self.autocast = number_format, autocast

    def train(self, mode: bool = True) -> TuningNetwork:
        """Put adapters and classifier into training mode; the frozen parts stay as they are used later."""
        super().train(False)
        for adapter in adapters(self.model):
            adapter.train(mode)
        self.classifier.train(mode)
        return self

    def features(self, images: Tensor) -> Tensor:
        """Return the features (n, width) of normalized images."""
        images = images.to(self.number_format, memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16) if self.autocast else nullcontext():
            return read_features(self.model, images, self.readout)

    def forward(self, images: Tensor) -> Tensor:
        """Return the cosines (n, n_classes) to the classes' weights."""
        return self.classifier.cosines(self.features(images))


def make_network(
    backbone: Backbone, n_classes: int, recipe: TuneRecipe, *, precision: str = "float32"
) -> TuningNetwork:
    """Attach fresh adapters to the backbone and put a fresh classifier behind it.

    In bf16 the frozen parts are those of a copy that a GPU runs best; it has the backbone's own adapters.
    """
    model: Any = backbone.model
    attach_adapters(model, recipe.bottleneck, recipe.scale, recipe.dropout, seed=recipe.seed)
    classifier = CosineClassifier(
        backbone.width,
        n_classes,
        scale=recipe.head_scale,
        learnable=recipe.head_scale_learnable,
        generator=torch.Generator().manual_seed(recipe.seed + 1),
    )
    quick = quick_vit(model, backbone.readout, trains=True) if precision == "bf16" else None
    return TuningNetwork(
        model if quick is None else quick,
        backbone.readout,
        classifier.to(backbone.device),
        number_format=torch.float32 if quick is None else torch.bfloat16,
        autocast=precision == "bf16" and quick is None,
    ).train()


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

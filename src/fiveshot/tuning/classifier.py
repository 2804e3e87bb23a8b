"""The temporary classifier that adapters are tuned with: cosines to one weight vector per class."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


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

"""The embedded network in torch: a ViT and the last stages of a CNN, side by side on the CNN's first stages."""

from __future__ import annotations

from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn


class HybridViT(VisionTransformer):
    """A ViT over the map of a CNN's first stages that also runs the CNN's last stages on it.

    Without the tail it is the timm network that it was: class token, patches and blocks are read as always.
    """

    spread: Tensor

    def __init__(self, *, tail: nn.Module, tail_width: int, **vit: Any) -> None:
        """Put ``tail`` beside a ViT with these arguments; its output has ``tail_width`` channels."""
        super().__init__(**vit)
        self.tail = tail
        self.own_width = self.embed_dim + tail_width
        # What the class token and the pooled map are divided by: their spread over general photographs.
        self.register_buffer("spread", torch.ones(2))

    def own_features(self, images: Tensor) -> Tensor:
        """Return the class token and the pooled map (n, own_width) of images; the first stages run once."""
        trunk = self.patch_embed.backbone(images)[-1]  # (n, channels, 14, 14)
        tokens = self.norm(self.blocks(self.embed(trunk)))
        return self.joined(tokens[:, 0], trunk)

    def embed(self, trunk: Tensor) -> Tensor:
        """Return the tokens (n, tokens, width) that go into the first block."""
        patches = self.patch_embed.proj(trunk).flatten(2).transpose(1, 2)
        tokens: Tensor = self.norm_pre(self.patch_drop(self._pos_embed(patches)))
        return tokens

    def joined(self, class_token: Tensor, trunk: Tensor) -> Tensor:
        """Return the feature (n, own_width): the class token (n, width) and the pooled map, balanced."""
        pooled = self.tail(trunk).mean(dim=(2, 3))
        return torch.cat([class_token / self.spread[0], pooled / self.spread[1]], dim=1)

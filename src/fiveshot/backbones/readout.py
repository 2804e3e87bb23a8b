"""Which of a network's tokens make up the feature vector, read in one forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fiveshot.errors import InputError, unknown_name

TOKENS = ("cls", "mean", "cls+mean")


@dataclass(frozen=True)
class Readout:
    """What the feature vector is made of.

    ``tokens``: ``cls`` is the class token after the final norm, and for networks without one the feature
    their own classifier reads (pooled); ``mean`` is the mean over the patch tokens after the final norm;
    ``cls+mean`` both, in this order. ``last_blocks`` concatenates the class tokens of the last blocks,
    earliest first, each after the final norm; the mean is always that of the last block.

    >>> Readout(tokens="cls+mean", last_blocks=4).vectors
    5
    """

    tokens: str = "cls"
    last_blocks: int = 1

    def __post_init__(self) -> None:
        """Refuse unknown tokens and counts."""
        if self.tokens not in TOKENS:
            raise unknown_name("token readout", self.tokens, TOKENS)
        if self.last_blocks < 1:
            raise InputError(f"last_blocks is {self.last_blocks}; choose 1 (the last block alone) or more")
        if self.tokens == "mean" and self.last_blocks > 1:
            raise InputError("last_blocks concatenates class tokens; choose tokens 'cls' or 'cls+mean' with it")

    @property
    def vectors(self) -> int:
        """How many vectors of the network's width are concatenated."""
        return {"cls": self.last_blocks, "mean": 1, "cls+mean": self.last_blocks + 1}[self.tokens]


CLS = Readout()


def feature_width(model: Any, readout: Readout) -> int:
    """Return the length of the feature vectors."""
    width: int = getattr(model, "head_hidden_size", None) or model.num_features
    return width * readout.vectors


def check_readout(model: Any, readout: Readout, *, name: str) -> None:
    """Refuse a readout that this network cannot give."""
    if readout == CLS:
        return
    if not _reads_class_token(model):
        raise InputError(
            f"{name} has no class token that its classifier reads, so its feature is its own pooled one; "
            f"leave out tokens={readout.tokens!r} and last_blocks={readout.last_blocks}"
        )
    if readout.last_blocks > len(model.blocks):
        raise InputError(f"{name} has {len(model.blocks)} blocks; last_blocks is {readout.last_blocks}")


def read_features(model: Any, images: Tensor, readout: Readout) -> Tensor:
    """Return the features (n, width) of a batch (n, 3, height, width) of preprocessed images."""
    if readout == CLS:
        pooled: Tensor = model.forward_head(model.forward_features(images), pre_logits=True)
        return pooled
    blocks = model.forward_intermediates(
        images,
        indices=readout.last_blocks,
        return_prefix_tokens=True,
        norm=True,
        output_fmt="NLC",
        intermediates_only=True,
    )
    parts = [prefix[:, 0] for _, prefix in blocks] if readout.tokens != "mean" else []
    if readout.tokens != "cls":
        patches, _ = blocks[-1]
        parts.append(patches.mean(dim=1))
    return torch.cat(parts, dim=1)


def _reads_class_token(model: Any) -> bool:
    return (
        getattr(model, "global_pool", None) == "token"
        and getattr(model, "cls_token", None) is not None
        and hasattr(model, "forward_intermediates")
    )

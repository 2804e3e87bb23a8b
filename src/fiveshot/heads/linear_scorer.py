"""The default head as a module of plain tensor operations, for runtimes without torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fiveshot.heads.embedding import Embedding
from fiveshot.heads.two_covariance import SpaceModel


class LinearScorer(nn.Module):
    """Features in, scores, probabilities and familiarity out; nothing is written in place."""

    centre: Tensor  # (d,)
    projection: Tensor | None  # (d, M)
    gaps: Tensor  # (n_classes,)
    weights0: Tensor  # (n_classes, d)
    shift0: Tensor  # (n_classes,)
    weights1: Tensor  # (n_classes, M)
    shift1: Tensor  # (n_classes,)

    def __init__(
        self,
        embedding: Embedding,
        spaces: Sequence[SpaceModel],
        weights: Sequence[float],
        *,
        gaps: Tensor,
        offset: float,
        sharpness: float,
        doubt: float,
    ) -> None:
        super().__init__()
        self.offset, self.sharpness, self.doubt = offset, sharpness, doubt
        self.register_buffer("centre", embedding.centre.clone())
        drawn = embedding.projection
        self.register_buffer("projection", None if drawn is None else drawn.projection.clone())
        self.register_buffer("gaps", gaps.clone())
        for i, (space, weight) in enumerate(zip(spaces, weights, strict=True)):
            self.register_buffer(f"weights{i}", weight * space.weights)
            self.register_buffer(f"shift{i}", weight * (space.weights @ space.origin))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores and probabilities, (n, n_classes), and familiarity, (n,)."""
        shifted = features - self.centre
        unit = shifted / torch.linalg.vector_norm(shifted, dim=1, keepdim=True).clamp_min(1e-12)
        plain = unit @ self.weights0.T - self.shift0
        if self.projection is not None:
            plain = plain + torch.relu(unit @ self.projection) @ self.weights1.T - self.shift1
        scores = plain + self.offset * self.gaps
        logits = self.sharpness * scores
        best = torch.log_softmax(logits, dim=1).amax(dim=1)
        return scores, torch.softmax(logits, dim=1), (plain + self.gaps).amax(dim=1) + self.doubt * best

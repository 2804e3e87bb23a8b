"""The space a tied-covariance head works in: centred, scaled to length one, and beside it random features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fiveshot.heads.sampling import RandomFeatures, random_features


@dataclass(frozen=True, eq=False)
class Embedding:
    """z = (x − c) / ‖x − c‖, followed by max(0, zW): fixed by the base session, so that statistics stay valid.

    Without a base session nothing is known to centre on, and too little to estimate the covariance of many random
    features: c = 0 and W is empty then.
    """

    centre: Tensor  # (d,)
    projection: RandomFeatures | None

    def __call__(self, X: Tensor) -> Tensor:
        """Map features, (n, d) → (n, d + M)."""
        return torch.cat(self.parts(X), dim=1)

    def parts(self, X: Tensor) -> list[Tensor]:
        """Map features space by space, (n, d) → (n, d) and (n, M)."""
        unit = normalize(X - self.centre, dim=1)
        return [unit] if self.projection is None else [unit, self.projection(unit)]

    @property
    def n_features(self) -> int:
        """Length of the vectors that go in, d."""
        return len(self.centre)

    @property
    def spaces(self) -> tuple[slice, ...]:
        """The columns of each space: the features themselves, then the random ones where there are any."""
        d = self.n_features
        own = slice(0, d)
        return (own,) if self.projection is None else (own, slice(d, d + self.projection.projection.shape[1]))


def make_embedding(centre: Tensor, n_projections: int, *, seed: int) -> Embedding:
    """Return the embedding around a centre, with so many random features."""
    drawn = random_features(len(centre), n_projections, seed=seed, like=centre) if n_projections else None
    return Embedding(centre, drawn)

"""What a run sees of its images: random views to train on, fixed ones to measure with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.tuning.plan import EpochPlan
from fiveshot.tuning.recipe import TuneRecipe

Rows = NDArray[np.int64]


class Views(Protocol):
    """Where a run's images come from; ``rows`` are positions among all of them."""

    def train(
        self, rows: Rows, plan: EpochPlan, recipe: TuneRecipe, *, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Tensor]:
        """Yield the batches of an epoch, each (n, 3, size, size) and normalised, on the device.

        ``part`` says which of how many processes asks: each gets its share of every batch.
        """

    def measure(self, rows: Rows, *, batch_size: int) -> Iterator[Tensor]:
        """Yield the rows as they are seen when features are extracted: no randomness, in order."""


def share_of(batch: slice, part: tuple[int, int]) -> slice:
    """Return the contiguous part of a batch that one of several processes works on.

    >>> [share_of(slice(10, 15), (rank, 2)) for rank in range(2)]
    [slice(10, 13, None), slice(13, 15, None)]
    """
    rank, world = part
    n = batch.stop - batch.start
    bounds = [batch.start + (n * r + world - 1) // world for r in (rank, rank + 1)]
    return slice(*bounds)

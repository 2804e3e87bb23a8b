"""Counts and means of classes, joined part by part, and the scatter that lies between the parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError
from fiveshot.statistics.labels import Labels, refuse_other_kind

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]


class JoinedMeans:
    """The formula of Chan, Golub and LeVeque for many classes at a time; sums are kept in double precision."""

    def __init__(self, labels: Sequence[Labels], *, width: int) -> None:
        """Prepare for parts with these labels and vectors of this ``width``; none is empty."""
        for given in labels[1:]:
            refuse_other_kind(labels[0], given)
        self.labels: Labels = np.unique(np.concatenate(labels))  # (C,)
        self.counts: Integers = np.zeros(len(self.labels), np.int64)
        self.means: Floats = np.zeros((len(self.labels), width))

    def add(self, labels: Labels, counts: Integers, means: Floats) -> tuple[Integers, Floats, Integers]:
        """Join one part; return its classes' places, rows of scatter between it and those before, and whose."""
        if means.shape[1] != self.means.shape[1]:
            raise InputError(
                f"cannot merge statistics of {self.means.shape[1]} and of {means.shape[1]} features; "
                "both must come from the same backbone"
            )
        place = np.searchsorted(self.labels, labels).astype(np.int64)
        before = self.counts[place]
        total = before + counts
        difference = means - self.means[place]  # (c, d)
        self.means[place] += (counts / total)[:, None] * difference
        self.counts[place] = total
        known = before > 0
        # Scatters add up, and with them n m / (n + m) δδᵀ, where δ is the difference of the means.
        weight = np.sqrt(before[known] / total[known] * counts[known])
        return place, weight[:, None] * difference[known], place[known]

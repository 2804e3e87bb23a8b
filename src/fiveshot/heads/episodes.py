"""Play few-shot sessions inside the base classes: some of them are known from a few samples, as new ones will be.

Only training samples of base classes are used, so what is chosen by episodes has seen no test image and no later
class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.heads.memory import Memory
from fiveshot.heads.sampling import derived_seed, stratified_split
from fiveshot.statistics import class_statistics
from fiveshot.statistics.labels import Labels

LEAST_CLASSES = 10  # with fewer base classes a choice by episodes is worse than a default
HELD_OUT = 0.3


@dataclass(frozen=True, eq=False)
class Episode:
    """What a head would have learned, and samples to ask it about."""

    memory: Memory
    X: Tensor  # (n, d)
    codes: NDArray[np.intp]  # (n,): index of each sample's class in the memory's labels
    new: NDArray[np.bool_]  # (n_classes,): which classes of the memory are played as new
    base_rows: NDArray[np.intp]  # the samples that the memory's base classes were learned from
    new_rows: NDArray[np.intp]  # and those of its new ones


def play_episodes(X: Tensor, y: Labels, *, shots: int, episodes: int, seed: int) -> Iterator[Episode]:
    """Yield seeded episodes: half of the classes are new, known from ``shots`` of their samples.

    Samples to ask about are held out of every class. Nothing is yielded where there are fewer than ten classes
    with enough samples for both.
    """
    names, counts = np.unique(y, return_counts=True)
    usable = names[counts >= shots + 2]
    if len(usable) < LEAST_CLASSES:
        return
    rows = np.flatnonzero(np.isin(y, usable))
    for number in range(episodes):
        rng = np.random.default_rng([derived_seed(seed, "episodes"), number])
        train, asked = (rows[part] for part in stratified_split(y[rows], held_out=HELD_OUT, seed=seed + number))
        new = rng.permutation(usable)[: len(usable) // 2]
        drawn = np.concatenate([rng.permutation(train[y[train] == label])[:shots] for label in new])
        old = train[~np.isin(y[train], new)]
        memory = Memory(
            class_statistics(X[_index(old, X)], y[old]), class_statistics(X[_index(drawn, X)], y[drawn])
        )
        codes = np.searchsorted(memory.labels, y[asked])
        yield Episode(memory, X[_index(asked, X)], codes, np.isin(memory.labels, new), old, drawn)


def _index(rows: NDArray[np.intp], like: Tensor) -> Tensor:
    return torch.as_tensor(rows, device=like.device)

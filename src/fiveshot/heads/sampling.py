"""Seeded draws: random features, samples of a class, held-out parts. The same seed, the same numbers anywhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.errors import InputError, is_number, unknown_name
from fiveshot.statistics import ClassGaussian
from fiveshot.statistics.labels import Label, Labels

Sampled = Literal["new", "all"]


@dataclass(frozen=True)
class Sampling:
    """Replace the features of new classes (or of all) by so many Gaussian samples of each.

    >>> from fiveshot.heads import RanPAC, Sampling
    >>> head = RanPAC(n_projections=64, sampling=Sampling(per_class=20))
    >>> head = head.fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], ["owl", "owl", "wren", "wren"])
    >>> head.partial_fit([[-1.0, -1.1], [-1.1, -1.0]], ["kite", "kite"]).predict([[-0.9, -1.0]]).tolist()
    ['kite']
    """

    per_class: int = 800
    classes: Sampled = "new"

    def __post_init__(self) -> None:
        if not (is_number(self.per_class, whole=True) and self.per_class >= 1):
            raise InputError(f"per_class must be at least 1, got {self.per_class}; the paper draws 800")
        if self.classes not in get_args(Sampled):
            raise unknown_name("choice of sampled classes", self.classes, get_args(Sampled))


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """φ(x) = max(0, x W) with a Gaussian W that is drawn once."""

    projection: Tensor  # (d, M)

    def __call__(self, X: Tensor, out: Tensor | None = None) -> Tensor:
        """Map features, (n, d) → (n, M), into ``out`` where memory for them is at hand."""
        return torch.relu_(torch.mm(X, self.projection, out=out))


def random_features(n_features: int, width: int, *, seed: int, like: Tensor) -> RandomFeatures:
    """Draw random features for vectors like ``like`` (its dtype and device)."""
    generator = torch.Generator().manual_seed(derived_seed(seed, "projection"))
    projection = torch.randn(n_features, width, generator=generator, dtype=torch.float32)
    return RandomFeatures(projection.to(like))


def draw_samples(gaussian: ClassGaussian, count: int, *, seed: int) -> Tensor:
    """Draw from N(μ, Σ) through the factor, x = μ + z A with Σ = AᵀA: no matrix is decomposed. (count, d)."""
    mean, factor = gaussian.mean, gaussian.factor
    generator = torch.Generator().manual_seed(seed)  # CPU, float32: the same draw for all
    z = torch.randn(count, len(factor), generator=generator, dtype=torch.float32)
    return torch.addmm(mean, z.to(mean), factor)


def derived_seed(seed: int, name: Label) -> int:
    """Return a seed for one named purpose, independent of all others.

    >>> derived_seed(0, "owl") != derived_seed(0, "wren") != derived_seed(1, "wren")
    True
    """
    digest = hashlib.sha256(f"{seed}|{type(name).__name__}|{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stratified_split(labels: Labels, *, held_out: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split sample indices class by class; each class of two or more samples has one held out at least."""
    rng = np.random.default_rng(derived_seed(seed, "held out"))
    train, other = [], []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        cut = max(1, round(held_out * len(members))) if len(members) > 1 else 0
        other.append(members[:cut])
        train.append(members[cut:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(other))

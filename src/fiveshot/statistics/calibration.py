"""Calibration of a new class by the base classes it resembles: equations (1) to (4) of the paper.

A class seen five times has a noisy mean and a covariance of rank four. The many-shot base classes near it
have good ones. Each function takes the raw statistics of *one* new class and those of the base classes, so
the result depends on nothing else: not on other new classes, not on the order in which they came.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fiveshot.errors import InputError, is_number, unknown_name
from fiveshot.statistics.class_statistics import ClassStatistics, ClassSummary

Similarity = Literal["cosine", "dot"]
Prototypes = Literal["raw", "unit"]


@dataclass(frozen=True)
class Calibration:
    """How strongly, and by which base classes, a new class is calibrated.

    ``alpha`` keeps that share of the class's own mean; 1 leaves the mean alone. ``beta`` scales the sum of
    its own and the borrowed covariance; ``None`` leaves the covariance alone. The larger ``tau``, the more the
    most similar base classes count. ``similarity="cosine"`` is the paper's text, ``"dot"`` the published
    C-RanPAC. ``prototypes="unit"`` mixes unit vectors and normalises the borrowed one again, as the published
    TEEN and C-FeCAM do.

    >>> from fiveshot.statistics import Calibration
    >>> Calibration(alpha=0.8, beta=None)
    Calibration(alpha=0.8, beta=None, tau=16.0, similarity='cosine', prototypes='raw')
    >>> Calibration(alpha=1.5)
    Traceback (most recent call last):
    fiveshot.errors.InputError: alpha must lie in [0, 1], got 1.5; the paper uses 0.9
    """

    alpha: float = 0.9
    beta: float | None = 1.0
    tau: float = 16.0
    similarity: Similarity = "cosine"
    prototypes: Prototypes = "raw"

    def __post_init__(self) -> None:
        if not (is_number(self.alpha) and 0 <= self.alpha <= 1):
            raise InputError(f"alpha must lie in [0, 1], got {self.alpha}; the paper uses 0.9")
        if self.beta is not None and not (is_number(self.beta) and math.isfinite(self.beta)):
            raise InputError(f"beta must be a finite number, got {self.beta}; None leaves covariances alone")
        if self.beta is not None and self.beta < 0:
            raise InputError(f"beta must not be negative, got {self.beta}; None leaves covariances alone")
        if not (is_number(self.tau) and math.isfinite(self.tau)):
            raise InputError(f"tau must be a finite number, got {self.tau}; the paper uses 16")
        if self.similarity not in get_args(Similarity):
            raise unknown_name("similarity", self.similarity, get_args(Similarity))
        if self.prototypes not in get_args(Prototypes):
            raise unknown_name("kind of prototypes", self.prototypes, get_args(Prototypes))


@dataclass(frozen=True, eq=False)
class ClassGaussian:
    """A mean and a factored covariance: what a head needs of a class.

    >>> import torch
    >>> from fiveshot.statistics import ClassGaussian
    >>> gaussian = ClassGaussian(mean=torch.zeros(2), factor=torch.tensor([[3.0, 4.0]]))
    >>> gaussian.factor.T @ gaussian.factor  # the covariance
    tensor([[ 9., 12.],
            [12., 16.]])
    """

    mean: Tensor  # (d,)
    factor: Tensor  # (r, d) with factorᵀ · factor = covariance


def similarity_weights(
    mean: Tensor, base_means: Tensor, *, tau: float = 16.0, similarity: Similarity = "cosine"
) -> Tensor:
    """Equations (1) and (2): softmax over the base classes of τ · similarity. Shapes (d,), (B, d) → (B,).

    >>> import torch
    >>> from fiveshot.statistics import similarity_weights
    >>> similarity_weights(torch.tensor([1.0, 0.0]), torch.eye(2), tau=1.0)
    tensor([0.7311, 0.2689])
    """
    if similarity == "cosine":
        mean, base_means = normalize(mean, dim=0), normalize(base_means, dim=1)
    return torch.softmax(tau * (base_means @ mean), dim=0)


def calibrated_mean(mean: Tensor, base_means: Tensor, weights: Tensor, *, alpha: float) -> Tensor:
    """Equation (3): α μₙ + (1 − α) Σ_b w_b μ_b. Shapes (d,), (B, d), (B,) → (d,).

    >>> import torch
    >>> from fiveshot.statistics import calibrated_mean
    >>> calibrated_mean(torch.tensor([4.0, 0.0]), torch.eye(2), torch.tensor([0.5, 0.5]), alpha=0.5)
    tensor([2.2500, 0.2500])
    """
    return alpha * mean + (1 - alpha) * (weights @ base_means)


def calibrated_factor(
    factor: Tensor, base_factors: Tensor, owners: Tensor, weights: Tensor, *, beta: float
) -> Tensor:
    """Equation (4), β (Σₙ + Σ_b w_b Σ_b), in factored form: the factors stacked, each scaled by √w.

    ``base_factors`` holds the factors of all base classes one below the other, (R, d), and ``owners`` the base
    class of each row, (R,). Rows of weight zero (a softmax underflows) are left out; they would add nothing.

    >>> import torch
    >>> from fiveshot.statistics import calibrated_factor
    >>> own, base = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 2.0], [2.0, 0.0]])  # two base classes
    >>> A = calibrated_factor(own, base, torch.tensor([0, 1]), torch.tensor([0.25, 0.75]), beta=1.0)
    >>> (A.T @ A).round(decimals=3)
    tensor([[7., 0.],
            [0., 1.]])
    """
    row_weights = weights[owners]
    if not row_weights.all():
        base_factors, row_weights = base_factors[row_weights > 0], row_weights[row_weights > 0]
    borrowed = base_factors * (beta * row_weights).sqrt()[:, None]
    return torch.cat([math.sqrt(beta) * factor, borrowed])  # (r + R, d)


def calibrate(summary: ClassSummary, base: ClassStatistics, calibration: Calibration | None) -> ClassGaussian:
    """Return the mean and covariance a head uses for a new class, from its raw statistics.

    Both are the class's own without a calibration, or without base classes to borrow from.

    >>> import torch
    >>> from fiveshot.statistics import Calibration, calibrate, class_statistics, summarize
    >>> features = torch.tensor([[0.0, 1.0], [0.0, 3.0], [1.0, 0.0], [3.0, 0.0]])
    >>> base = class_statistics(features, ["owl", "owl", "wren", "wren"])
    >>> kite = calibrate(summarize(torch.tensor([[0.0, 4.0]])), base, Calibration(alpha=0.5))
    >>> kite.mean.round(decimals=3), (kite.factor.T @ kite.factor).diag().round(decimals=3)  # much like an owl
    (tensor([0., 3.]), tensor([0., 2.]))
    """
    mean, weights = calibrate_mean(summary, base, calibration)
    factor = summary.covariance_factor
    if calibration is not None and calibration.beta is not None and len(base):
        factor = calibrated_factor(factor, *base.stacked_factors, weights, beta=calibration.beta)
    return ClassGaussian(mean, factor)


def calibrate_mean(
    summary: ClassSummary, base: ClassStatistics, calibration: Calibration | None
) -> tuple[Tensor, Tensor]:
    """Return the mean of a new class as a head uses it, (d,), and the weights of the base classes, (B,).

    >>> import torch
    >>> from fiveshot.statistics import Calibration, calibrate_mean, class_statistics, summarize
    >>> base = class_statistics(torch.tensor([[0.0, 2.0], [2.0, 0.0]]), ["owl", "wren"])
    >>> mean, weights = calibrate_mean(summarize(torch.tensor([[4.0, 4.0]])), base, Calibration(alpha=0.5))
    >>> mean, weights
    (tensor([2.5000, 2.5000]), tensor([0.5000, 0.5000]))
    """
    if calibration is None or not len(base):
        return summary.mean, summary.mean.new_zeros(len(base))
    unit_mean = normalize(summary.mean, dim=0)
    if calibration.similarity == "cosine" or calibration.prototypes == "unit":
        # Of unit vectors, which are computed once for the base, the dot product is the cosine.
        weights = similarity_weights(unit_mean, base.unit_means, tau=calibration.tau, similarity="dot")
    else:
        weights = similarity_weights(summary.mean, base.means, tau=calibration.tau, similarity="dot")
    if calibration.prototypes == "unit":
        borrowed = normalize(weights @ base.unit_means, dim=0)
        return calibration.alpha * unit_mean + (1 - calibration.alpha) * borrowed, weights
    return calibrated_mean(summary.mean, base.means, weights, alpha=calibration.alpha), weights

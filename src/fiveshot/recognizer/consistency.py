"""Whether stored statistics are those of stored photos."""

from __future__ import annotations

import torch
from torch import Tensor

from fiveshot.statistics import ClassSummary

TOLERANCE = 1e-4  # relative: what rounding in 32 bits may add up to over many merges


def same_statistics(first: ClassSummary, second: ClassSummary) -> bool:
    """Tell whether two summaries describe the same samples, up to rounding.

    Factors of one scatter matrix differ by a rotation, so the matrices are compared, without making them:
    ‖AᵀA − BᵀB‖² = ‖AAᵀ‖² + ‖BBᵀ‖² − 2 ‖ABᵀ‖².

    >>> from fiveshot.statistics import summarize
    >>> X = torch.eye(4)
    >>> same_statistics(summarize(X), summarize(X[:2]).merge(summarize(X[2:])))
    True
    """
    if first.count != second.count or first.mean.shape != second.mean.shape:
        return False
    a, b = first.factor.double(), second.factor.double()
    scale = float(second.mean.double().norm()) + float(b.square().sum().sqrt()) + 1e-12
    if float((first.mean.double() - second.mean.double()).norm()) > TOLERANCE * scale:
        return False
    apart = _squared(a, a) + _squared(b, b) - 2 * _squared(a, b)
    return float(apart.clamp_min(0).sqrt()) <= TOLERANCE * scale**2


def _squared(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b.T).square().sum() if len(a) and len(b) else torch.zeros((), dtype=torch.float64)

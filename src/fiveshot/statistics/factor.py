"""Scatter matrices in factored form: an r × d matrix A stands for the d × d matrix AᵀA.

Five samples in 768 dimensions have a scatter of rank four; its factor has four rows, its dense form 768.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def scatter_factor(samples: Tensor) -> Tensor:
    """Return A, with min(n − 1, d) rows, such that AᵀA = Σᵢ (xᵢ − x̄)(xᵢ − x̄)ᵀ.

    >>> A = scatter_factor(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
    >>> A.shape, round(float((A.T @ A)[0, 0]), 4)
    (torch.Size([1, 2]), 2.0)
    """
    n, d = samples.shape  # (n, d)
    centred = samples - samples.mean(dim=0)
    if n > d:
        return compress(centred)
    # Helmert's contrasts, an orthonormal basis of the space the mean leaves: row k compares sample k + 1 with
    # the mean of the k samples before it, √(k / (k + 1)) · (x_{k+1} − x̄_k). No decomposition is needed.
    k = torch.arange(1, n, dtype=samples.dtype, device=samples.device)[:, None]  # (n − 1, 1)
    earlier = centred.cumsum(dim=0)[:-1] / k
    return (centred[1:] - earlier) * (k / (k + 1)).sqrt()


def canonical(factor: Tensor) -> Tensor:
    """Return the one factor of the same matrix that is triangular with a positive diagonal.

    Factors are unique up to a rotation, and how samples arrived (at once, in parts, in which order) decides the
    rotation. Whatever is drawn through a factor must not depend on that.
    """
    triangle: Tensor = torch.linalg.qr(factor, mode="r").R  # (min(r, d), d)
    signs = torch.where(triangle.diagonal() < 0, -1.0, 1.0).to(factor)
    return signs[:, None] * triangle


def stack(factors: Sequence[Tensor]) -> Tensor:
    """Return the factor of a sum of scatter matrices: their factors, one below the other."""
    return compress(torch.cat(list(factors)))


def compress(factor: Tensor) -> Tensor:
    """Return a factor of the same matrix with no more rows than columns (QR keeps AᵀA = RᵀR)."""
    rows, columns = factor.shape
    if rows <= columns:
        return factor
    # In row order as any other factor: the order decides the last bits of what is computed from it.
    triangle: Tensor = torch.linalg.qr(factor, mode="r").R
    return triangle.contiguous()

"""Ridge regression on many random features: W = (HᵀH + λI)⁻¹ HᵀY by Cholesky, in whichever form is smaller.

With fewer rows than features, W = Hᵀ (HHᵀ + λI)⁻¹ Y is the same matrix from an n × n system (the dual form).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from torch import Tensor

from fiveshot.errors import InputError


class FeatureMap(Protocol):
    """Maps features, (n, d) → (n, M), homogeneously: φ(c x) = c φ(x) for c ≥ 0."""

    def __call__(self, X: Tensor, out: Tensor | None = None) -> Tensor:
        """Map X, into ``out`` where it is given."""


ROWS_AT_ONCE = 1600  # rows mapped at a time: the M × M sum is read and written once for so many
BLOCK = 1024


def add_gram_(gram: Tensor, rows: Tensor) -> None:
    """Add rowsᵀ · rows to the lower triangle of ``gram``, in place; the upper one is left alone."""
    if gram.device.type != "cpu":
        for start in range(0, len(gram), BLOCK):
            stop = min(start + BLOCK, len(gram))
            gram[start:stop, :stop].addmm_(rows[:, start:stop].T, rows[:, :stop])
        return
    # torch has no symmetric update; BLAS has, with half the multiplications. The transposed views are in
    # Fortran's order, so nothing is copied, and their upper triangle is our lower one.
    target = gram.numpy().T
    syrk = blas.ssyrk if gram.dtype == torch.float32 else blas.dsyrk
    syrk(1.0, rows.contiguous().numpy().T, beta=1.0, c=target, overwrite_c=True)


def row_gram(rows: Tensor) -> Tensor:
    """Return rows · rowsᵀ, (n, n), in its lower triangle; what is above the diagonal is undefined."""
    if rows.device.type != "cpu":
        return rows @ rows.T
    syrk = blas.ssyrk if rows.dtype == torch.float32 else blas.dsyrk
    return torch.from_numpy(syrk(1.0, rows.contiguous().numpy().T, trans=1).T)


def solve_ridge(gram: Tensor, targets: Tensor, lam: float) -> Tensor:
    """Return targets · (gram + λI)⁻¹, (C, M), reading the lower triangle of ``gram`` alone.

    On the CPU ``gram`` serves as the workspace, so that no second M × M matrix is needed; afterwards its lower
    triangle is again what it was.
    """
    solver = _solve_in_place if gram.device.type == "cpu" else _solve_copy
    solution = solver(gram, targets, lam)
    if solution is not None:
        return solution
    if gram.dtype == torch.float32:  # λ is below what single precision resolves in this matrix
        return solve_ridge(gram.double(), targets.double(), lam).float()
    raise InputError(f"the ridge system is singular with lambda = {lam:g}; choose a larger one")


def _solve_in_place(gram: Tensor, targets: Tensor, lam: float) -> Tensor | None:
    fortran = gram.numpy().T
    diagonal = gram.diagonal().clone()
    _copy_triangle_(gram, to_upper=True)
    try:
        gram.diagonal().add_(lam)
        factor, failed = _lapack("potrf", gram)(fortran, lower=False, clean=False, overwrite_a=True)
        if failed:
            return None
        solution, _ = _lapack("potrs", gram)(factor, targets.numpy().T, lower=False)
    finally:
        _copy_triangle_(gram, to_upper=False)
        gram.diagonal().copy_(diagonal)
    return torch.from_numpy(np.ascontiguousarray(solution.T))


def _copy_triangle_(matrix: Tensor, *, to_upper: bool) -> None:
    """Copy the lower triangle to the upper one, or back, block by block in place."""
    for start in range(0, len(matrix), BLOCK):
        stop = start + BLOCK
        corner = matrix[start:stop, start:stop]
        lower, upper = matrix[stop:, start:stop], matrix[start:stop, stop:]
        if to_upper:
            corner.copy_(corner.tril() + corner.tril(-1).T)
            upper.copy_(lower.T)
        else:
            corner.copy_(corner.triu() + corner.triu(1).T)
            lower.copy_(upper.T)


def _lapack(name: str, like: Tensor) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(lapack, ("s" if like.dtype == torch.float32 else "d") + name)
    return function


def _solve_copy(gram: Tensor, targets: Tensor, lam: float) -> Tensor | None:
    shifted = gram.clone()
    shifted.diagonal().add_(lam)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    return None if failed else torch.cholesky_solve(targets.T, factor).T.contiguous()


def dual_weights(rows: Tensor, targets: Tensor, lam: float) -> Tensor:
    """Return the ridge solution, (C, M), from mapped rows (n, M) and targets (n, C) with n < M."""
    return solve_ridge(row_gram(rows), targets.T.contiguous(), lam) @ rows


def best_lambda(
    features: Tensor,
    targets: Tensor,
    feature_map: FeatureMap,
    *,
    train: NDArray[np.intp],
    held_out: NDArray[np.intp],
    lambdas: Sequence[float],
) -> float:
    """Return the λ of least squared error on the held-out rows, all from one decomposition.

    Candidates below the resolution of the numbers (machine epsilon times the largest eigenvalue) are passed
    over: they would regularise with rounding errors. With nothing to hold out, the middle candidate is taken.
    """
    if not len(held_out):
        return float(sorted(lambdas)[len(lambdas) // 2])
    values, left, inner = _decomposed(features[train], targets[train], features[held_out], feature_map)
    resolution = float(values.max()) * torch.finfo(values.dtype).eps
    candidates = [lam for lam in lambdas if lam >= resolution] or [max(lambdas)]
    errors = [
        float((targets[held_out] - left @ (inner / (values + lam)[:, None])).square().mean()) for lam in candidates
    ]
    return float(candidates[int(np.argmin(errors))])


def _decomposed(
    features: Tensor, targets: Tensor, held_out: Tensor, feature_map: FeatureMap
) -> tuple[Tensor, Tensor, Tensor]:
    """Return eigenvalues, and the two matrices between which the predictions' 1 / (eigenvalue + λ) stands."""
    width = feature_map(features[:1]).shape[1]
    if len(features) < width:
        rows = feature_map(features)  # (n, M)
        values, vectors = torch.linalg.eigh(row_gram(rows), UPLO="L")
        left, inner = feature_map(held_out) @ rows.T @ vectors, vectors.T @ targets
    else:
        gram = features.new_zeros(width, width)
        sums = features.new_zeros(width, targets.shape[1])
        parts = zip(torch.split(features, ROWS_AT_ONCE), torch.split(targets, ROWS_AT_ONCE), strict=True)
        for part, part_targets in parts:
            rows = feature_map(part)
            add_gram_(gram, rows)
            sums += rows.T @ part_targets
        values, vectors = torch.linalg.eigh(gram, UPLO="L")
        left = torch.cat([feature_map(part) @ vectors for part in torch.split(held_out, ROWS_AT_ONCE)])
        inner = vectors.T @ sums
    return values.clamp_min(0), left, inner

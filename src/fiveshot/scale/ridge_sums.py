"""The sums that a ridge head's base session comes down to: a Gram matrix and one target row for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fiveshot.errors import InputError
from fiveshot.heads.evidence import GramSums, RowBlock, given
from fiveshot.heads.ridge import FeatureMap
from fiveshot.scale.packed import Floats
from fiveshot.statistics import NO_CLASSES
from fiveshot.statistics.labels import Labels, python_labels, refuse_other_kind

Matrix = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class RidgeSums:
    """G = Σ φφᵀ in its lower triangle, and the sum of φ over each class's samples, all of weight one."""

    labels: Labels  # (C,), sorted
    targets: Matrix  # (C, M)
    gram: Matrix  # (M, M)

    def __len__(self) -> int:
        return len(self.labels)

    def folded(self) -> GramSums:
        """Return the sums as a ridge head keeps them; the memory is the head's own."""
        rows = torch.from_numpy(self.targets.copy())
        return GramSums(
            torch.from_numpy(self.gram.copy()), dict(zip(python_labels(self.labels), rows, strict=True))
        )


def ridge_sums(vectors: Floats, labels: Labels, feature_map: FeatureMap, *, width: int) -> RidgeSums:
    """Sum the mapped features of a block of samples, (n, d) and (n,); the map has ``width`` features.

    >>> sums = ridge_sums(np.eye(2), np.array(["owl", "wren"]), lambda X, out: out.copy_(2 * X), width=2)
    >>> sums.targets.tolist(), np.tril(sums.gram).tolist()
    ([[2.0, 0.0], [0.0, 2.0]], [[4.0, 0.0], [0.0, 4.0]])
    """
    rows = torch.from_numpy(vectors.copy())
    sums = GramSums(rows.new_zeros(width, width), {})
    blocks = []
    for label in python_labels(np.unique(labels)):
        own = rows[torch.from_numpy(labels == label)]
        blocks.append(RowBlock(label, None, len(own), 1.0, given(own)))
    sums.add_(blocks, feature_map)
    if not blocks:
        return RidgeSums(NO_CLASSES.labels, np.zeros((0, width), vectors.dtype), sums.gram.numpy())
    targets = torch.stack([sums.targets[block.label] for block in blocks])
    return RidgeSums(np.unique(labels), targets.numpy(), sums.gram.numpy())


def merge_ridge(parts: Sequence[RidgeSums]) -> RidgeSums:
    """Return the sums over all samples together."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    shape = filled[0].gram.shape
    for part in filled[1:]:
        refuse_other_kind(filled[0].labels, part.labels)
        if part.gram.shape != shape:
            raise InputError(f"cannot merge sums of {shape[0]} and of {part.gram.shape[0]} random features")
    labels: Labels = np.unique(np.concatenate([part.labels for part in filled]))
    targets = np.zeros((len(labels), shape[0]), filled[0].targets.dtype)
    gram = filled[0].gram.copy()
    for part in filled:
        targets[np.searchsorted(labels, part.labels)] += part.targets
    for part in filled[1:]:
        gram += part.gram
    return RidgeSums(labels, targets, gram)

"""The regression of a ridge head after a session: solved from row blocks, saved, and taken up again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fiveshot.heads.evidence import Evidence, GramCache, GramSums, RowBlock, mapped_rows
from fiveshot.heads.memory import ClassModels
from fiveshot.heads.ridge import dual_weights, solve_ridge
from fiveshot.heads.sampling import RandomFeatures
from fiveshot.statistics.labels import Label


@dataclass(frozen=True, eq=False)
class RidgeModel:
    """The solution, and what the next session needs to go on from it."""

    feature_map: RandomFeatures
    lam: float
    lambda_rows: dict[Label, int]  # rows of each base class that λ was chosen on
    mass: float  # rows of a base class on average: the mass of every class when it is balanced
    evidence: Evidence
    tokens: ClassModels[object]
    weights: Tensor  # (n_classes, M)
    cache: GramCache


def solve_blocks(
    blocks: list[RowBlock],
    evidence: Evidence,
    feature_map: RandomFeatures,
    lam: float,
    cache: GramCache,
) -> tuple[Tensor, GramCache]:
    """Return the weights of all classes, (n_classes, M), and the sums for the next session to add to.

    With fewer rows than random features the dual form is solved and there are no sums.
    """
    width = feature_map.projection.shape[1]
    if evidence.folded is None and sum(block.count for block in blocks) < width:
        return _dual_solution(blocks, feature_map, lam), GramCache()
    sums = cache.take(blocks, evidence.folded) or evidence.sums(feature_map)
    sums.add_([block for block in blocks if block.label not in sums.tokens], feature_map)
    targets = torch.stack([sums.targets[label] for label in sorted(sums.targets)])
    return solve_ridge(sums.gram, targets, lam), GramCache(sums, start=evidence.folded)


def _dual_solution(blocks: list[RowBlock], feature_map: RandomFeatures, lam: float) -> Tensor:
    rows, parts = mapped_rows(blocks, feature_map, feature_map.projection)
    targets = rows.new_zeros(len(rows), len(blocks))  # (n, C)
    start = 0
    for column, (block, part) in enumerate(zip(blocks, parts, strict=True)):
        targets[start : start + len(part), column] = block.weight**0.5
        start += len(part)
    return dual_weights(rows, targets, lam)


def model_state(model: RidgeModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return what a file must hold of a model; running sums are left out, they can be made again."""
    tensors = {"projection": model.feature_map.projection, "weights": model.weights}
    rows, folded = model.evidence.rows, model.evidence.folded
    if rows:
        tensors["rows"] = torch.cat(list(rows.values()))
    if folded:
        tensors["folded.gram"] = folded.gram
        tensors["folded.targets"] = torch.stack(list(folded.targets.values()))
    return tensors, {
        "lambda": model.lam,
        "mass": model.mass,
        "lambda_rows": list(model.lambda_rows.items()),
        "rows": [(label, len(part)) for label, part in rows.items()],
        "folded": list(folded.targets) if folded else None,
    }


def restored_model(tensors: dict[str, Tensor], meta: dict[str, Any], tokens: ClassModels[object]) -> RidgeModel:
    """Return the model that ``model_state`` described."""
    labels, counts = [label for label, _ in meta["rows"]], [count for _, count in meta["rows"]]
    rows = dict(zip(labels, torch.split(tensors["rows"], counts), strict=True)) if labels else {}
    folded = None
    if meta["folded"] is not None:
        targets = dict(zip(meta["folded"], tensors["folded.targets"], strict=True))
        folded = GramSums(tensors["folded.gram"], targets)
    return RidgeModel(
        feature_map=RandomFeatures(tensors["projection"]),
        lam=meta["lambda"],
        lambda_rows=dict(meta["lambda_rows"]),
        mass=meta["mass"],
        evidence=Evidence(rows, folded),
        tokens=tokens,
        weights=tensors["weights"],
        cache=GramCache(),
    )

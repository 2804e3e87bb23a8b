"""Nearest class mean, and TEEN, which is the same with calibrated means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from fiveshot.errors import unknown_name
from fiveshot.heads.head import FewShotHead, unit_rows
from fiveshot.heads.memory import ClassModels, Memory, derive_models
from fiveshot.statistics import Calibration, ClassSummary, calibrate_mean
from fiveshot.statistics.labels import Label, Labels

Metric = Literal["cosine", "euclidean"]


class NCM(FewShotHead):
    """Nearest class mean: a sample belongs to the class whose mean is nearest.

    >>> head = NCM(metric="euclidean").fit([[0.0, 0.0], [4.0, 4.0]], ["wren", "owl"])
    >>> head.partial_fit([[9.0, 0.0], [9.0, 2.0]], ["kite", "kite"]).predict([[8.0, 1.0]]).tolist()
    ['kite']

    Parameters: ``metric`` is ``"cosine"`` (published code) or ``"euclidean"`` (the paper's text);
    ``calibration`` moves the means of new classes towards similar base classes, which makes it TEEN.
    """

    model_: ClassModels[Tensor]

    def __init__(
        self,
        metric: Metric = "cosine",
        *,
        calibration: Calibration | None = None,
        temperature: float = 1 / 16,
        device: str | torch.device | None = None,
    ) -> None:
        self.metric = metric
        self.calibration = calibration
        self.temperature = temperature
        self.device = device

    def _derive(
        self, memory: Memory, X: Tensor, y: Labels, previous: ClassModels[Tensor] | None
    ) -> ClassModels[Tensor]:
        if self.metric not in get_args(Metric):
            raise unknown_name("metric", self.metric, get_args(Metric))

        def prototype(summary: ClassSummary, is_new: bool) -> Tensor:
            return calibrate_mean(summary, memory.base, self.calibration if is_new else None)[0]

        return derive_models(memory, prototype, previous)

    def _class_tokens(self) -> Mapping[Label, object]:
        return self.model_.models

    def _class_scores(self, X: Tensor, labels: list[Label]) -> Tensor:
        prototypes = torch.stack(self.model_.of(labels))  # (n_classes, d)
        if self.metric == "cosine":
            return unit_rows(X) @ unit_rows(prototypes).T
        return -squared_euclidean(X, prototypes, origin=self.memory_.statistics.means.mean(dim=0))


def squared_euclidean(X: Tensor, points: Tensor, *, origin: Tensor) -> Tensor:
    """Return ‖x − p‖² for all pairs, (n, k), as one matrix product.

    ‖x‖² − 2 x·p + ‖p‖² cancels badly far from zero, so both are moved by ``origin``, a point among them.
    """
    X, points = X - origin, points - origin
    products = X @ points.T
    return ((X**2).sum(dim=1)[:, None] - 2 * products + (points**2).sum(dim=1)).clamp_min(0)

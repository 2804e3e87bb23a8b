"""FeCAM: nearest class by Mahalanobis distance, one covariance per class; calibrated, C-FeCAM."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fiveshot.errors import InputError
from fiveshot.heads.head import FewShotHead, unit_rows
from fiveshot.heads.mahalanobis import Metric, Normalization, make_metric, squared_distances
from fiveshot.heads.memory import ClassModels, Memory, derive_models
from fiveshot.statistics import Calibration, ClassSummary, calibrate
from fiveshot.statistics.labels import Label, Labels


class FeCAM(FewShotHead):
    """Nearest class by Mahalanobis distance with a shrunk, normalised covariance per class.

    >>> head = FeCAM(normalize=False).fit([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [5.0, 6.0]], [0, 0, 1, 1])
    >>> head.predict([[4.0, 4.0]]).tolist()
    [1]

    Parameters: ``gamma`` is added to the variances; ``normalization`` is ``"correlation"`` (the paper),
    ``"rows"`` (the published code's correlation between covariance rows) or ``"none"``; ``normalize`` scales
    features and means to length one before distances are taken (covariances stay those of the raw features);
    ``calibration`` calibrates new classes, which makes it C-FeCAM.
    """

    model_: ClassModels[Metric]

    def __init__(
        self,
        gamma: float = 100.0,
        *,
        normalization: Normalization = "correlation",
        normalize: bool = True,
        calibration: Calibration | None = None,
        temperature: float = 1 / 16,
        device: str | torch.device | None = None,
    ) -> None:
        self.gamma = gamma
        self.normalization = normalization
        self.normalize = normalize
        self.calibration = calibration
        self.temperature = temperature
        self.device = device

    def _derive(
        self, memory: Memory, X: Tensor, y: Labels, previous: ClassModels[Metric] | None
    ) -> ClassModels[Metric]:
        if not 0 <= self.gamma < math.inf:
            raise InputError(f"gamma must be finite and not negative, got {self.gamma}; the paper's is 100")

        def metric(summary: ClassSummary, is_new: bool) -> Metric:
            gaussian = calibrate(summary, memory.base, self.calibration if is_new else None)
            mean = self._embedded(gaussian.mean)
            return make_metric(mean, gaussian.factor, gamma=self.gamma, normalization=self.normalization)

        return derive_models(memory, metric, previous)

    def _class_tokens(self) -> Mapping[Label, object]:
        return self.model_.models

    def _class_scores(self, X: Tensor, labels: list[Label]) -> Tensor:
        origin = self._embedded(self.memory_.statistics.means).mean(dim=0)
        return -squared_distances(self._embedded(X), self.model_.of(labels), origin=origin)

    def _embedded(self, X: Tensor) -> Tensor:
        return unit_rows(X) if self.normalize else X

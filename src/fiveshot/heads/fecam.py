"""FeCAM: nearest class by Mahalanobis distance, one covariance per class; calibrated, C-FeCAM."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from fiveshot.core import Calibration, ClassModels, ClassSummary, Memory, calibrate, derive_models
from fiveshot.core.arrays import Array, mean_row, namespace, unit_rows, values_like
from fiveshot.core.distances import (
    Metric,
    Normalization,
    WithinSpread,
    kept_share,
    make_metric,
    squared_distances,
    unit_noise,
    within_spread,
)
from fiveshot.core.labels import Label, Labels
from fiveshot.errors import InputError, is_number
from fiveshot.heads.head import FewShotHead, check_bias


class FeCAM(FewShotHead):
    """Nearest class by Mahalanobis distance with a shrunk, normalized covariance per class.

    >>> from fiveshot.heads import FeCAM
    >>> head = FeCAM(normalize=False).fit([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [5.0, 6.0]], [0, 0, 1, 1])
    >>> head.predict([[4.0, 4.0]]).tolist()
    [1]

    Parameters: ``gamma`` is added to the variances; ``normalization`` is ``"correlation"`` (the paper),
    ``"rows"`` (the published code's correlation between covariance rows) or ``"none"``; ``normalize`` scales
    features and means to length one before distances are taken (covariances stay those of the raw features);
    ``calibration`` calibrates new classes, which makes it C-FeCAM; ``bias`` is the share that is subtracted of
    what the noise of a mean adds to its squared distances, 0 in the paper.
    """

    model_: ClassModels[Metric]

    def __init__(
        self,
        gamma: float = 100.0,
        *,
        normalization: Normalization = "correlation",
        normalize: bool = True,
        calibration: Calibration | None = None,
        bias: float = 0.0,
        temperature: float = 1 / 16,
        device: Any = None,
    ) -> None:
        self.gamma = gamma
        self.normalization = normalization
        self.normalize = normalize
        self.calibration = calibration
        self.bias = bias
        self.temperature = temperature
        self.device = device

    def _derive(
        self, memory: Memory, X: Array, y: Labels, previous: ClassModels[Metric] | None
    ) -> ClassModels[Metric]:
        if not (is_number(self.gamma) and 0 <= self.gamma < math.inf):
            raise InputError(f"gamma must be finite and not negative, got {self.gamma}; the paper's is 100")

        check_bias(self.bias)
        spread = within_spread(memory.base, memory.statistics.means) if self.bias else None
        if spread is not None and previous is not None and previous.memory.base is not memory.base:
            previous = None  # the base classes' spread is in every inflation

        def metric(summary: ClassSummary, is_new: bool) -> Metric:
            calibration = self.calibration if is_new else None
            gaussian = calibrate(summary, memory.base, calibration)
            mean = self._embedded(gaussian.mean)
            made = make_metric(mean, gaussian.factor, gamma=self.gamma, normalization=self.normalization)
            if spread is None:
                return made
            share = kept_share(calibration, memory.base)
            noise = self._noise(made, summary, spread, gaussian.mean, calibration)
            return dataclasses.replace(made, inflation=self.bias * share**2 * noise / summary.count)

        return derive_models(memory, metric, previous)

    def _noise(
        self,
        metric: Metric,
        summary: ClassSummary,
        spread: WithinSpread,
        mean: Array,
        calibration: Calibration | None,
    ) -> float:
        """Return tr(MΣ) in the metric of the class, for samples that did not make the metric.

        Its own samples lie too well in it. Those of the base classes do not, so the trace is taken of theirs and
        scaled by how much wider or narrower the class is in the plain metric.
        """
        rows = spread.factor
        if calibration is not None and calibration.prototypes == "unit":
            rows = unit_noise(rows, summary.mean)
        if self.normalize:
            rows = unit_noise(rows, mean)
        if not len(rows):
            return 0.0
        outside = float(namespace(rows).sum(squared_distances(rows + metric.mean, [metric], origin=metric.mean)))
        return outside * spread.of_class(summary) / spread.trace if spread.trace else 0.0

    def _class_tokens(self) -> Mapping[Label, object]:
        return self.model_.models

    def _class_scores(self, X: Array, labels: list[Label]) -> Array:
        origin = mean_row(self._embedded(self.memory_.statistics.means))
        metrics = self.model_.of(labels)
        distances = squared_distances(self._embedded(X), metrics, origin=origin)
        return values_like([metric.inflation for metric in metrics], distances) - distances

    def _embedded(self, X: Array) -> Array:
        return unit_rows(X) if self.normalize else X

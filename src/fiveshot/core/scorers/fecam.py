"""FeCAM: nearest class by Mahalanobis distance, one covariance per class; calibrated, C-FeCAM."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, get_args

from fiveshot.core import (
    Calibration,
    ClassModels,
    ClassSummary,
    Memory,
    calibrate_all,
    derive_models,
)
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
from fiveshot.core.memory import stale_classes
from fiveshot.core.ranges import Allowed, Flag, OneOf, Range
from fiveshot.core.scorers.scorer import BIAS, Scorer
from fiveshot.work import one_thread

FEW_FEATURES, FEW_SAMPLES = 512, 256  # matrices up to this size are computed by one thread each


@dataclass(eq=False)
class FeCAMScorer(Scorer):
    """Nearest class by Mahalanobis distance with a shrunk, normalized covariance per class.

    Its parameters are described in :class:`fiveshot.heads.FeCAM`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [5.0, 6.0]])
    >>> FeCAMScorer(normalize=False).learn(rows, [0, 0, 1, 1]).classify(np.array([[4.0, 4.0]])).tolist()
    [1]
    """

    ranges: ClassVar[Mapping[str, Allowed]] = {
        "gamma": Range(0, hint="the paper's is 100"),
        "normalization": OneOf(get_args(Normalization)),
        "normalize": Flag(),
        "bias": BIAS,
    }

    gamma: float = 100.0
    _: KW_ONLY
    normalization: Normalization = "correlation"
    normalize: bool = True
    calibration: Calibration | None = None
    bias: float = 0.0
    temperature: float = 1 / 16
    device: Any = None

    def derive(
        self, memory: Memory, X: Array, y: Labels, previous: ClassModels[Metric] | None
    ) -> ClassModels[Metric]:
        """Return a metric for each class."""
        spread = within_spread(memory.base, memory.statistics.means) if self.bias else None
        if spread is not None and previous is not None and previous.memory.base is not memory.base:
            previous = None  # every noise term depends on the spread of the base classes

        # Classes that are derived together are calibrated together, in the order of use.
        fresh = stale_classes(memory, previous)
        calibrated = calibrate_all([own for _, own, is_new in fresh if is_new], memory.base, self.calibration)
        own_alone = calibrate_all([own for _, own, is_new in fresh if not is_new], memory.base, None)

        def metric(summary: ClassSummary, is_new: bool) -> Metric:
            calibration = self.calibration if is_new else None
            gaussian = next(calibrated if is_new else own_alone)
            shown = replace(gaussian, mean=self.prepared(gaussian.mean))
            made = make_metric(shown, gamma=self.gamma, normalization=self.normalization)
            if spread is None:
                return made
            share = kept_share(calibration, memory.base)
            noise = self._noise(made, summary, spread, gaussian.mean, calibration)
            return replace(made, inflation=self.bias * share**2 * noise / summary.count)

        with _threads_for(memory.statistics.n_features):
            return derive_models(memory, metric, previous)

    def _noise(
        self,
        metric: Metric,
        summary: ClassSummary,
        spread: WithinSpread,
        mean: Array,
        calibration: Calibration | None,
    ) -> float:
        """Return tr(MΣ) in the metric of the class, for samples that were not used for the metric.

        The samples of the class fit its metric too well. So the trace is computed for the samples of the base
        classes and scaled by the ratio of the spreads in the Euclidean metric.
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

    def class_tokens(self) -> Mapping[Label, object]:
        """Return the metrics: the scores of a class depend only on its own."""
        models: Mapping[Label, object] = self.model.models
        return models

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return negative squared distances."""
        X = self.prepared(X)
        origin = mean_row(self.prepared(self.memory.statistics.means))
        metrics = self.model.of(labels)
        with _threads_for(X.shape[1], len(X)):
            distances = squared_distances(X, metrics, origin=origin)
        return values_like([metric.inflation for metric in metrics], distances) - distances

    def prepared(self, X: Array) -> Array:
        """Return the transformed features, for distances."""
        return unit_rows(X) if self.normalize else X


def _threads_for(n_features: int, n_samples: int = 0) -> AbstractContextManager[None]:
    """Use one thread for small matrices; several threads mostly wait for each other on a busy machine."""
    few = n_features <= FEW_FEATURES and n_samples <= FEW_SAMPLES
    return one_thread() if few else nullcontext()

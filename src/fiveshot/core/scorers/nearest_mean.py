"""Nearest class mean; with calibrated means it is TEEN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, get_args

from fiveshot.core import Calibration, ClassModels, ClassSummary, Memory, calibrate_mean, derive_models
from fiveshot.core.arrays import Array, at_least, mean_row, namespace, squared_lengths, unit_rows, values_like
from fiveshot.core.distances import WithinSpread, kept_share, squared_euclidean, unit_noise, within_spread
from fiveshot.core.labels import Label, Labels
from fiveshot.core.ranges import Allowed, OneOf
from fiveshot.core.scorers.scorer import BIAS, Scorer

MetricName = Literal["cosine", "euclidean"]
LEAST_LENGTH = 0.1  # share of the squared length of a prototype that is left after subtracting its noise


@dataclass(frozen=True, eq=False)
class Prototype:
    """The mean of a class for this scorer, and the expected addition of its noise to squared distances."""

    mean: Array  # (d,)
    inflation: float = 0.0


@dataclass(eq=False)
class NCMScorer(Scorer):
    """Nearest class mean: a sample belongs to the class whose mean is nearest.

    Its parameters are described in :class:`fiveshot.heads.NCM`.

    Examples
    --------
    >>> import numpy as np
    >>> birds = NCMScorer("euclidean").learn(np.array([[0.0, 0.0], [4.0, 4.0]]), ["wren", "owl"])
    >>> birds.learn(np.array([[9.0, 0.0], [9.0, 2.0]]), ["kite", "kite"]).classify(np.array([[8.0, 1.0]])).tolist()
    ['kite']
    """

    unused_fields = ("beta",)  # this scorer uses no covariances
    ranges: ClassVar[Mapping[str, Allowed]] = {"metric": OneOf(get_args(MetricName)), "bias": BIAS}

    metric: MetricName = "cosine"
    _: KW_ONLY
    calibration: Calibration | None = None
    bias: float = 0.0
    temperature: float = 1 / 16
    device: Any = None

    def derive(
        self, memory: Memory, X: Array, y: Labels, previous: ClassModels[Prototype] | None
    ) -> ClassModels[Prototype]:
        """Return a prototype for each class."""
        spread = within_spread(memory.base, memory.statistics.means) if self.bias else None
        if spread is not None and previous is not None and previous.memory.base is not memory.base:
            previous = None  # every noise term depends on the spread of the base classes

        def prototype(summary: ClassSummary, is_new: bool) -> Prototype:
            calibration = self.calibration if is_new else None
            mean = calibrate_mean(summary, memory.base, calibration)[0]
            if spread is None:
                return Prototype(mean)
            share = kept_share(calibration, memory.base)
            return Prototype(
                mean, self.bias * share**2 * self._noise(summary, spread, calibration) / summary.count
            )

        return derive_models(memory, prototype, previous)

    @staticmethod
    def _noise(summary: ClassSummary, spread: WithinSpread, calibration: Calibration | None) -> float:
        """Return tr(Σ) of the averaged vectors: samples, or unit vectors for unit prototypes."""
        if calibration is None or calibration.prototypes == "raw":
            return spread.of_class(summary)
        own = ClassSummary(summary.count, summary.mean, unit_noise(summary.factor, summary.mean))
        return WithinSpread(unit_noise(spread.factor, summary.mean)).of_class(own)

    def class_tokens(self) -> Mapping[Label, object]:
        """Return the prototypes: the scores of a class depend only on its own."""
        models: Mapping[Label, object] = self.model.models
        return models

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return cosines or negative squared distances."""
        prototypes = self.model.of(labels)
        xp = namespace(X)
        means = xp.stack([prototype.mean for prototype in prototypes])  # (n_classes, d)
        if self.metric == "cosine" and not self.bias:
            return unit_rows(X) @ unit_rows(means).T
        inflations = values_like([prototype.inflation for prototype in prototypes], means)
        if self.metric == "cosine":
            squared = squared_lengths(means)
            lengths = xp.sqrt(at_least(xp.maximum(squared - inflations, LEAST_LENGTH * squared), 1e-24))
            return unit_rows(X) @ (means / lengths[:, None]).T
        distances = squared_euclidean(X, means, origin=mean_row(self.memory.statistics.means))
        return inflations - distances

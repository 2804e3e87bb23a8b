"""Nearest class mean, and TEEN, which is the same with calibrated means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fiveshot.core import Calibration, ClassModels, ClassSummary, Memory, calibrate_mean, derive_models
from fiveshot.core.arrays import Array, at_least, mean_row, namespace, squared_lengths, unit_rows, values_like
from fiveshot.core.distances import WithinSpread, kept_share, squared_euclidean, unit_noise, within_spread
from fiveshot.core.labels import Label, Labels
from fiveshot.errors import unknown_name
from fiveshot.heads.head import FewShotHead, check_bias

Metric = Literal["cosine", "euclidean"]
LEAST_LENGTH = 0.1  # of the squared length of a prototype, which must stay positive when its noise is taken off


@dataclass(frozen=True, eq=False)
class Prototype:
    """The mean of a class as the head uses it, and what its noise adds to squared distances in expectation."""

    mean: Array  # (d,)
    inflation: float = 0.0


class NCM(FewShotHead):
    """Nearest class mean: a sample belongs to the class whose mean is nearest.

    >>> from fiveshot.heads import NCM
    >>> head = NCM(metric="euclidean").fit([[0.0, 0.0], [4.0, 4.0]], ["wren", "owl"])
    >>> head.partial_fit([[9.0, 0.0], [9.0, 2.0]], ["kite", "kite"]).predict([[8.0, 1.0]]).tolist()
    ['kite']

    Parameters: ``metric`` is ``"cosine"`` (published code) or ``"euclidean"`` (the paper's text);
    ``calibration`` moves the means of new classes towards similar base classes, which makes it TEEN; ``bias`` is
    the share that is subtracted of what the noise of a mean adds to squared distances, and to the squared length
    of a prototype in a cosine: 0 is the paper's, 1 makes classes of few and of many samples alike in expectation.
    """

    unused_fields = ("beta",)  # there are no covariances to scale
    model_: ClassModels[Prototype]

    def __init__(
        self,
        metric: Metric = "cosine",
        *,
        calibration: Calibration | None = None,
        bias: float = 0.0,
        temperature: float = 1 / 16,
        device: Any = None,
    ) -> None:
        self.metric = metric
        self.calibration = calibration
        self.bias = bias
        self.temperature = temperature
        self.device = device

    def _derive(
        self, memory: Memory, X: Array, y: Labels, previous: ClassModels[Prototype] | None
    ) -> ClassModels[Prototype]:
        if self.metric not in get_args(Metric):
            raise unknown_name("metric", self.metric, get_args(Metric))
        check_bias(self.bias)
        spread = within_spread(memory.base, memory.statistics.means) if self.bias else None
        if spread is not None and previous is not None and previous.memory.base is not memory.base:
            previous = None  # the base classes' spread is in every inflation

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
        """Return tr(Σ) of what is averaged: the samples, or unit vectors where prototypes are those."""
        if calibration is None or calibration.prototypes == "raw":
            return spread.of_class(summary)
        own = ClassSummary(summary.count, summary.mean, unit_noise(summary.factor, summary.mean))
        return WithinSpread(unit_noise(spread.factor, summary.mean)).of_class(own)

    def _class_tokens(self) -> Mapping[Label, object]:
        return self.model_.models

    def _class_scores(self, X: Array, labels: list[Label]) -> Array:
        prototypes = self.model_.of(labels)
        xp = namespace(X)
        means = xp.stack([prototype.mean for prototype in prototypes])  # (n_classes, d)
        if self.metric == "cosine" and not self.bias:
            return unit_rows(X) @ unit_rows(means).T
        inflations = values_like([prototype.inflation for prototype in prototypes], means)
        if self.metric == "cosine":
            squared = squared_lengths(means)
            lengths = xp.sqrt(at_least(xp.maximum(squared - inflations, LEAST_LENGTH * squared), 1e-24))
            return unit_rows(X) @ (means / lengths[:, None]).T
        distances = squared_euclidean(X, means, origin=mean_row(self.memory_.statistics.means))
        return inflations - distances

"""Nearest class mean, and TEEN, which is the same with calibrated means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fiveshot.errors import unknown_name
from fiveshot.heads.head import FewShotHead, unit_rows
from fiveshot.heads.mean_noise import WithinSpread, check_bias, kept_share, unit_noise, within_spread
from fiveshot.heads.memory import ClassModels, Memory, derive_models
from fiveshot.statistics import Calibration, ClassSummary, calibrate_mean
from fiveshot.statistics.labels import Label, Labels

Metric = Literal["cosine", "euclidean"]
LEAST_LENGTH = 0.1  # of the squared length of a prototype, which must stay positive when its noise is taken off


@dataclass(frozen=True, eq=False)
class Prototype:
    """The mean of a class as the head uses it, and what its noise adds to squared distances in expectation."""

    mean: Tensor  # (d,)
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
        device: str | torch.device | None = None,
    ) -> None:
        self.metric = metric
        self.calibration = calibration
        self.bias = bias
        self.temperature = temperature
        self.device = device

    def _derive(
        self, memory: Memory, X: Tensor, y: Labels, previous: ClassModels[Prototype] | None
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

    def _class_scores(self, X: Tensor, labels: list[Label]) -> Tensor:
        prototypes = self.model_.of(labels)
        means = torch.stack([prototype.mean for prototype in prototypes])  # (n_classes, d)
        if self.metric == "cosine" and not self.bias:
            return unit_rows(X) @ unit_rows(means).T
        inflations = means.new_tensor([prototype.inflation for prototype in prototypes])
        if self.metric == "cosine":
            squared = means.square().sum(dim=1)
            lengths = torch.maximum(squared - inflations, LEAST_LENGTH * squared).clamp_min(1e-24).sqrt()
            return unit_rows(X) @ (means / lengths[:, None]).T
        distances = squared_euclidean(X, means, origin=self.memory_.statistics.means.mean(dim=0))
        return inflations - distances


def squared_euclidean(X: Tensor, points: Tensor, *, origin: Tensor) -> Tensor:
    """Return ‖x − p‖² for all pairs, (n, k), as one matrix product.

    ‖x‖² − 2 x·p + ‖p‖² cancels badly far from zero, so both are moved by ``origin``, a point among them.
    """
    X, points = X - origin, points - origin
    products = X @ points.T
    return ((X**2).sum(dim=1)[:, None] - 2 * products + (points**2).sum(dim=1)).clamp_min(0)

"""Nearest class mean, and TEEN, which is the same with calibrated means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from fiveshot.core import Calibration, ClassModels, ClassSummary, Memory, calibrate_mean, derive_models
from fiveshot.core.arrays import Array, at_least, mean_row, namespace, squared_lengths, unit_rows, values_like
from fiveshot.core.distances import WithinSpread, kept_share, squared_euclidean, unit_noise, within_spread
from fiveshot.core.labels import Label, Labels
from fiveshot.core.ranges import Allowed, OneOf
from fiveshot.heads.head import BIAS, Candidate, FewShotHead, Recipe, Style, Tried

Metric = Literal["cosine", "euclidean"]
# Half of the expected inflation: all of it raises A_HM further and costs accuracy
# (docs/explanation/default-head.md).
HALF = 0.5
LEAST_LENGTH = 0.1  # of the squared length of a prototype, which must stay positive when its noise is taken off


@dataclass(frozen=True, eq=False)
class Prototype:
    """The mean of a class as the head uses it, and what its noise adds to squared distances in expectation."""

    mean: Array  # (d,)
    inflation: float = 0.0


class NCM(FewShotHead):
    """Nearest class mean: a sample belongs to the class whose mean is nearest.

    Parameters
    ----------
    metric : {"cosine", "euclidean"}
        ``"cosine"`` is the published code's, ``"euclidean"`` the paper's text.
    calibration : Calibration, optional
        Moves the means of new classes towards similar base classes, which makes it TEEN.
    bias : float
        The share that is subtracted of what the noise of a mean adds to squared distances, and to the squared
        length of a prototype in a cosine. 0 is the paper's, 1 makes classes of few and of many samples alike in
        expectation.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        Where arrays are moved to; None computes where they are.

    Examples
    --------
    >>> from fiveshot.heads import NCM
    >>> head = NCM(metric="euclidean").fit([[0.0, 0.0], [4.0, 4.0]], ["wren", "owl"])
    >>> head.partial_fit([[9.0, 0.0], [9.0, 2.0]], ["kite", "kite"]).predict([[8.0, 1.0]]).tolist()
    ['kite']
    """

    unused_fields = ("beta",)  # there are no covariances to scale
    ranges: ClassVar[Mapping[str, Allowed]] = {"metric": OneOf(get_args(Metric)), "bias": BIAS}
    tried: ClassVar[Mapping[str, Tried]] = {
        "alpha": Tried((0.5, 0.75, 0.9, 1.0)),
        "bias": Tried((0.0, 0.25, 0.5, 0.75, 1.0)),
        "tau": Tried(factors=(0.5, 2.0)),
    }
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

    @classmethod
    def recipes(cls) -> tuple[Recipe, ...]:
        """Return NCM and TEEN, and both with half of the penalty for few samples removed."""
        text, unit = Calibration(alpha=0.9, beta=1.0), Calibration(alpha=0.9, beta=1.0, prototypes="unit")
        return (
            Recipe(
                "ncm",
                "nearest class mean",
                paper=lambda: cls("euclidean"),
                published=lambda: cls("cosine"),
                label="NCM",
                style=Style("#6b6b6b", "#a8a8a8", "o", True),
                place=10,
            ),
            Recipe(
                "teen",
                "nearest class mean, new means calibrated by similar base classes",
                paper=lambda: cls("euclidean", calibration=text),
                published=lambda: cls("cosine", calibration=unit),
                label="TEEN",
                style=Style("#009e73", "#2fc99b", "s", False),
                place=20,
            ),
            Recipe(
                "ncm+",
                "nearest class mean, half of the penalty for few samples removed",
                paper=lambda: cls("euclidean", bias=HALF),
                published=lambda: cls("cosine", bias=HALF),
                place=80,
            ),
            Recipe(
                "teen+",
                "TEEN, half of the penalty for few samples removed",
                paper=lambda: cls("euclidean", calibration=text, bias=HALF),
                published=lambda: cls("cosine", calibration=unit, bias=HALF),
                place=90,
            ),
        )

    def candidates(self) -> list[Candidate]:
        """Return shares of the bias and, where means are calibrated, other calibrations with half of it."""
        grid: list[Candidate] = [{"bias": share} for share in (0.25, 0.5, 0.75, 1.0)]
        if self.calibration is not None:
            moved: list[Candidate] = [{"alpha": alpha} for alpha in (0.75, 1.0)]
            moved += [{"tau": self.calibration.tau * factor} for factor in (0.5, 2.0)]
            grid += [{**calibration, "bias": HALF} for calibration in moved]
        return grid

    def derive(
        self, memory: Memory, X: Array, y: Labels, previous: ClassModels[Prototype] | None
    ) -> ClassModels[Prototype]:
        """Return a prototype for each class."""
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

    def class_tokens(self) -> Mapping[Label, object]:
        """Return the prototypes: a class is scored by its own alone."""
        return self.model_.models

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return cosines or negative squared distances."""
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

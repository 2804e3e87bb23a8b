"""FeCAM: nearest class by Mahalanobis distance, one covariance per class; calibrated, C-FeCAM."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, get_args

import numpy as np

from fiveshot.core import (
    Calibration,
    ClassGaussian,
    ClassModels,
    ClassStatistics,
    ClassSummary,
    Memory,
    calibrate_all,
    calibrate_mean,
    derive_models,
)
from fiveshot.core.arrays import Array, as_numpy, mean_row, namespace, positions, unit_rows, values_like
from fiveshot.core.distances import (
    Metric,
    Normalization,
    WithinSpread,
    base_energies,
    borrowed_metric,
    kept_share,
    make_metric,
    squared_distances,
    unit_noise,
    within_spread,
)
from fiveshot.core.episodes import Episode
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.core.memory import stale_classes
from fiveshot.core.ranges import Allowed, Flag, OneOf, Range
from fiveshot.heads.estimator import clone
from fiveshot.heads.head import (
    BIAS,
    ROWS_AT_ONCE,
    Candidate,
    FewShotHead,
    Recipe,
    Style,
    Tried,
    Workload,
)
from fiveshot.work import one_thread

FEW_FEATURES, FEW_SAMPLES = 512, 256  # matrices up to this size are worked on by one thread each


class FeCAM(FewShotHead):
    """Nearest class by Mahalanobis distance with a shrunk, normalized covariance per class.

    Parameters
    ----------
    gamma : float
        Added to the variances.
    normalization : {"correlation", "rows", "none"}
        ``"correlation"`` is the paper's, ``"rows"`` the published code's correlation between covariance rows.
    normalize : bool
        Scale features and means to length one before distances are taken; covariances stay those of the raw
        features.
    calibration : Calibration, optional
        Calibrates new classes, which makes it C-FeCAM.
    bias : float
        The share that is subtracted of what the noise of a mean adds to its squared distances; 0 in the paper.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        Where arrays are moved to; None computes where they are.

    Examples
    --------
    >>> from fiveshot.heads import FeCAM
    >>> head = FeCAM(normalize=False).fit([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [5.0, 6.0]], [0, 0, 1, 1])
    >>> head.predict([[4.0, 4.0]]).tolist()
    [1]
    """

    ranges: ClassVar[Mapping[str, Allowed]] = {
        "gamma": Range(0, hint="the paper's is 100"),
        "normalization": OneOf(get_args(Normalization)),
        "normalize": Flag(),
        "bias": BIAS,
    }
    tried: ClassVar[Mapping[str, Tried]] = {
        "alpha": Tried((0.5, 0.75, 0.9, 1.0)),
        "bias": Tried((0.0, 0.25, 0.5, 0.75, 1.0)),
        "tau": Tried(factors=(0.5, 2.0)),
        "beta": Tried(factors=(0.5, 2.0)),
        "gamma": Tried(factors=(0.1, 10.0)),
    }

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

    @classmethod
    def recipes(cls) -> tuple[Recipe, ...]:
        """Return FeCAM and C-FeCAM, and this with half of the penalty for few samples removed."""
        text, unit = Calibration(alpha=0.9, beta=1.0), Calibration(alpha=0.9, beta=1.0, prototypes="unit")
        return (
            Recipe(
                "fecam",
                "Mahalanobis distance, one covariance per class",
                paper=lambda: cls(),
                published=lambda: cls(normalization="rows"),
                label="FeCAM",
                style=Style("#56b4e9", "#8fd0f5", "^", True),
                place=30,
            ),
            Recipe(
                "c-fecam",
                "FeCAM, means and covariances of new classes calibrated",
                paper=lambda: cls(calibration=text),
                published=lambda: cls(normalization="rows", calibration=unit),
                label="C-FeCAM",
                style=Style("#0072b2", "#3f9fe0", "v", False),
                place=40,
            ),
            Recipe(
                "c-fecam+",
                "C-FeCAM, half of the penalty for few samples removed",
                paper=lambda: cls(calibration=text, bias=0.5),
                published=lambda: cls(normalization="rows", calibration=unit, bias=0.5),
                place=100,
            ),
        )

    def memory_needed(self, work: Workload) -> int:
        """Return the bytes of one covariance per class."""
        return 4 * work.n_features**2 * work.classes

    def operations(self, work: Workload) -> float:
        """Add the projections of every test image, and the factors of calibrated classes."""
        d = work.n_features
        rank = min(d, work.base_rows / work.base_classes)
        new_rank = (
            d / 2 if self.calibration is not None else min(d, work.shots)
        )  # a triangle is solved, not multiplied
        asked = 2.0 * work.test_rows * d * (work.base_classes * rank + work.new_classes * new_rank)
        return super().operations(work) + asked + work.new_classes * new_rank * d * d

    def candidates(self) -> list[Candidate]:
        """Return values of gamma with shares of the bias and, where classes are calibrated, other calibrations."""
        grid: list[Candidate] = [
            {"gamma": self.gamma * factor, **bias}
            for factor in (0.1, 1.0, 10.0)
            for bias in ({}, {"bias": 0.5}, {"bias": 1.0})
        ]
        if self.calibration is not None:
            moved: list[Candidate] = [{"alpha": alpha} for alpha in (0.75, 1.0)]
            if self.calibration.beta is not None:
                moved.append({"beta": self.calibration.beta / 2})
            else:
                moved += [{"tau": self.calibration.tau * factor} for factor in (0.5, 2.0)]
            grid += [{**calibration, "bias": 0.5} for calibration in moved]
        return grid

    def episode_scores(
        self, episode: Episode, X: Array, y: Labels, *, settings: Mapping[str, Any] | None, shared: dict[str, Any]
    ) -> Array:
        """Return the scores of a candidate; the metrics serve all that differ in the bias alone."""
        self.check_parameters()
        key = self.describe_but("bias")
        if key not in shared:
            whole = clone(self).set_params(bias=1.0).adopt(episode.memory)
            inflations = [metric.inflation for metric in whole.model_.of(python_labels(whole.classes_))]
            found = as_numpy(whole.class_scores(X[positions(episode.asked_rows, X)]))
            shared[key] = found, np.array(inflations)
        scores, inflations = shared[key]
        return scores - (1 - self.bias) * inflations

    def derive(
        self, memory: Memory, X: Array, y: Labels, previous: ClassModels[Metric] | None
    ) -> ClassModels[Metric]:
        """Return a metric for each class."""
        spread = within_spread(memory.base, memory.statistics.means) if self.bias else None
        if spread is not None and previous is not None and previous.memory.base is not memory.base:
            previous = None  # the base classes' spread is in every inflation

        # Classes that are derived together are calibrated together, in the order in which they are asked for.
        fresh = stale_classes(memory, previous)
        borrowing = {id(own): self._borrowing(own, memory.base) for _, own, is_new in fresh if is_new}
        summed = [own for _, own, is_new in fresh if is_new and borrowing[id(own)] is None]
        calibrated = calibrate_all(summed, memory.base, self.calibration)
        own_alone = calibrate_all([own for _, own, is_new in fresh if not is_new], memory.base, None)

        def metric(summary: ClassSummary, is_new: bool) -> Metric:
            shared = borrowing.get(id(summary)) if is_new else None
            if shared is not None:
                return shared
            calibration = self.calibration if is_new else None
            gaussian = next(calibrated if is_new else own_alone)
            shown = dataclasses.replace(gaussian, mean=self.prepared(gaussian.mean))
            made = make_metric(shown, gamma=self.gamma, normalization=self.normalization)
            if spread is None:
                return made
            share = kept_share(calibration, memory.base)
            noise = self._noise(made, summary, spread, gaussian.mean, calibration)
            return dataclasses.replace(made, inflation=self.bias * share**2 * noise / summary.count)

        with _threads_for(memory.statistics.n_features):
            return derive_models(memory, metric, previous)

    def _borrowing(self, summary: ClassSummary, base: ClassStatistics) -> Metric | None:
        """Return the metric of a new class without a matrix of its own, where γ is large enough for that."""
        beta = self.calibration.beta if self.calibration is not None and len(base) else None
        # The bias asks for many samples, which are dear then; correlations of rows have no such form.
        if beta is None or self.bias or self.normalization == "rows":
            return None
        mean, weights = calibrate_mean(summary, base, self.calibration)
        own = ClassGaussian(self.prepared(mean), summary.covariance_factor * beta**0.5)
        return borrowed_metric(own, beta * weights, base, gamma=self.gamma, normalization=self.normalization)

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

    def class_tokens(self) -> Mapping[Label, object]:
        """Return the metrics: a class is scored by its own alone."""
        return self.model_.models

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return negative squared distances."""
        return self._scores_with(self.prepared(X), labels, None)

    def scores_of(self, X: Array) -> Callable[[list[Label]], Array]:
        """Return the scores as a function of classes; energies in the base classes are computed once."""
        if len(X) > ROWS_AT_ONCE:
            return super().scores_of(X)
        shown = self.prepared(X)
        known: list[Array] = []

        def scores(labels: list[Label]) -> Array:
            if not known and any(getattr(metric, "borrowed", None) for metric in self.model_.of(labels)):
                known.append(base_energies(shown, self.memory_.base))
            return self._scores_with(shown, labels, known[0] if known else None)

        return scores

    def _scores_with(self, X: Array, labels: list[Label], known: Array | None) -> Array:
        origin = mean_row(self.prepared(self.memory_.statistics.means))
        metrics = self.model_.of(labels)
        with _threads_for(X.shape[1], len(X)):
            distances = squared_distances(X, metrics, origin=origin, energies=known)
        return values_like([metric.inflation for metric in metrics], distances) - distances

    def prepared(self, X: Array) -> Array:
        """Return features as distances are taken of them."""
        return unit_rows(X) if self.normalize else X


def _threads_for(n_features: int, n_samples: int = 0) -> AbstractContextManager[None]:
    """Let one thread work on small matrices: several wait for each other, on a busy machine most of the time."""
    few = n_features <= FEW_FEATURES and n_samples <= FEW_SAMPLES
    return one_thread() if few else nullcontext()

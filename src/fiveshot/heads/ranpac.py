"""RanPAC: ridge regression on random features; with Gaussian samples RanPAC*, with calibrated ones C-RanPAC."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np

from fiveshot.core import Calibration, ClassModels, ClassSummary, Memory, calibrate, derive_models
from fiveshot.core.arrays import (
    TINY,
    Array,
    at_least,
    chunks,
    empty,
    namespace,
    one_hot,
    positions,
    squared_lengths,
    unit_rows,
    values_like,
)
from fiveshot.core.draws import (
    RandomFeatures,
    Sampling,
    derived_seed,
    draw_samples,
    random_features,
    stratified_split,
)
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.core.linalg import product_into
from fiveshot.core.ridge import (
    Evidence,
    GramCache,
    RidgeModel,
    RowBlock,
    best_lambda,
    given,
    model_state,
    restored_model,
    solve_blocks,
)
from fiveshot.errors import InputError, is_number, unknown_name
from fiveshot.heads.head import FewShotHead

Scoring = Literal["cosine", "linear"]
Mass = Literal["samples", "balanced"]
LAMBDAS = tuple(10.0**k for k in range(-1, 9))
SCORED_AT_ONCE = 1024  # samples mapped to random features at a time


class RanPAC(FewShotHead):
    """Ridge regression from random features of the sample to its class.

    >>> from fiveshot.heads import RanPAC
    >>> head = RanPAC(n_projections=64).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], ["a", "a", "b", "b"])
    >>> head.predict([[0.2, 1.0]]).tolist()
    ['a']

    Parameters: ``n_projections`` random features, M in the paper; ``sampling`` replaces the features of new
    classes by Gaussian samples and ``calibration`` calibrates their Gaussians first; ``scoring`` is
    ``"cosine"`` (each class's weights scaled to length one, as published) or ``"linear"`` (the text);
    ``mass="balanced"`` weighs each class the same however many rows it has; ``lambdas`` are tried on 20 % of
    the base session, then the best is kept.
    """

    model_: RidgeModel

    def __init__(
        self,
        n_projections: int = 10_000,
        *,
        calibration: Calibration | None = None,
        sampling: Sampling | None = None,
        scoring: Scoring = "cosine",
        mass: Mass = "samples",
        lambdas: Sequence[float] = LAMBDAS,
        random_state: int = 0,
        temperature: float = 1 / 16,
        device: Any = None,
    ) -> None:
        self.n_projections = n_projections
        self.calibration = calibration
        self.sampling = sampling
        self.scoring = scoring
        self.mass = mass
        self.lambdas = lambdas
        self.random_state = random_state
        self.temperature = temperature
        self.device = device

    @property
    def lambda_(self) -> float:
        """The regularization chosen on the base session."""
        return self.model_.lam

    def _derive(self, memory: Memory, X: Array, y: Labels, previous: RidgeModel | None) -> RidgeModel:
        self._check_parameters()
        if previous is None:
            evidence = self._learned(Evidence(), memory, X, y)
            feature_map = random_features(X.shape[1], self.n_projections, seed=self._seed, like=X)
            lambda_rows = {label: len(rows) for label, rows in evidence.rows.items()}
        else:
            feature_map = previous.feature_map
            gone = set(previous.tokens.models) - set(python_labels(memory.labels))
            evidence = self._learned(previous.evidence.without(gone), memory, X, y)
            lambda_rows = {label: n for label, n in previous.lambda_rows.items() if label not in gone}
        if previous is not None and len(lambda_rows) == len(previous.lambda_rows):
            lam, mass = previous.lam, previous.mass
        else:
            lam, mass = self._select_lambda(evidence, lambda_rows, feature_map)
        tokens = derive_models(memory, lambda _, __: object(), previous.tokens if previous else None)
        if evidence.n_rows >= self.n_projections and not self._is_sampled(is_new=False):
            evidence = evidence.fold(partial(self._weight, mass), feature_map)
        cache = previous.cache if previous else GramCache()
        blocks = self._blocks(memory, evidence, tokens, mass)
        weights, cache = solve_blocks(blocks, evidence, feature_map, lam, cache)
        return RidgeModel(feature_map, lam, lambda_rows, mass, evidence, tokens, weights, cache)

    def adopt(self, memory: Memory, settings: Mapping[str, Any] | None = None) -> Self:
        """Refuse: the ridge solution follows from the samples, not from their statistics."""
        raise InputError(
            "RanPAC cannot be built from class statistics: it needs the samples of the base session; "
            "fit it on them, or choose a head that follows from statistics, such as 'default'"
        )

    def _extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return model_state(self.model_)

    def _restore(self, memory: Memory, tensors: dict[str, Array], extra: dict[str, Any]) -> None:
        tokens = derive_models(memory, lambda _, __: object(), None)
        self._adopt(memory, restored_model(tensors, extra, tokens))

    def _class_scores(self, X: Array, labels: list[Label]) -> Array:
        columns = np.searchsorted(self.classes_, labels)
        weights = self.model_.weights[positions(columns, X)]
        if self.scoring == "cosine":
            weights = unit_rows(weights)
        xp = namespace(X)
        scores = empty((len(X), len(labels)), X)
        buffer = empty((min(len(X), SCORED_AT_ONCE), weights.shape[1]), X)
        for part, result in zip(chunks(X, SCORED_AT_ONCE), chunks(scores, SCORED_AT_ONCE), strict=True):
            mapped = self.model_.feature_map(part, out=buffer[: len(part)])
            product_into(mapped, weights.T, result)
            if self.scoring == "cosine":
                result /= at_least(xp.sqrt(squared_lengths(mapped)), TINY)[:, None]
        return scores

    @property
    def _seed(self) -> int:
        return int(self.random_state)

    def _is_sampled(self, is_new: bool) -> bool:
        return self.sampling is not None and (is_new or self.sampling.classes == "all")

    def _learned(self, evidence: Evidence, memory: Memory, X: Array, y: Labels) -> Evidence:
        for label in python_labels(np.unique(y)):
            if label in memory.base or not self._is_sampled(is_new=True):
                evidence = evidence.add(label, X[positions(np.flatnonzero(y == label), X)])
                self._refuse_rebalancing(evidence, label)
        return evidence

    def _refuse_rebalancing(self, evidence: Evidence, label: Label) -> None:
        if self.mass == "balanced" and evidence.folded and label in evidence.folded.targets:
            raise InputError(
                f"cannot add samples to {label!r}: it is part of a sum in which its weight is fixed "
                "(mass='balanced'); fit a new head with all its samples, or raise n_projections"
            )

    def _select_lambda(
        self, evidence: Evidence, lambda_rows: Mapping[Label, int], feature_map: RandomFeatures
    ) -> tuple[float, float]:
        """Choose λ on the rows of the base session; return it and the mean number of rows per class."""
        rows = [evidence.rows[label][:n] for label, n in lambda_rows.items()]
        counts = [len(part) for part in rows]
        codes = np.repeat(np.arange(len(rows)), counts)
        mass = len(codes) / len(rows)
        features = namespace(rows[0]).concat(rows)
        targets = one_hot(codes, len(rows), features)
        roots = values_like([self._weight(mass, counts[code]) ** 0.5 for code in codes], features)[:, None]
        train, held_out = stratified_split(codes, held_out=0.2, seed=self._seed)
        # The map is homogeneous: weighting a sample before it weights its mapped row.
        lam = best_lambda(
            features * roots, targets * roots, feature_map, train=train, held_out=held_out, lambdas=self.lambdas
        )
        return lam, mass

    def _weight(self, mass: float, count: int) -> float:
        return mass / count if self.mass == "balanced" else 1.0

    def _blocks(
        self, memory: Memory, evidence: Evidence, tokens: ClassModels[object], mass: float
    ) -> list[RowBlock]:
        blocks = []
        for label, summary, is_new in memory:
            token = tokens.models[label]
            if self._is_sampled(is_new):
                count = self.sampling.per_class if self.sampling else 0
                rows = partial(self._samples, label, summary, is_new, memory)
                blocks.append(RowBlock(label, token, count, self._weight(mass, count), rows))
            elif label not in evidence.rows and not (evidence.folded and label in evidence.folded.targets):
                raise InputError(
                    f"the features of {label!r} were not kept, because it was sampled when it was learned; "
                    "sampling cannot be changed between sessions: fit a new head"
                )
            elif label in evidence.rows:
                kept = evidence.rows[label]
                weight = self._weight(mass, len(kept))
                blocks.append(RowBlock(label, token, len(kept), weight, given(kept)))
        return blocks

    def _samples(self, label: Label, summary: ClassSummary, is_new: bool, memory: Memory) -> Array:
        gaussian = calibrate(summary, memory.base, self.calibration if is_new else None)
        count = self.sampling.per_class if self.sampling else 0
        return draw_samples(gaussian, count, seed=derived_seed(self._seed, label))

    def _check_parameters(self) -> None:
        if not (is_number(self.n_projections, whole=True) and self.n_projections >= 1):
            raise InputError(f"n_projections must be at least 1, got {self.n_projections}; the paper uses 10,000")
        candidates = list(self.lambdas) if np.iterable(self.lambdas) else []
        if not candidates or not all(is_number(lam) and 0 < lam < math.inf for lam in candidates):
            raise InputError(f"lambdas must be positive numbers, got {self.lambdas!r}; for example (1.0, 10.0)")
        if not isinstance(self.random_state, int | np.integer):
            raise InputError(f"random_state must be an integer, got {self.random_state!r}; for example 0")
        if self.scoring not in get_args(Scoring):
            raise unknown_name("scoring", self.scoring, get_args(Scoring))
        if self.mass not in get_args(Mass):
            raise unknown_name("mass", self.mass, get_args(Mass))

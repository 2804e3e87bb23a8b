"""RanPAC: ridge regression on random features. With Gaussian samples RanPAC*, with calibrated ones C-RanPAC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from fiveshot.core import (
    Calibration,
    ClassGaussian,
    ClassModels,
    ClassStatistics,
    Memory,
    calibrate,
    calibrate_all,
    derive_models,
)
from fiveshot.core.arrays import (
    TINY,
    Array,
    at_least,
    chunks,
    empty,
    namespace,
    one_hot,
    parts,
    positions,
    product_into,
    squared_lengths,
    unit_rows,
    values_like,
)
from fiveshot.core.calibration import CLASSES_AT_ONCE, Gaussian
from fiveshot.core.draws import (
    RandomFeatures,
    Rows,
    Sampling,
    derived_seed,
    factored_samples,
    gaussian_samples,
    random_features,
    stratified_split,
)
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.core.ranges import Allowed, OneOf, Range
from fiveshot.core.ridge import (
    Evidence,
    GramCache,
    GramSums,
    RidgeModel,
    RowBlock,
    best_lambda,
    given,
    model_state,
    restored_model,
    solve_blocks,
)
from fiveshot.core.scorers.scorer import Scorer
from fiveshot.errors import InputError

Scoring = Literal["cosine", "linear"]
Mass = Literal["samples", "balanced"]
LAMBDAS = tuple(10.0**k for k in range(-1, 9))
SCORED_AT_ONCE = 1024  # samples mapped to random features at a time
KEPT_AT_MOST = 1 << 26  # numbers kept for samples that are scored repeatedly, 256 MB in single precision


@dataclass(frozen=True, eq=False)
class MappedSamples:
    """Random features of samples that are scored repeatedly."""

    mapped: Array  # (n, M)
    lengths: Array  # (n, 1)


@dataclass(eq=False)
class RanPACScorer(Scorer):
    """Ridge regression from random features of the sample to its class.

    Its parameters are described in :class:`fiveshot.heads.RanPAC`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    >>> RanPACScorer(64).learn(rows, ["a", "a", "b", "b"]).classify(np.array([[0.2, 1.0]])).tolist()
    ['a']
    """

    needs_samples = True
    ranges: ClassVar[Mapping[str, Allowed]] = {
        "n_projections": Range(1, whole=True, hint="the paper uses 10,000"),
        "lambdas": Range(0, positive=True, each=True, hint="for example (1.0, 10.0)"),
        "random_state": Range(whole=True, hint="for example 0"),
        "scoring": OneOf(get_args(Scoring)),
        "mass": OneOf(get_args(Mass)),
    }

    n_projections: int = 10_000
    _: KW_ONLY
    calibration: Calibration | None = None
    sampling: Sampling | None = None
    scoring: Scoring = "cosine"
    mass: Mass = "samples"
    lambdas: Sequence[float] = LAMBDAS
    random_state: int = 0
    temperature: float = 1 / 16
    device: Any = None

    @property
    def lam(self) -> float:
        """The regularization chosen on the base session."""
        chosen: float = self.model.lam
        return chosen

    def derive(self, memory: Memory, X: Array, y: Labels, previous: RidgeModel | None) -> RidgeModel:
        """Return the regression on the rows of all classes."""
        if previous is None:
            evidence = self._learned(Evidence(), memory, X, y)
            feature_map = random_features(X.shape[1], self.n_projections, seed=self._seed, like=X)
            lambda_rows = {label: len(rows) for label, rows in evidence.rows.items()}
        else:
            feature_map = previous.feature_map
            gone = set(previous.tokens.models) - set(python_labels(memory.labels))
            evidence = self._learned(previous.evidence.without(gone), memory, X, y)
            lambda_rows = {label: n for label, n in previous.lambda_rows.items() if label not in gone}
        to_fold = evidence.n_rows >= self.n_projections and not self._is_sampled(is_new=False)
        if previous is None and to_fold:
            evidence, lam, mass = self._folded_and_chosen(evidence, feature_map)
        elif previous is not None and len(lambda_rows) == len(previous.lambda_rows):
            lam, mass = previous.lam, previous.mass
        else:
            lam, mass = self._select_lambda(evidence, lambda_rows, feature_map)
        if evidence.rows and to_fold:
            evidence = evidence.fold(partial(self._weight, mass), feature_map)
        tokens = derive_models(memory, lambda _, __: object(), previous.tokens if previous else None)
        cache = previous.cache if previous else GramCache()
        before = previous.tokens.models if previous else {}
        fresh = [label for label, token in tokens.models.items() if before.get(label) is not token]
        gaussians = _Gaussians(self.calibration, memory, fresh)
        blocks = self._blocks(memory, evidence, tokens, mass, gaussians)
        solution = partial(solve_blocks, blocks, evidence, feature_map, lam, cache)
        return RidgeModel(feature_map, lam, lambda_rows, mass, evidence, tokens, cache, solution)

    @classmethod
    def from_sums(
        cls,
        statistics: ClassStatistics,
        sums: GramSums,
        *,
        lam: float,
        lambdas: Sequence[float] = LAMBDAS,
        random_state: int = 0,
    ) -> Self:
        """Return the scorer that would have learned these samples, from their statistics and sums.

        It learns and forgets new classes like any other.

        Parameters
        ----------
        statistics : ClassStatistics
            Statistics of the samples.
        sums : GramSums
            Sums of their random features for this ``random_state``.
        lam : float
            The regularization.
        lambdas, random_state
            Parameters of the scorer.

        Returns
        -------
        RanPACScorer

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.core import class_statistics
        >>> from fiveshot.core.scorers import RanPACScorer
        >>> rows, labels = np.eye(3, dtype=np.float32), ["owl", "owl", "wren"]
        >>> learned = RanPACScorer(2, lambdas=(1.0,)).learn(rows, labels)
        >>> found = RanPACScorer.from_sums(class_statistics(rows, labels), learned.model.evidence.folded, lam=1.0)
        >>> bool(np.allclose(found.scores(rows), learned.scores(rows)))
        True
        """
        scorer = cls(len(sums.gram), lambdas=lambdas, random_state=random_state)
        memory, width = Memory(base=statistics), statistics.n_features
        feature_map = random_features(width, scorer.n_projections, seed=scorer._seed, like=statistics.means)
        evidence = Evidence({}, sums)
        solution = partial(solve_blocks, [], evidence, feature_map, lam, cache := GramCache())
        counts = {label: summary.count for label, summary, _ in memory}
        tokens = derive_models(memory, lambda _, __: object(), None)
        mass = sum(counts.values()) / len(counts)
        scorer.n_features = width
        return scorer.holding(
            memory, RidgeModel(feature_map, lam, counts, mass, evidence, tokens, cache, solution)
        )

    def state_to_save(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the rows or sums, and the chosen λ."""
        return model_state(self.model)

    def restored(self, memory: Memory, arrays: dict[str, Array], values: dict[str, Any]) -> Self:
        """Return the scorer with the saved regression."""
        tokens = derive_models(memory, lambda _, __: object(), None)
        return self.holding(memory, restored_model(arrays, values, tokens))

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return the regression values of all classes."""
        weights = self._class_weights(labels)
        scores = empty((len(X), len(labels)), X)
        buffer = empty((min(len(X), SCORED_AT_ONCE), weights.shape[1]), X)
        for part, result in zip(chunks(X, SCORED_AT_ONCE), chunks(scores, SCORED_AT_ONCE), strict=True):
            mapped = self.model.feature_map(part, out=buffer[: len(part)])
            product_into(mapped, weights.T, result)
            if self.scoring == "cosine":
                result /= _lengths(mapped)
        return scores

    def prepare(self, X: Array) -> Any:
        """Return the random features and their lengths, if the samples are few enough."""
        if len(X) * self.model.weights.shape[1] > KEPT_AT_MOST:
            return X
        mapped = self.model.feature_map(X)
        lengths = namespace(X).concat([_lengths(part) for part in chunks(mapped, SCORED_AT_ONCE)])
        return MappedSamples(mapped, lengths)

    def score_prepared(self, prepared: Any, labels: list[Label]) -> Array:
        """Return the scores of prepared samples."""
        if not isinstance(prepared, MappedSamples):
            return super().score_prepared(prepared, labels)
        found = prepared.mapped @ self._class_weights(labels).T
        return found / prepared.lengths if self.scoring == "cosine" else found

    def _class_weights(self, labels: list[Label]) -> Array:
        weights = self.model.weights[positions(np.searchsorted(self.classes, labels), self.model.weights)]
        return unit_rows(weights) if self.scoring == "cosine" else weights

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
        # The map is homogeneous: weighting a sample weights its mapped row.
        lam = best_lambda(
            features * roots, targets * roots, feature_map, train=train, held_out=held_out, lambdas=self.lambdas
        )
        return lam, mass

    def _folded_and_chosen(self, evidence: Evidence, feature_map: RandomFeatures) -> tuple[Evidence, float, float]:
        """Sum the rows of a large base session and choose λ; also return the mean number of rows."""
        counts = [len(rows) for rows in evidence.rows.values()]
        codes = np.repeat(np.arange(len(counts)), counts)
        held_out = np.zeros(len(codes), dtype=np.bool_)
        held_out[stratified_split(codes, held_out=0.2, seed=self._seed)[1]] = True
        mass = len(codes) / len(counts)
        folded, lam = evidence.fold_choosing(
            partial(self._weight, mass),
            feature_map,
            held_out=dict(zip(evidence.rows, parts(held_out, counts), strict=True)),
            lambdas=self.lambdas,
        )
        return folded, lam, mass

    def _weight(self, mass: float, count: int) -> float:
        return mass / count if self.mass == "balanced" else 1.0

    def _blocks(
        self,
        memory: Memory,
        evidence: Evidence,
        tokens: ClassModels[object],
        mass: float,
        gaussians: _Gaussians,
    ) -> list[RowBlock]:
        blocks = []
        for label, _, is_new in memory:
            token = tokens.models[label]
            if self.sampling is not None and self._is_sampled(is_new):
                count = self.sampling.per_class
                rows = partial(self._samples, label, gaussians)
                gaussian = None if self.sampling.drawn else partial(gaussians.take, label)
                blocks.append(RowBlock(label, token, count, self._weight(mass, count), rows, gaussian))
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

    def _samples(self, label: Label, gaussians: _Gaussians) -> Rows:
        count = self.sampling.per_class if self.sampling else 0
        gaussian = gaussians.take(label)
        few = isinstance(gaussian, ClassGaussian) and 2 * len(gaussian.factor) < len(gaussian.mean)
        return (factored_samples if few else gaussian_samples)(
            gaussian, count, seed=derived_seed(self._seed, label)
        )


def _lengths(mapped: Array) -> Array:
    return at_least(namespace(mapped).sqrt(squared_lengths(mapped)), TINY)[:, None]


class _Gaussians:
    """The distributions to sample classes from, calibrated together in the order of use."""

    def __init__(self, calibration: Calibration | None, memory: Memory, first: list[Label]) -> None:
        self._calibration, self._memory = calibration, memory
        self._waiting = dict.fromkeys([*first, *python_labels(memory.labels)])
        self._ready: dict[Label, Gaussian] = {}

    def take(self, label: Label) -> Gaussian:
        """Return one distribution and drop it."""
        base, new = self._memory.base, self._memory.new
        if label in base:
            return calibrate(base[label], base, None)
        if label not in self._ready:
            self._waiting.pop(label, None)
            group = [label, *islice((other for other in self._waiting if other in new), CLASSES_AT_ONCE - 1)]
            for other in group:
                self._waiting.pop(other, None)
            found = calibrate_all([new[other] for other in group], base, self._calibration)
            self._ready.update(zip(group, found, strict=True))
        return self._ready.pop(label)

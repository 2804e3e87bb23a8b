"""RanPAC: ridge regression on random features; with Gaussian samples RanPAC*, with calibrated ones C-RanPAC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
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
from fiveshot.core.calibration import TOGETHER, Gaussian
from fiveshot.core.draws import (
    RandomFeatures,
    Rows,
    Sampling,
    derived_seed,
    draw_samples,
    factored_samples,
    random_features,
    stratified_split,
)
from fiveshot.core.episodes import Episode
from fiveshot.core.labels import Label, Labels, python_labels
from fiveshot.core.ranges import Allowed, OneOf, Range
from fiveshot.core.ridge import (
    ROWS_AT_ONCE,
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
from fiveshot.errors import InputError
from fiveshot.heads.estimator import clone, values_to_try
from fiveshot.heads.head import Candidate, FewShotHead, Recipe, Style, Tried, Workload

Scoring = Literal["cosine", "linear"]
Mass = Literal["samples", "balanced"]
LAMBDAS = tuple(10.0**k for k in range(-1, 9))
FROM_TEN = LAMBDAS[2:]  # the published code's candidates
MOST_IN_EPISODES = 1000  # random features: what suits a tenth of them suits all
SCORED_AT_ONCE = 1024  # samples mapped to random features at a time
KEPT_AT_MOST = 1 << 26  # random features of samples that are scored again and again, 256 MB in single precision


class RanPAC(FewShotHead):
    """Ridge regression from random features of the sample to its class.

    Parameters
    ----------
    n_projections : int
        Random features, M in the paper.
    calibration : Calibration, optional
        Calibrates the Gaussians of new classes before they are sampled, which makes it C-RanPAC.
    sampling : Sampling, optional
        Replaces the features of new classes by Gaussian samples.
    scoring : {"cosine", "linear"}
        ``"cosine"`` scales each class's weights to length one, as published; ``"linear"`` is the text.
    mass : {"samples", "balanced"}
        ``"balanced"`` weighs each class the same however many rows it has.
    lambdas : sequence of float
        Tried on 20 % of the base session; the best is kept.
    random_state : int
        Seed of all draws.
    temperature : float
        Probabilities are softmax(score / temperature).
    device : str, optional
        Where arrays are moved to; None computes where they are.

    Examples
    --------
    >>> from fiveshot.heads import RanPAC
    >>> head = RanPAC(n_projections=64).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], ["a", "a", "b", "b"])
    >>> head.predict([[0.2, 1.0]]).tolist()
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
    tried: ClassVar[Mapping[str, Tried]] = {
        "alpha": Tried((0.5, 0.75, 0.9, 1.0)),
        "tau": Tried(factors=(0.5, 2.0)),
        "beta": Tried(factors=(0.5, 2.0)),
    }

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

    @classmethod
    def recipes(cls) -> tuple[Recipe, ...]:
        """Return RanPAC, RanPAC* and C-RanPAC.

        All score by cosine: with 800 samples per new class against some thirty features per base class the
        text's linear score loses the old classes.
        """
        text = Calibration(alpha=0.9, beta=0.5)
        dot = Calibration(alpha=0.9, beta=0.5, similarity="dot")
        sampled = Sampling()
        return (
            Recipe(
                "ranpac",
                "ridge regression on random features",
                paper=lambda: cls(),
                published=lambda: cls(lambdas=FROM_TEN),
                label="RanPAC",
                style=Style("#e69f00", "#f2bd4b", "D", True),
                place=50,
            ),
            Recipe(
                "ranpac*",
                "RanPAC on Gaussian samples of the new classes, not calibrated",
                paper=lambda: cls(sampling=sampled),
                published=lambda: cls(sampling=sampled, lambdas=FROM_TEN),
                label="RanPAC*",
                style=Style("#cc79a7", "#e3a3c5", "P", True),
                place=60,
            ),
            Recipe(
                "c-ranpac",
                "RanPAC on Gaussian samples of the calibrated new classes",
                paper=lambda: cls(sampling=sampled, calibration=text),
                published=lambda: cls(sampling=sampled, calibration=dot, lambdas=FROM_TEN),
                label="C-RanPAC",
                style=Style("#d55e00", "#f08a3c", "X", False),
                place=70,
            ),
        )

    def memory_needed(self, work: Workload) -> int:
        """Return the bytes of the sums and of mapped rows."""
        kept = min(work.test_rows * self.n_projections, KEPT_AT_MOST)
        return 6 * self.n_projections**2 + 4 * (2 * ROWS_AT_ONCE * self.n_projections + kept)

    def operations(self, work: Workload) -> float:
        """Add the mapped rows and their sums, the choice of λ by eigenvalues, and a solution for each session."""
        m, d = self.n_projections, work.n_features
        rows = work.base_rows + work.new_classes * (self.sampling.per_class if self.sampling else work.shots)
        summed = rows * m * (2.0 * d + min(rows, m))
        chosen = min(work.base_rows, m) ** 3 * 10.0
        solved = min(rows, m) ** 3 / 3 + 2.0 * work.test_rows * m * (d + work.classes)
        return super().operations(work) + summed + chosen + work.sessions * solved

    def candidates(self) -> list[Candidate]:
        """Return other calibrations, where there is one."""
        names = [] if self.calibration is None else ["alpha", "tau", "beta"]
        return [{name: value} for name in names for value in values_to_try(self, name)]

    def episode_scores(
        self, episode: Episode, X: Array, y: Labels, *, settings: Mapping[str, Any] | None, shared: dict[str, Any]
    ) -> Array:
        """Return the scores of a candidate; one base session serves all that differ in the calibration."""
        fewer = clone(self).set_params(n_projections=min(self.n_projections, MOST_IN_EPISODES))
        key = fewer.describe_but("calibration")
        if key not in shared:
            shared[key] = fewer.fit(X[positions(episode.base_rows, X)], y[episode.base_rows])
        fitted = copy(shared[key])
        fitted.calibration = self.calibration
        fitted.partial_fit(X[positions(episode.new_rows, X)], y[episode.new_rows])
        return fitted.class_scores(X[positions(episode.asked_rows, X)])

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
        """Return a head as if it had been fitted on samples of which only statistics and sums are left.

        It learns new classes and forgets them as any other.

        Parameters
        ----------
        statistics : ClassStatistics
            Those of the samples.
        sums : GramSums
            Those of their random features, which a head with this ``random_state`` draws.
        lam : float
            The regularization.
        lambdas, random_state
            Parameters of the head.

        Returns
        -------
        RanPAC
            The fitted head.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.core import class_statistics
        >>> from fiveshot.heads import RanPAC
        >>> rows, labels = np.eye(3, dtype=np.float32), ["owl", "owl", "wren"]
        >>> fitted = RanPAC(2, lambdas=(1.0,)).fit(rows, labels)
        >>> found = RanPAC.from_sums(class_statistics(rows, labels), fitted.model_.evidence.folded, lam=1.0)
        >>> bool(np.allclose(found.class_scores(rows), fitted.class_scores(rows)))
        True
        """
        head = cls(len(sums.gram), lambdas=lambdas, random_state=random_state)
        memory, width = Memory(base=statistics), statistics.n_features
        feature_map = random_features(width, head.n_projections, seed=head._seed, like=statistics.means)
        evidence = Evidence({}, sums)
        solution = partial(solve_blocks, [], evidence, feature_map, lam, cache := GramCache())
        counts = {label: summary.count for label, summary, _ in memory}
        tokens = derive_models(memory, lambda _, __: object(), None)
        mass = sum(counts.values()) / len(counts)
        head.n_features_in_ = width
        return head.hold(memory, RidgeModel(feature_map, lam, counts, mass, evidence, tokens, cache, solution))

    def extra_state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the rows or sums, and what was chosen."""
        return model_state(self.model_)

    def restore(self, memory: Memory, arrays: dict[str, Array], extra: dict[str, Any]) -> None:
        """Take up the regression that was saved."""
        tokens = derive_models(memory, lambda _, __: object(), None)
        self.hold(memory, restored_model(arrays, extra, tokens))

    def score_classes(self, X: Array, labels: list[Label]) -> Array:
        """Return what the regression says of each class."""
        weights = self._class_weights(labels)
        scores = empty((len(X), len(labels)), X)
        buffer = empty((min(len(X), SCORED_AT_ONCE), weights.shape[1]), X)
        for part, result in zip(chunks(X, SCORED_AT_ONCE), chunks(scores, SCORED_AT_ONCE), strict=True):
            mapped = self.model_.feature_map(part, out=buffer[: len(part)])
            product_into(mapped, weights.T, result)
            if self.scoring == "cosine":
                result /= _lengths(mapped)
        return scores

    def scores_of(self, X: Array) -> Callable[[list[Label]], Array]:
        """Return the scores as a function of classes; the random features of not too many samples are kept."""
        if len(X) * self.model_.weights.shape[1] > KEPT_AT_MOST:
            return super().scores_of(X)
        mapped = self.model_.feature_map(X)
        lengths = namespace(X).concat([_lengths(part) for part in chunks(mapped, SCORED_AT_ONCE)])

        def scores(labels: list[Label]) -> Array:
            found = mapped @ self._class_weights(labels).T
            return found / lengths if self.scoring == "cosine" else found

        return scores

    def _class_weights(self, labels: list[Label]) -> Array:
        weights = self.model_.weights[positions(np.searchsorted(self.classes_, labels), self.model_.weights)]
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
        # The map is homogeneous: weighting a sample before it weights its mapped row.
        lam = best_lambda(
            features * roots, targets * roots, feature_map, train=train, held_out=held_out, lambdas=self.lambdas
        )
        return lam, mass

    def _folded_and_chosen(self, evidence: Evidence, feature_map: RandomFeatures) -> tuple[Evidence, float, float]:
        """Sum the rows of a large base session, and choose λ on the way; return the mean number of rows, too."""
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
        return (factored_samples if few else draw_samples)(gaussian, count, seed=derived_seed(self._seed, label))


def _lengths(mapped: Array) -> Array:
    return at_least(namespace(mapped).sqrt(squared_lengths(mapped)), TINY)[:, None]


class _Gaussians:
    """The distributions that classes are sampled from, calibrated together as they are asked for."""

    def __init__(self, calibration: Calibration | None, memory: Memory, first: list[Label]) -> None:
        self._calibration, self._memory = calibration, memory
        self._waiting = dict.fromkeys([*first, *python_labels(memory.labels)])
        self._ready: dict[Label, Gaussian] = {}

    def take(self, label: Label) -> Gaussian:
        """Return one of them, which is not kept."""
        base, new = self._memory.base, self._memory.new
        if label in base:
            return calibrate(base[label], base, None)
        if label not in self._ready:
            self._waiting.pop(label, None)
            group = [label, *islice((other for other in self._waiting if other in new), TOGETHER - 1)]
            for other in group:
                self._waiting.pop(other, None)
            found = calibrate_all([new[other] for other in group], base, self._calibration)
            self._ready.update(zip(group, found, strict=True))
        return self._ready.pop(label)

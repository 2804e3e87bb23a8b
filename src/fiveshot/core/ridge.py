"""Ridge regression on many random features: W = (HᵀH + λI)⁻¹ HᵀY by Cholesky, in the smaller of two forms.

With fewer rows than features, W = Hᵀ (HHᵀ + λI)⁻¹ Y is the same matrix from an n × n system (the dual form). Few
rows are kept as features, many rows as sums; sampled rows are drawn when they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fiveshot.core._rectified import add_expected_
from fiveshot.core.arrays import (
    Array,
    add_gram_,
    chunks,
    column_gram,
    empty,
    epsilon,
    grouped,
    in_sums,
    lower_norm,
    mask,
    namespace,
    one_hot,
    parts,
    positions,
    row_gram,
    solve_shifted,
    zeros,
)
from fiveshot.core.calibration import Gaussian
from fiveshot.core.draws import FactoredRows, RandomFeatures, Rows
from fiveshot.core.labels import Label
from fiveshot.core.memory import ClassModels
from fiveshot.errors import InputError

ROWS_AT_ONCE = 1600  # rows mapped at a time; the M × M sum is read and written once for each block


class FeatureMap(Protocol):
    """Maps features, (n, d) → (n, M), homogeneously: φ(c x) = c φ(x) for c ≥ 0."""

    def __call__(self, X: Rows, out: Array | None = None) -> Array:
        """Map X, into ``out`` if it is given."""


def solve_ridge(gram: Array, targets: Array, lam: float) -> Array:
    """Return targets · (gram + λI)⁻¹, (C, M), from the lower triangle of ``gram``.

    On the CPU ``gram`` is the workspace, so no second M × M matrix is needed. Afterwards its lower triangle is
    unchanged.
    """
    solution = solve_shifted(gram, targets, lam)
    if solution is not None:
        return solution
    xp = namespace(gram)
    if gram.dtype == xp.float32:  # λ is below the resolution of single precision for this matrix
        double = solve_ridge(xp.astype(gram, xp.float64), xp.astype(targets, xp.float64), lam)
        return xp.astype(double, xp.float32)
    raise InputError(f"the ridge system is singular with lambda = {lam:g}", hint="choose a larger one")


def dual_weights(rows: Array, targets: Array, lam: float) -> Array:
    """Return the ridge solution, (C, M), from mapped rows (n, M) and targets (n, C) with n < M."""
    exact = in_sums(rows)
    return in_precision_of(rows, solve_ridge(row_gram(exact), in_sums(targets).T, lam)) @ rows


def in_precision_of(like: Array, solution: Array) -> Array:
    """Return a result that was computed in double precision in the precision of the features."""
    return namespace(like).astype(solution, like.dtype, copy=False)


def best_lambda(
    features: Array,
    targets: Array,
    feature_map: FeatureMap,
    *,
    train: NDArray[np.intp],
    held_out: NDArray[np.intp],
    lambdas: Sequence[float],
) -> float:
    """Return the λ with the least squared error on the held-out rows.

    Each candidate needs a Cholesky factor of one matrix, a tenth of the time of its eigenvalues. Candidates below
    the resolution of the numbers (machine epsilon times the largest eigenvalue) are skipped, because rounding
    errors would be larger. Without held-out rows, the middle candidate is used.
    """
    if not len(held_out):
        return _middle(lambdas)
    used, asked = positions(train, features), positions(held_out, features)
    system = _system(features[used], in_sums(targets[used]), features[asked], feature_map)
    return _least_error(*system, in_sums(targets[asked]), lambdas)


def best_lambda_of_sums(
    gram: Array,
    sums: Array,
    features: Array,
    targets: Array,
    feature_map: FeatureMap,
    *,
    lambdas: Sequence[float],
) -> float:
    """Return the λ with the least squared error on held-out rows, after removing them from the sums.

    ``gram`` (M, M, lower triangle) and ``sums`` (C, M) are over all rows; ``features`` (n, d) and their
    ``targets`` (n, C) are held out. Candidates are skipped and compared as in :func:`best_lambda`.
    """
    if not len(features):
        return _middle(lambdas)
    rows, wanted = in_sums(feature_map(features)), in_sums(targets)
    return _least_error(gram - column_gram(rows), sums - wanted.T @ rows, rows, wanted, lambdas)


def _middle(lambdas: Sequence[float]) -> float:
    return float(sorted(lambdas)[len(lambdas) // 2])


def _least_error(gram: Array, sums: Array, left: Array, wanted: Array, lambdas: Sequence[float]) -> float:
    """Return the λ with which left · (gram + λI)⁻¹ · sumsᵀ is nearest to ``wanted``."""
    xp = namespace(gram)
    least = lower_norm(gram) * epsilon(gram)  # for a matrix with one large eigenvalue, this is about its norm
    tried = [lam for lam in lambdas if lam >= least]

    def error(lam: float) -> float:
        solution = solve_shifted(gram, sums, lam)
        return math.inf if solution is None else float(xp.mean((wanted - left @ solution.T) ** 2))

    least_error, lam = min(((error(lam), lam) for lam in tried), default=(math.inf, 0.0))
    return float(lam if least_error < math.inf else max(lambdas))


def _system(
    features: Array, targets: Array, held_out: Array, feature_map: FeatureMap
) -> tuple[Array, Array, Array]:
    """Return the Gram matrix, targets (C, k) and held-out rows (n, k) of the smaller form of the regression."""
    width, asked = feature_map(features[:1]).shape[1], in_sums(feature_map(held_out))
    if len(features) < width:
        rows = in_sums(feature_map(features))  # (n, M)
        return row_gram(rows), targets.T, asked @ rows.T
    gram = zeros((width, width), asked)
    sums = zeros((targets.shape[1], width), asked)
    for part, part_targets in zip(chunks(features, ROWS_AT_ONCE), chunks(targets, ROWS_AT_ONCE), strict=True):
        rows = in_sums(feature_map(part))
        add_gram_(gram, rows)
        sums += part_targets.T @ rows
    return gram, sums, asked


@dataclass(frozen=True, eq=False)
class RowBlock:
    """The rows of one class: their number, what they depend on, and a function that returns them."""

    label: Label
    token: object  # the same object means the same rows
    count: int
    weight: float  # of each row in the sums
    rows: Callable[[], Rows]  # () → (count, d)
    gaussian: Callable[[], Gaussian] | None = None  # its moments replace the rows, if it is given


def given(rows: Rows) -> Callable[[], Rows]:
    """Return a function that returns these rows."""
    return lambda: rows


def mapped_rows(
    blocks: Sequence[RowBlock], feature_map: RandomFeatures, out: Array | None = None
) -> tuple[Array, list[Array]]:
    """Return the mapped and weighted rows of some blocks, (n, M), and the part of each.

    They are written into ``out`` if it is large enough.
    """
    counts, like = [block.count for block in blocks], feature_map.projection
    # One piece, so the system gets all of it back at once.
    rows = empty((sum(counts), like.shape[1]), like) if out is None else out[: sum(counts)]
    start = 0
    for is_factored, drawn in groupby(map(_weighted_rows, blocks), lambda rows: isinstance(rows, FactoredRows)):
        # A product for each class with few rows would read the whole projection each time.
        for part in drawn if is_factored else [namespace(like).concat(list(drawn))]:
            feature_map(part, out=rows[start : start + len(part)])
            start += len(part)
    return rows, parts(rows, counts)


def _weighted_rows(block: RowBlock) -> Rows:
    """Return the rows of a block. The map is homogeneous: weighting a sample weights its mapped row."""
    rows = block.rows()
    return rows if block.weight == 1 else rows * block.weight**0.5


@dataclass(frozen=True, eq=False)
class GramSums:
    """G = Σ w φφᵀ (lower triangle) and, per class, c = Σ w φ, with the blocks that they contain."""

    gram: Array  # (M, M)
    targets: dict[Label, Array]  # (M,) each
    tokens: dict[Label, object] = field(default_factory=dict)

    def copy(self) -> GramSums:
        """Return a copy, so that adding to it does not change these sums."""
        gram = namespace(self.gram).asarray(self.gram, copy=True)
        return GramSums(gram, dict(self.targets), dict(self.tokens))

    def stacked(self) -> Array:
        """Return c of all classes in the order of their labels, (C, M)."""
        return namespace(self.gram).stack([self.targets[label] for label in sorted(self.targets)])

    def add_(self, blocks: Sequence[RowBlock], feature_map: RandomFeatures) -> None:
        """Add blocks in place, several at once."""
        for block in blocks:
            if block.gaussian is not None:
                mass = block.count * block.weight
                total = add_expected_(self.gram, block.gaussian(), feature_map.projection, mass)
                self._add_target_(block.label, in_sums(total), block.token)
        self._add_rows_([block for block in blocks if block.gaussian is None], feature_map)

    def _add_rows_(self, blocks: Sequence[RowBlock], feature_map: RandomFeatures) -> None:
        total = sum(block.count for block in blocks)
        like = feature_map.projection
        buffer = empty((min(total, ROWS_AT_ONCE), like.shape[1]), like)
        small = (part for block in blocks for part in _split(block, ROWS_AT_ONCE))
        for group in grouped(small, lambda block: block.count, ROWS_AT_ONCE):
            self.add_mapped_(group, *mapped_rows(group, feature_map, buffer))

    def add_mapped_(self, blocks: Sequence[RowBlock], rows: Array, own: Sequence[Array]) -> None:
        """Add blocks with mapped rows, in place."""
        for block, part in zip(blocks, own, strict=True):
            total = namespace(part).sum(in_sums(part), axis=0) * block.weight**0.5
            self._add_target_(block.label, total, block.token)
        add_gram_(self.gram, in_sums(rows))

    def _add_target_(self, label: Label, total: Array, token: object) -> None:
        known = self.targets.get(label)
        self.targets[label] = total if known is None else known + total
        self.tokens[label] = token


def _split(block: RowBlock, at_most: int) -> Iterator[RowBlock]:
    if block.count <= at_most:
        yield block
        return
    for part in chunks(block.rows(), at_most):
        yield replace(block, count=len(part), rows=given(part))


@dataclass(eq=False)
class GramCache:
    """Running sums shared by the models of all sessions; taken out while they change, so an error leaves none."""

    sums: GramSums | None = None
    start: GramSums | None = None  # the folded sums they were started from

    def take(self, blocks: Iterable[RowBlock], start: GramSums | None) -> GramSums | None:
        """Return the sums and empty the cache, if everything in them is still wanted; else None."""
        sums, self.sums = self.sums, None
        if sums is None or self.start is not start:
            return None
        wanted = {block.label: block.token for block in blocks}
        still = all(wanted.get(label) is token for label, token in sums.tokens.items())
        return sums if still else None


@dataclass(frozen=True, eq=False)
class Evidence:
    """Real features of the classes that are not sampled.

    They are kept while there are fewer than random features: then they take less memory than their Gram matrix,
    and any class can be removed exactly. More are folded into one sum.
    """

    rows: dict[Label, Array] = field(default_factory=dict)  # (n_c, d) each
    folded: GramSums | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows kept."""
        return sum(len(rows) for rows in self.rows.values())

    def add(self, label: Label, rows: Array) -> Evidence:
        """Return the evidence with more rows of a class."""
        known = self.rows.get(label)
        joined = rows if known is None else namespace(rows).concat([known, rows])
        return replace(self, rows={**self.rows, label: joined})

    def without(self, labels: set[Label]) -> Evidence:
        """Return the evidence without these classes; impossible for rows in a sum."""
        summed = labels & set(self.folded.targets if self.folded else ())
        if summed:
            raise InputError(
                f"cannot forget {min(summed, key=str)!r}: its features are part of a sum over more samples than "
                "there are random features",
                hint="fit a new head without it, or raise n_projections",
            )
        return replace(self, rows={label: rows for label, rows in self.rows.items() if label not in labels})

    def fold(self, weight: Callable[[int], float], feature_map: RandomFeatures) -> Evidence:
        """Return the evidence with all rows summed; ``weight`` gives a row's weight for the count of its class."""
        sums = self.sums(feature_map)
        sums.add_(self._blocks(weight), feature_map)
        sums.tokens.clear()  # they stay; later additions have other tokens
        return Evidence({}, sums)

    def fold_choosing(
        self,
        weight: Callable[[int], float],
        feature_map: RandomFeatures,
        *,
        held_out: Mapping[Label, NDArray[np.bool_]],
        lambdas: Sequence[float],
    ) -> tuple[Evidence, float]:
        """Return the result of :meth:`fold`, and the λ with the least squared error on the held-out rows.

        The held-out rows are added last. So λ is chosen from the sums without them, as in :func:`best_lambda`, and
        each row is mapped and summed once.
        """
        sums = self.sums(feature_map)
        sums.add_(self._blocks(weight, {label: ~asked for label, asked in held_out.items()}), feature_map)
        blocks = self._blocks(weight, held_out)
        lam = _middle(lambdas)
        if blocks:
            left, own = mapped_rows(blocks, feature_map)
            labels = sorted(self.rows)
            codes = np.repeat([labels.index(block.label) for block in blocks], list(map(len, own)))
            wanted = one_hot(codes, len(labels), left)
            for block, part in zip(blocks, parts(wanted, map(len, own)), strict=True):
                part *= block.weight**0.5
            lam = _least_error(sums.gram, sums.stacked(), in_sums(left), in_sums(wanted), lambdas)
            sums.add_mapped_(blocks, left, own)
        sums.tokens.clear()
        return Evidence({}, sums), lam

    def _blocks(
        self, weight: Callable[[int], float], wanted: Mapping[Label, NDArray[np.bool_]] | None = None
    ) -> list[RowBlock]:
        """Return the rows of each class, or some of them, with the weights of all its rows."""
        blocks = []
        for label, rows in sorted(self.rows.items()):
            own = rows if wanted is None else rows[mask(wanted[label], rows)]
            if len(own):
                blocks.append(RowBlock(label, None, len(own), weight(len(rows)), given(own)))
        return blocks

    def sums(self, feature_map: RandomFeatures) -> GramSums:
        """Return sums to add to: a copy of the folded ones, or zeros."""
        if self.folded is not None:
            return self.folded.copy()
        width = feature_map.projection.shape[1]
        return GramSums(zeros((width, width), in_sums(feature_map.projection[:1])), {})


@dataclass(frozen=True, eq=False)
class RidgeModel:
    """The regression after a session, and what the next session needs."""

    feature_map: RandomFeatures
    lam: float
    lambda_rows: dict[Label, int]  # rows of each base class that were held out for choosing λ
    mass: float  # mean number of rows of a base class: the mass of every class if balanced
    evidence: Evidence
    tokens: ClassModels[object]
    cache: GramCache
    solution: Callable[[], Array]

    @cached_property
    def weights(self) -> Array:
        """The weights of all classes, (n_classes, M), solved on first use.

        So learning many sessions without a prediction between them solves only once.
        """
        return self.solution()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"weights": self.weights, "solution": None}  # copies share the solution


def solve_blocks(
    blocks: list[RowBlock],
    evidence: Evidence,
    feature_map: RandomFeatures,
    lam: float,
    cache: GramCache,
) -> Array:
    """Return the weights of all classes, (n_classes, M), and leave the sums in the cache for later sessions.

    With fewer rows than random features the dual form is solved and there are no sums.
    """
    width = feature_map.projection.shape[1]
    expected = any(block.gaussian is not None for block in blocks)
    if evidence.folded is None and not expected and sum(block.count for block in blocks) < width:
        return _dual_solution(blocks, feature_map, lam)
    sums = cache.take(blocks, evidence.folded) or evidence.sums(feature_map)
    sums.add_([block for block in blocks if block.label not in sums.tokens], feature_map)
    weights = in_precision_of(feature_map.projection, solve_ridge(sums.gram, sums.stacked(), lam))
    cache.sums, cache.start = sums, evidence.folded
    return weights


def _dual_solution(blocks: list[RowBlock], feature_map: RandomFeatures, lam: float) -> Array:
    rows, own = mapped_rows(blocks, feature_map)
    targets = zeros((len(rows), len(blocks)), rows)  # (n, C)
    start = 0
    for column, (block, part) in enumerate(zip(blocks, own, strict=True)):
        targets[start : start + len(part), column] = block.weight**0.5
        start += len(part)
    return dual_weights(rows, targets, lam)


def model_state(model: RidgeModel) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and values of a model for a file; running sums can be computed again."""
    arrays = {"projection": model.feature_map.projection, "weights": model.weights}
    xp = namespace(model.weights)
    rows, folded = model.evidence.rows, model.evidence.folded
    if rows:
        arrays["rows"] = xp.concat(list(rows.values()))
    if folded:
        arrays["folded.gram"] = folded.gram
        arrays["folded.targets"] = xp.stack(list(folded.targets.values()))
    return arrays, {
        "lambda": model.lam,
        "mass": model.mass,
        "lambda_rows": list(model.lambda_rows.items()),
        "rows": [(label, len(part)) for label, part in rows.items()],
        "folded": list(folded.targets) if folded else None,
    }


def restored_model(arrays: dict[str, Array], meta: dict[str, Any], tokens: ClassModels[object]) -> RidgeModel:
    """Return the model from ``model_state``."""
    labels, counts = [label for label, _ in meta["rows"]], [count for _, count in meta["rows"]]
    rows = dict(zip(labels, parts(arrays["rows"], counts), strict=True)) if labels else {}
    folded = None
    if meta["folded"] is not None:
        targets = dict(zip(meta["folded"], arrays["folded.targets"], strict=True))
        folded = GramSums(arrays["folded.gram"], targets)
    return RidgeModel(
        feature_map=RandomFeatures(arrays["projection"]),
        lam=meta["lambda"],
        lambda_rows=dict(meta["lambda_rows"]),
        mass=meta["mass"],
        evidence=Evidence(rows, folded),
        tokens=tokens,
        cache=GramCache(),
        solution=given(arrays["weights"]),
    )

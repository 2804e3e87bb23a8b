"""Linear discriminant analysis for classes with few samples: class means under two covariances.

Class means vary with a covariance B, and the samples of every class with the same covariance Σ. Whiten by Σ. A
class is then a point μ ~ N(0, B); the mean of its n samples is x̄ ~ N(μ, u I/n), where u ≈ 1 is the variance after
whitening. Along an eigenvector of B with variance b the best estimate of μ given x̄ is K x̄ with

    K = n b / (n b + u),

so five samples keep the directions in which classes differ and drop the rest; with many samples K → 1. This is the
posterior mean of probabilistic LDA. The score of a sample is its product with K x̄, divided by the length of the
estimate without its noise:

    s(x) = x·K x̄ / √(‖K x̄‖² − u tr(K²) / n).

Without the subtracted term the prototype of a class with five samples is too long, and the class loses. The
remaining disadvantage is known, too: on its own samples a class has the expected score m(n) = tr(KB) / √tr(K²B),
which is less than m(∞) = √tr B because K drops some signal. ``gaps`` are the differences, and a head adds a share
of them.

Whether a sample belongs to its best class or to an unknown class is another question: how much of the prototype is
in the sample? With m = K x̄ this is

    φ(x) = x·m / ‖m‖²,

about 1 for samples of the class. Without a base, the factor of B in K is larger here, so that the expected value
hardly depends on the number of samples. With a base, ``Surroundings`` adds the relation of the sample to all
classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fiveshot.core.arrays import (
    TINY,
    Array,
    add_to_diagonal,
    at_least,
    cholesky_,
    eigh,
    in_rows,
    inverse_of_cholesky,
    mask,
    mean_row,
    namespace,
    positions,
    softmax,
    solve_lower_,
    solve_upper_,
    squared_lengths,
    unit_rows,
    values_like,
    zeros,
)
from fiveshot.core.memory import Memory
from fiveshot.core.ranges import Allowed, Flag, Range, check_values
from fiveshot.core.scatter import PooledScatter, shortened
from fiveshot.errors import InputError

LEAST_SHRINKAGE = 0.3
MOST_SPECTRUM_CLASSES = 512  # B is estimated from at most this many, evenly over the labels; limits the time
# A product of few samples with many classes copies all weights first, unless it takes at most this many
# multiplications. So few samples are scored in blocks of classes.
SMALL_PRODUCT, MANY_CLASSES, CLASSES_AT_ONCE = 1_000_000, 1024, (24, 8)
FEW_SAMPLES = 8  # more rows are read column by column
# Weights of familiarity with a base, chosen on training photos, see docs/explanation/default-head.md.
ALONG, BETWEEN = 1.8, 1.8
LEAST_LENGTH = 0.02  # relative to the mean squared length: a class at the center keeps a finite score


@dataclass(frozen=True)
class Prior:
    """How the two covariances are regularized.

    Parameters
    ----------
    shrinkage : float or None
        The share of the unit matrix in Σ; None derives it from the counts.
    strength : float
        The factor of B. It is below one because the largest distances between class means are overestimated.
    smoothing : float
        The share of the unit matrix in B.
    bias : float
        The factor of the subtracted term; 0 leaves it out.
    posterior : bool
        False leaves the means as they are, K = 1.

    Examples
    --------
    >>> Prior(shrinkage=0.3)
    Prior(shrinkage=0.3, strength=0.25, smoothing=0.7, bias=1.0, posterior=True)
    >>> Prior(smoothing=1.5)
    Traceback (most recent call last):
    fiveshot.errors.InputError: smoothing must lie in [0, 1], got 1.5; the default is 0.7
    """

    shrinkage: float | None = None
    strength: float = 0.25
    smoothing: float = 0.7
    bias: float = 1.0
    posterior: bool = True

    def __post_init__(self) -> None:
        check_values(self, PRIOR_RANGES)


PRIOR_RANGES: dict[str, Allowed] = {
    "shrinkage": Range(0, 1, none=True, hint="the default is None"),
    "strength": Range(0, positive=True, hint="the default is 0.25"),
    "smoothing": Range(0, 1, hint="the default is 0.7"),
    "bias": Range(0, hint="0 is the plain length"),
    "posterior": Flag(),
}


@dataclass(frozen=True, eq=False)
class TiedCovariance:
    """Σ = L Lᵀ, and the mean variance per direction after L⁻¹, for samples that were not used for Σ."""

    cholesky: Array  # (d, d), lower: L
    noise: float  # of base classes
    new_noise: float  # of new classes, which an adapted backbone has not been trained on

    def whiten(self, rows: Array) -> Array:
        """Return whitened rows; ``rows`` may be overwritten."""
        return solve_lower_(self.cholesky, rows)

    def back(self, rows: Array) -> Array:
        """Return the weights of features that whitened ones have as weights; they may be overwritten."""
        return solve_upper_(self.cholesky, rows)


@dataclass(frozen=True, eq=False)
class FactoredCovariance:
    """Σ = √D (1 + GᵀG) √D with a diagonal D and few rows G; the d × d matrix is never made.

    The inverse root of 1 + GᵀG is 1 − GᵀCG, where C has the eigenvectors of GGᵀ. Its eigenvalues are
    1 / (q (1 + q)), where q² − 1 are those of GGᵀ.
    """

    scale: Array  # (d,): √D
    rows: Array  # (r, d): G
    kernel: Array  # (r, r): C
    noise: float
    new_noise: float

    def whiten(self, rows: Array) -> Array:
        """Return whitened rows."""
        return self._root(rows / self.scale)

    def back(self, rows: Array) -> Array:
        """Return the weights of features that whitened ones have as weights."""
        return self._root(rows) / self.scale

    def _root(self, rows: Array) -> Array:
        return rows - ((rows @ self.rows.T) @ self.kernel) @ self.rows


Covariance = TiedCovariance | FactoredCovariance


def default_shrinkage(n_features: int, dof: int) -> float:
    """Return the share of the unit matrix in Σ from counts alone: 1 without samples, never less than 0.3.

    >>> round(default_shrinkage(384, 800), 3), default_shrinkage(384, 40_000)
    (0.324, 0.3)
    """
    return max(LEAST_SHRINKAGE, n_features / (n_features + dof))


def tied_covariance(
    base: Array,
    base_dof: int,
    new: Array,
    new_dof: int,
    *,
    spread: float,
    shrinkage: float | None,
    pool_new: bool,
) -> TiedCovariance:
    """Estimate Σ from the scatter within base classes and within new ones, (d, d) each, lower triangles.

    ``spread`` is the variance to assume if no class has two different samples. Without base classes, all classes
    have the same noise.
    """
    pooled = base + new if pool_new or not base_dof else base
    dof = base_dof + new_dof if pool_new or not base_dof else base_dof
    d = len(pooled)
    share = default_shrinkage(d, dof) if shrinkage is None else shrinkage
    xp = namespace(pooled)
    level = float(xp.sum(xp.linalg.diagonal(pooled))) / d / max(dof, 1)
    if level <= 0:
        share, level = 1.0, max(spread, 1e-12)
    covariance = pooled * ((1 - share) / max(dof, 1))
    add_to_diagonal(covariance, share * level)
    cholesky = cholesky_(covariance)
    if cholesky is None:
        raise InputError("the covariance of all classes is singular", hint="give more shrinkage")
    precision = inverse_of_cholesky(cholesky)

    def noise(scatter: Array, count: int) -> float:
        # The samples used for Σ fit it too well. Left out one by one (Sherman and Morrison), their mean squared
        # length is q / (1 − (1 − ρ) q / dof) instead of q = tr(Σ⁻¹ S) / dof.
        if not count or share == 1:
            return 1.0
        inside = trace_of_product(precision, scatter) / count
        return float(inside / max(1 - (1 - share) * inside / dof, 0.1) / d)

    of_base = noise(base, base_dof) if base_dof else noise(new, new_dof)
    return TiedCovariance(cholesky, of_base, noise(new, new_dof) if new_dof else of_base)


def trace_of_product(precision: Array, scatter: Array) -> float:
    """Return tr(A S) of symmetric matrices, reading their lower triangles."""
    xp = namespace(precision)
    product = xp.tril(precision * scatter)
    return float(2 * xp.sum(product) - xp.sum(xp.linalg.diagonal(product)))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """B in whitened space: variances along some directions, and one variance for all others."""

    directions: Array  # (d, r), orthonormal
    variances: Array  # (r,)
    rest: float

    @property
    def trace(self) -> float:
        """Mean squared length of a class mean."""
        d, r = self.directions.shape
        return float(namespace(self.variances).sum(self.variances) + (d - r) * self.rest)


@dataclass(frozen=True, eq=False)
class Shared:
    """What the classes of a space share: Σ, B, and the least squared length of an estimate."""

    covariance: Covariance
    spectrum: Spectrum
    least: float
    prior: Prior


@dataclass(frozen=True, eq=False)
class SpaceModel:
    """Scores in one space, (x − origin)·weights; a perfectly known class scores 1 on its own samples."""

    origin: Array  # (d,)
    weights: Array  # (n_classes, d)
    gaps: Array  # (n_classes,): (m(∞) − m(n)) / m(∞)
    shared: Shared

    def scores(self, X: Array) -> Array:
        """Return scores, (n, n_classes)."""
        X = X - self.origin
        fits = (size for size in CLASSES_AT_ONCE if math.prod(X.shape) * size <= SMALL_PRODUCT)
        size = next(fits, 0) if len(self.weights) > MANY_CLASSES else 0
        if not size:
            return X @ self.weights.T
        whole = len(self.weights) // size * size
        columns = X.T if len(X) <= FEW_SAMPLES else in_rows(X.T)
        blocks = self.weights[:whole].reshape(-1, size, self.weights.shape[1]) @ columns
        found = blocks.reshape(whole, len(X)).T
        return namespace(X).concat([found, X @ self.weights[whole:].T], axis=1)


@dataclass(frozen=True, eq=False)
class SketchedSpace:
    """Scores in a space after adding or removing some classes; the weights of the others are not copied."""

    known: Space
    more: SpaceModel
    columns: Array  # (n_classes,): indices into the scores of the known classes followed by the added ones

    @property
    def origin(self) -> Array:
        """The origin of the space, (d,)."""
        return self.known.origin

    @property
    def shared(self) -> Shared:
        """What the classes share."""
        return self.known.shared

    @property
    def gaps(self) -> Array:
        """The gap of each class, (n_classes,)."""
        return self._both(self.known.gaps, self.more.gaps, axis=0)[self.columns]

    @property
    def weights(self) -> Array:
        """The weights of each class, (n_classes, d): a copy."""
        return self._both(self.known.weights, self.more.weights, axis=0)[self.columns]

    def scores(self, X: Array) -> Array:
        """Return scores, (n, n_classes)."""
        found = self._both(self.known.scores(X), self.more.scores(X), axis=1)
        return namespace(X).take(found, self.columns, axis=1)

    def _both(self, known: Array, more: Array, *, axis: int) -> Array:
        return namespace(known).concat([known, more], axis=axis)


Space = SpaceModel | SketchedSpace


@dataclass(frozen=True, eq=False)
class TiedModel:
    """One model per space, and the sums it was derived from, if any."""

    pooled: PooledScatter | None
    spaces: tuple[Space, ...]
    few: bool = False  # whether there is no base, see ``fiveshot.core.few_shots``


@dataclass(frozen=True, eq=False)
class Surroundings:
    """An addition to φ that needs a base: the relation of a sample to its class and to all others.

    In whitened space, the cosine with the mean of the class counts for it. The share of the sample's squared
    length in the directions in which classes differ counts against it, because a sample of an unknown class
    resembles several known ones. Only the part above the expected share counts, because completely different
    things have a small share.
    """

    covariance: Covariance
    origin: Array  # (d,)
    directions: Array  # (d, r), in whitened space
    share: float  # expected in these directions
    white: Array  # (n_classes, d): whitened means of length one

    def __call__(self, unit: Array, classes: Array) -> Array:
        """Return the addition for samples in the first space, (n, d), with one class each, (n,)."""
        xp = namespace(unit)
        white = unit_rows(self.covariance.whiten(unit - self.origin))
        along = xp.vecdot(white, self.white[classes], axis=-1)
        between = at_least(squared_lengths(white @ self.directions), self.share)
        return ALONG * along - BETWEEN * between


@dataclass(frozen=True, eq=False)
class ClassFit:
    """How well samples fit their predicted classes: φ, plus the cosine or the surroundings."""

    weights: Array  # (n_classes, d)
    levels: Array  # (n_classes,)
    around: Surroundings | None = None

    def __call__(self, unit: Array, classes: Array) -> Array:
        """Return the fit of samples in the first space, (n, d), to one class each, (n,)."""
        own = namespace(unit).vecdot(unit, self.weights[classes], axis=-1) - self.levels[classes]
        return own if self.around is None else own + self.around(unit, classes)


def own_likeness(
    model: Space, means: Array, counts: Array, *, new: Array, strength: float, near: float
) -> ClassFit:
    """Return φ plus ``near`` times the cosine with the class means."""
    shared = model.shared
    white = shared.covariance.whiten(means - model.origin)
    prior = replace(shared.prior, strength=strength)
    guess = _guess(white, _noise(counts, shared.covariance, new), shared.spectrum, prior)
    weights = shared.covariance.back(guess.values / at_least(guess.squared, TINY)[:, None])
    return ClassFit(weights + near * unit_rows(means), weights @ model.origin)


def with_surroundings(own: ClassFit, model: Space, means: Array) -> ClassFit:
    """Return the fit with the addition for a base."""
    covariance, spectrum = model.shared.covariance, model.shared.spectrum
    d, r = spectrum.directions.shape
    whole, noise = spectrum.trace + covariance.noise * d, covariance.noise * r
    around = Surroundings(
        covariance,
        model.origin,
        spectrum.directions,
        (float(namespace(means).sum(spectrum.variances)) + noise) / whole,
        unit_rows(covariance.whiten(means - model.origin)),
    )
    # With more classes, more of the noise is in the directions in which they differ.
    return replace(own, levels=own.levels - BETWEEN * noise / whole, around=around)


@dataclass(frozen=True, eq=False)
class LinearScorer:
    """The matrices of a fitted model; their products give scores, probabilities and familiarity."""

    center: Array  # (d,)
    projection: Array | None  # (d, M)
    weights: tuple[Array, ...]  # (n_classes, d) and, with random features, (n_classes, M)
    shifts: tuple[Array, ...]  # (n_classes,) each
    gaps: Array  # (n_classes,)
    offset: float
    sharpness: float
    rival: float
    own: ClassFit
    shortened: bool

    def __call__(self, X: Array) -> tuple[Array, Array, Array]:
        """Return scores and probabilities, (n, n_classes), and familiarity, (n,)."""
        unit = unit_rows((shortened(X) if self.shortened else X) - self.center)
        plain = unit @ self.weights[0].T - self.shifts[0]
        if self.projection is not None:
            plain = plain + at_least(unit @ self.projection, 0.0) @ self.weights[1].T - self.shifts[1]
        scores = plain + self.offset * self.gaps
        best = namespace(plain).argmax(scores, axis=1)
        familiarity = self.own(unit, best) - self.rival * rival_scores(scores, best)
        return scores, softmax(self.sharpness * scores), familiarity


def rival_scores(scores: Array, best: Array) -> Array:
    """Return the second-best score, (n,), given scores, (n, n_classes); 0 for a single class.

    >>> rival_scores(np.array([[0.2, 0.9, 0.5]]), np.array([1])).tolist()
    [0.5]
    """
    xp, n_classes = namespace(scores), scores.shape[1]
    if n_classes == 1:
        return zeros((len(scores),), scores)
    is_best = positions(np.arange(n_classes), scores)[None] == best[:, None]
    return xp.max(xp.where(is_best, values_like(-np.inf, scores), scores), axis=1)


def tied_model(
    memory: Memory, spaces: Sequence[slice], pooled: PooledScatter, *, prior: Prior, pool_new: bool
) -> TiedModel:
    """Return the scores of all classes in every space, from their means and the scatter within them."""
    statistics = memory.statistics
    means = statistics.means
    counts = values_like([summary.count for summary in statistics.summaries], means)
    anchor = mean_row(memory.base.means if len(memory.base) else means)
    new = np.isin(statistics.labels, memory.new.labels)
    models = []
    for part, base, added in zip(spaces, pooled.base.matrices, pooled.new.matrices, strict=True):
        origin, own = anchor[part], means[:, part]
        covariance = tied_covariance(
            base,
            pooled.base.dof,
            namespace(base).astype(added, base.dtype),
            pooled.new.dof,
            spread=float(namespace(own).mean((own - origin) ** 2)),
            shrinkage=prior.shrinkage,
            pool_new=pool_new,
        )
        models.append(space_model(own, counts, covariance, new=mask(new, means), origin=origin, prior=prior))
    return TiedModel(pooled, tuple(models))


def space_model(
    means: Array, counts: Array, covariance: Covariance, *, new: Array, origin: Array, prior: Prior
) -> SpaceModel:
    """Return the scores of all classes from their means, (C, d), and counts, (C,); ``new`` says which are new."""
    noise = _noise(counts, covariance, new)
    white = covariance.whiten(means - origin)
    spectrum = estimate_spectrum(white, noise, prior=prior)
    guessed = _guess(white, noise, spectrum, prior)
    least = LEAST_LENGTH * float(namespace(means).mean(guessed.squared)) + 1e-30
    return _scored(guessed, Shared(covariance, spectrum, least, prior), origin)


def further_classes(model: Space, means: Array, counts: Array, *, new: Array) -> SpaceModel:
    """Return the scores of other classes in the same space, with everything shared taken from ``model``."""
    shared = model.shared
    noise = _noise(counts, shared.covariance, new)
    white = shared.covariance.whiten(means - model.origin)
    return _scored(_guess(white, noise, shared.spectrum, shared.prior), shared, model.origin)


def sketched_spaces(
    spaces: Sequence[Space], columns: Sequence[slice], known: Memory, wanted: Memory
) -> tuple[SketchedSpace, ...]:
    """Return the spaces for the classes of ``wanted``, with everything shared taken from the known ones.

    Classes with the same statistics in ``known`` keep their scores. ``columns`` are the columns of each space in
    the statistics.
    """
    here, there = known.statistics.summaries, wanted.statistics.summaries
    places = np.minimum(np.searchsorted(known.labels, wanted.labels), len(here) - 1)
    pairs = zip(there, places.tolist(), strict=True)
    is_fresh = np.array([summary is not here[place] for summary, place in pairs], dtype=np.bool_)
    fresh = np.flatnonzero(is_fresh).tolist()
    places[is_fresh] = len(here) + np.arange(len(fresh))
    like = wanted.statistics.like
    rows = positions(places, like)
    means = namespace(like).stack([there[number].mean for number in fresh]) if fresh else like[None][:0]
    counts = values_like([there[number].count for number in fresh], like)
    new = mask([label not in wanted.base for label in wanted.labels[fresh].tolist()], like)
    return tuple(
        SketchedSpace(space, further_classes(space, means[:, part], counts, new=new), rows)
        for space, part in zip(spaces, columns, strict=True)
    )


def estimate_spectrum(white: Array, noise: Array, *, prior: Prior) -> Spectrum:
    """Estimate B from whitened class means: their scatter minus its noise, smoothed and scaled."""
    step = -(-len(white) // MOST_SPECTRUM_CLASSES)
    white, noise = white[::step], noise[::step]
    n_classes, d = white.shape
    xp = namespace(white)
    if n_classes <= d:
        values, vectors = eigh(xp.astype(white @ white.T, xp.float64) / n_classes)
        values = at_least(values, 1e-12 * float(values[-1]) + 1e-30)
        directions = xp.astype(white, xp.float64).T @ (vectors / xp.sqrt(values * n_classes))
    else:
        values, directions = eigh(xp.astype(white.T @ white, xp.float64) / n_classes)
    variances = xp.astype(at_least(values - float(xp.mean(noise)), 0.0), white.dtype)
    sphere = max(float(xp.sum(variances)) / d, 1e-12)
    smoothed = (1 - prior.smoothing) * variances + prior.smoothing * sphere
    return Spectrum(xp.astype(directions, white.dtype), smoothed, prior.smoothing * sphere)


@dataclass(frozen=True, eq=False)
class _Estimate:
    """Posterior means K x̄ of classes in whitened space."""

    values: Array  # (C, d)
    squared: Array  # (C,): their squared lengths
    inflation: Array  # (C,): the part of these that is noise
    expected: Array  # (C,): m(n)


def _noise(counts: Array, covariance: Covariance, new: Array) -> Array:
    """Return the variance of each class's mean per whitened direction, (C,)."""
    noises = (values_like(value, counts) for value in (covariance.new_noise, covariance.noise))
    return namespace(counts).where(new, *noises) / counts


def _guess(white: Array, noise: Array, spectrum: Spectrum, prior: Prior) -> _Estimate:
    keep, rest = kept_signal(spectrum, noise, prior)  # K: (C, r), (C,)
    along = white @ spectrum.directions  # (C, r)
    values = rest[:, None] * white + ((keep - rest[:, None]) * along) @ spectrum.directions.T
    others = white.shape[1] - len(spectrum.variances)
    inflation = (squared_lengths(keep) + others * rest**2) * noise
    return _Estimate(values, squared_lengths(values), inflation, expected_scores(spectrum, keep, rest))


def _scored(guess: _Estimate, shared: Shared, origin: Array) -> SpaceModel:
    xp = namespace(origin)
    length = xp.sqrt(at_least(guess.squared - shared.prior.bias * guess.inflation, shared.least))
    best = max(shared.spectrum.trace, 1e-30) ** 0.5
    unit = guess.values / (length * best)[:, None]
    weights = shared.covariance.back(unit)
    return SpaceModel(origin, weights, 1 - guess.expected / best, shared)


def kept_signal(spectrum: Spectrum, noise: Array, prior: Prior) -> tuple[Array, Array]:
    """Return K of each class along the directions of B, (C, r), and along all others, (C,)."""
    if not prior.posterior:
        xp = namespace(noise)
        return xp.ones_like(noise)[:, None] * xp.ones_like(spectrum.variances), xp.ones_like(noise)
    signal, rest = prior.strength * spectrum.variances, prior.strength * spectrum.rest
    return signal / (signal + noise[:, None]), rest / (rest + noise)


def expected_scores(spectrum: Spectrum, keep: Array, rest: Array) -> Array:
    """Return m(n) of each class: tr(KB) / √tr(K²B)."""
    d, r = spectrum.directions.shape
    signal = keep @ spectrum.variances + (d - r) * spectrum.rest * rest
    squared = keep**2 @ spectrum.variances + (d - r) * spectrum.rest * rest**2
    return signal / namespace(signal).sqrt(at_least(squared, 1e-30))

"""Class means under two covariances: how classes differ (B), and how samples of one class differ (Σ).

Whiten by Σ. A class is a point μ ~ N(0, B); the mean of its n samples is x̄ ~ N(μ, u I/n), where u ≈ 1 is the noise
that whitening leaves. Along an eigenvector of B with variance b the best guess of μ given x̄ is K x̄ with

    K = n b / (n b + u),

so five samples keep what classes differ in and drop the rest; with many samples K → 1. That is the posterior mean
of probabilistic LDA. A sample is scored by its product with K x̄, over the length the guess has without its noise:

    s(x) = x·K x̄ / √(‖K x̄‖² − u tr(K²) / n).

Without the subtracted term a class of five samples has too long a prototype and loses. What remains is known too:
on its own samples a class scores m(n) = tr(KB) / √tr(K²B) in expectation, less than m(∞) = √tr B because K drops
some signal. ``gaps`` are the differences, and a head adds a share of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fiveshot.errors import InputError, is_number
from fiveshot.heads.tied_covariance import TiedCovariance

MOST_SPECTRUM_CLASSES = (
    512  # B is estimated from so many classes, evenly over the labels: bounds the decomposition
)
LEAST_LENGTH = 0.02  # of the mean squared length: a class at the centre keeps a finite score


@dataclass(frozen=True)
class Prior:
    """How the two covariances are regularised.

    ``shrinkage`` is the share of the sphere in Σ; None follows from the counts. ``smoothing`` is the share of the
    sphere in B, ``strength`` its factor: below one because distances between class means, of which the factor
    multiplies all, are overestimated by the largest. ``bias`` multiplies the subtracted term; 0 is the plain
    length. ``posterior=False`` leaves the means as they are, K = 1.

    >>> from fiveshot.heads import Prior, UnbiasedLDA
    >>> UnbiasedLDA(prior=Prior(shrinkage=0.3)).prior
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
        if self.shrinkage is not None and not _lies(self.shrinkage, 0, 1):
            raise InputError(
                f"shrinkage must be None or lie in [0, 1], got {self.shrinkage!r}; the default is None"
            )
        if not _lies(self.strength, 0, math.inf) or self.strength in (0, math.inf):
            raise InputError(f"strength must be positive and finite, got {self.strength!r}; the default is 0.25")
        if not _lies(self.smoothing, 0, 1):
            raise InputError(f"smoothing must lie in [0, 1], got {self.smoothing!r}; the default is 0.7")
        if not _lies(self.bias, 0, math.inf) or self.bias == math.inf:
            raise InputError(f"bias must be finite and not negative, got {self.bias!r}; 0 is the plain length")
        if not isinstance(self.posterior, bool):
            raise InputError(f"posterior must be True or False, got {self.posterior!r}")


@dataclass(frozen=True, eq=False)
class SpaceModel:
    """Scores of one space, (x − origin)·weights; a class known perfectly scores 1 on its own samples."""

    origin: Tensor  # (d,)
    weights: Tensor  # (n_classes, d)
    gaps: Tensor  # (n_classes,): (m(∞) − m(n)) / m(∞)
    shared: Shared

    def scores(self, X: Tensor) -> Tensor:
        """Return scores, (n, n_classes)."""
        return (X - self.origin) @ self.weights.T


@dataclass(frozen=True, eq=False)
class Shared:
    """What the classes of a space share: Σ, B, and the least squared length of a guess."""

    covariance: TiedCovariance
    spectrum: Spectrum
    least: float


@dataclass(frozen=True, eq=False)
class Spectrum:
    """B in whitened space: variances along some directions, and one variance for all others."""

    directions: Tensor  # (d, r), orthonormal
    variances: Tensor  # (r,)
    rest: float

    @property
    def trace(self) -> float:
        """Mean squared length of a class mean."""
        d, r = self.directions.shape
        return float(self.variances.sum()) + (d - r) * self.rest


def _lies(value: object, low: float, high: float) -> bool:
    return is_number(value) and low <= value <= high


def space_model(
    means: Tensor, counts: Tensor, covariance: TiedCovariance, *, new: Tensor, origin: Tensor, prior: Prior
) -> SpaceModel:
    """Return the scores of all classes from their means, (C, d), and counts, (C,); ``new`` says which are new."""
    noise = _noise(counts.to(means), covariance, new)
    white = _whitened(means - origin, covariance)
    spectrum = estimate_spectrum(white, noise, prior=prior)
    guessed = _guess(white, noise, spectrum, prior)
    shared = Shared(covariance, spectrum, LEAST_LENGTH * float(guessed.squared.mean()) + 1e-30)
    return _scored(guessed, shared, origin, prior)


def further_classes(model: SpaceModel, means: Tensor, counts: Tensor, *, new: Tensor, prior: Prior) -> SpaceModel:
    """Return scores of other classes in the same space: what classes share stays as it is in ``model``."""
    shared = model.shared
    noise = _noise(counts.to(means), shared.covariance, new)
    guessed = _guess(_whitened(means - model.origin, shared.covariance), noise, shared.spectrum, prior)
    return _scored(guessed, shared, model.origin, prior)


def estimate_spectrum(white: Tensor, noise: Tensor, *, prior: Prior) -> Spectrum:
    """Estimate B from whitened class means: their scatter less the noise it contains, smoothed and scaled."""
    step = -(-len(white) // MOST_SPECTRUM_CLASSES)
    white, noise = white[::step], noise[::step]
    n_classes, d = white.shape
    if n_classes <= d:
        values, vectors = torch.linalg.eigh((white @ white.T).double() / n_classes)
        values = values.clamp_min(1e-12 * float(values[-1]) + 1e-30)
        directions = white.double().T @ (vectors / (values * n_classes).sqrt())
    else:
        values, directions = torch.linalg.eigh((white.T @ white).double() / n_classes)
    variances = (values - float(noise.mean())).clamp_min(0).to(white)
    sphere = max(float(variances.sum()) / d, 1e-12)
    smoothed = (1 - prior.smoothing) * variances + prior.smoothing * sphere
    return Spectrum(directions.to(white), smoothed, prior.smoothing * sphere)


@dataclass(frozen=True, eq=False)
class _Guess:
    """Posterior means K x̄ of classes in whitened space."""

    values: Tensor  # (C, d)
    squared: Tensor  # (C,): their squared lengths
    inflation: Tensor  # (C,): what noise adds to these
    expected: Tensor  # (C,): m(n)


def _noise(counts: Tensor, covariance: TiedCovariance, new: Tensor) -> Tensor:
    """Return the variance of each class's mean per whitened direction, (C,)."""
    return torch.where(new, covariance.new_noise, covariance.noise).to(counts) / counts


def _whitened(means: Tensor, covariance: TiedCovariance) -> Tensor:
    white: Tensor = torch.linalg.solve_triangular(covariance.cholesky, means.T, upper=False).T
    return white  # (C, d)


def _guess(white: Tensor, noise: Tensor, spectrum: Spectrum, prior: Prior) -> _Guess:
    keep, rest = _kept(spectrum, noise, prior)  # K: (C, r), (C,)
    along = white @ spectrum.directions  # (C, r)
    values = rest[:, None] * white + ((keep - rest[:, None]) * along) @ spectrum.directions.T
    others = white.shape[1] - len(spectrum.variances)
    inflation = (keep.square().sum(dim=1) + others * rest.square()) * noise
    return _Guess(values, values.square().sum(dim=1), inflation, _expected_score(spectrum, keep, rest))


def _scored(guess: _Guess, shared: Shared, origin: Tensor, prior: Prior) -> SpaceModel:
    length = (guess.squared - prior.bias * guess.inflation).clamp_min(shared.least).sqrt()
    best = max(shared.spectrum.trace, 1e-30) ** 0.5
    unit = guess.values / (length * best)[:, None]
    weights = torch.linalg.solve_triangular(shared.covariance.cholesky.T, unit.T, upper=True).T
    return SpaceModel(origin, weights.contiguous(), 1 - guess.expected / best, shared)


def _kept(spectrum: Spectrum, noise: Tensor, prior: Prior) -> tuple[Tensor, Tensor]:
    if not prior.posterior:
        return noise.new_ones(len(noise), len(spectrum.variances)), noise.new_ones(len(noise))
    signal, rest = prior.strength * spectrum.variances, prior.strength * spectrum.rest
    return signal / (signal + noise[:, None]), rest / (rest + noise)  # (C, r), (C,)


def _expected_score(spectrum: Spectrum, keep: Tensor, rest: Tensor) -> Tensor:
    """Return m(n) of each class: tr(KB) / √tr(K²B)."""
    d, r = spectrum.directions.shape
    signal = keep @ spectrum.variances + (d - r) * spectrum.rest * rest
    length = (keep.square() @ spectrum.variances + (d - r) * spectrum.rest * rest.square()).clamp_min(1e-30).sqrt()
    return signal / length

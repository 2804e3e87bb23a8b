"""The covariance within classes where no base session gives it: from a few samples of a few classes.

Without a base, N samples of C classes lie in far more dimensions than there are samples. Three sources say what
samples of one class differ by:

    Σ = S / (N − C) + b M / (N + C) + λ diag(t).

S is the scatter within classes, which classes of one sample lack. M is the scatter of the class means: with one
sample a class it is all there is and holds these differences beside those of classes; the more samples, the
less it counts. The rest is a diagonal that follows the variance of each feature half of the way; λ is a share of
the variance of all samples, the larger the fewer there are. The scores follow as with a base, see
``fiveshot.core.lda``, with less trust in how classes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveshot.core.arrays import (
    TINY,
    Array,
    add_gram_,
    add_to_diagonal,
    at_least,
    cholesky_,
    eigh,
    inverse_of_cholesky,
    mean_row,
    namespace,
    squared_lengths,
    values_like,
)
from fiveshot.core.lda import (
    MOST_SPECTRUM_CLASSES,
    Covariance,
    FactoredCovariance,
    Prior,
    SpaceModel,
    TiedCovariance,
    space_model,
    trace_of_product,
)
from fiveshot.core.memory import Memory
from fiveshot.core.scatter import PooledScatter
from fiveshot.core.statistics import ClassSummary

# Chosen on training photos of CUB-200 and CIFAR-100 alone, see docs/explanation/default-head.md.
MEANS = 0.6  # b
SPHERE = 0.072  # λ of one sample, as a share of the variance; that of N falls as N to the −2/3
TRUST = 0.5  # in B, beside that with a base
WITHIN = 0.5  # the share of the variance that is within classes, as long as no class has two samples

MOST_SHOTS = 10  # samples of a class on average up to which a first session is not a base
DENSE_FROM = 0.5  # rows in all, by features, from which a matrix costs less than its factor


def has_no_base(memory: Memory, n_features: int) -> bool:
    """Tell whether the base session is missing, or so small that it is none.

    >>> import numpy as np
    >>> from fiveshot.core import class_statistics
    >>> few = class_statistics(np.eye(40)[:20], np.repeat(["owl", "wren"], 10))
    >>> has_no_base(Memory(few), 40), has_no_base(Memory(few), 15), has_no_base(Memory(new=few), 15)
    (True, False, True)
    """
    counts = [summary.count for summary in memory.base.summaries]
    return is_small(sum(counts), len(counts), n_features)


def is_small(n_samples: int, n_classes: int, n_features: int) -> bool:
    """Tell whether a first session says too little about the covariance to be a base."""
    return n_samples - n_classes < n_features and n_samples <= MOST_SHOTS * n_classes


def few_enough(summaries: Sequence[ClassSummary], n_features: int) -> bool:
    """Tell whether the covariance is kept as rows: there are few of them."""
    rows = sum(len(summary.factor) for summary in summaries) + min(len(summaries), MOST_SPECTRUM_CLASSES)
    return rows <= DENSE_FROM * n_features


def few_shot_model(memory: Memory, pooled: PooledScatter | None, *, prior: Prior) -> SpaceModel:
    """Return the scores of all classes; ``pooled`` is their scatter, None where their factors are few enough."""
    statistics = memory.statistics
    means, origin = statistics.means, mean_row(statistics.means)
    counts = values_like([summary.count for summary in statistics.summaries], means)
    covariance: Covariance
    if pooled is None:
        factors = [summary.factor for summary in statistics.summaries if len(summary.factor)]
        within = namespace(means).concat(factors) if factors else means[:0]
        covariance = factored_covariance(within, means - origin, counts)
    else:
        covariance = dense_covariance(pooled.base.matrices[0] + pooled.new.matrices[0], means - origin, counts)
    new = counts > 0  # there is one noise for all
    trusted = replace(prior, strength=TRUST * prior.strength)
    return space_model(means, counts, covariance, new=new, origin=origin, prior=trusted)


def factored_covariance(within: Array, means: Array, counts: Array) -> FactoredCovariance:
    """Estimate Σ from factors of the scatter within classes, (r, d), and centered class means, (C, d)."""
    xp = namespace(means)
    dof = _dof(counts)
    scale = xp.sqrt(_diagonal(xp.sum(within**2, axis=0), means, counts))
    rows = xp.concat([within / max(dof, 1) ** 0.5, _mean_rows(means, counts)]) / scale
    values, vectors = eigh(xp.astype(rows @ rows.T, xp.float64))
    root = xp.sqrt(1 + at_least(values, 0.0))
    kernel = xp.astype((vectors / (root * (1 + root))) @ vectors.T, means.dtype)
    covariance = FactoredCovariance(scale, rows, kernel, 1.0, 1.0)
    scattered = float(xp.sum(squared_lengths(covariance.whiten(within)))) if dof else 0.0
    noise = _noise(scattered, covariance, means, counts)
    return replace(covariance, noise=noise, new_noise=noise)


def dense_covariance(within: Array, means: Array, counts: Array) -> TiedCovariance:
    """Estimate the same Σ from the scatter within classes itself, (d, d), in its lower triangle."""
    xp = namespace(means)
    dof = _dof(counts)
    matrix = within / max(dof, 1)
    add_gram_(matrix, _mean_rows(means, counts))
    add_to_diagonal(matrix, _diagonal(xp.linalg.diagonal(within), means, counts))
    cholesky = cholesky_(matrix)
    if cholesky is None:
        raise ArithmeticError("a covariance with a positive diagonal has no Cholesky factor")
    covariance = TiedCovariance(cholesky, 1.0, 1.0)
    scattered = trace_of_product(inverse_of_cholesky(cholesky), within) if dof else 0.0
    noise = _noise(scattered, covariance, means, counts)
    return replace(covariance, noise=noise, new_noise=noise)


def few_shot_offset(n_classes: int) -> float:
    """Return the share of the gap between classes of few and of more samples that is closed.

    Among few classes a class of one sample loses more than the gap says; among many the gap is too much.

    >>> few_shot_offset(3), round(few_shot_offset(100), 3)
    (2.0, 0.575)
    """
    return min(2.0, 0.5 + 7.5 / n_classes)


def _dof(counts: Array) -> int:
    return int(namespace(counts).sum(counts)) - len(counts)


def _mean_rows(means: Array, counts: Array) -> Array:
    """Return the factor of b M / (N + C), of at most 512 classes."""
    step = -(-len(means) // MOST_SPECTRUM_CLASSES)
    weight = step * MEANS / (float(namespace(counts).sum(counts)) + len(counts))
    return means[::step] * weight**0.5


def _diagonal(within: Array, means: Array, counts: Array) -> Array:
    """Return λ t, given the scatter within classes of each feature, (d,)."""
    xp = namespace(means)
    n_samples = float(xp.sum(counts))
    variances = (within + counts @ means**2) / n_samples  # of all samples around the mean of the classes
    level = max(float(xp.mean(variances)), TINY)
    target = (variances + level) / (2 * level)
    share = SPHERE * n_samples ** (-2 / 3) * float(xp.sum(variances / target))
    return max(share, TINY) * target


def _noise(scattered: float, covariance: Covariance, means: Array, counts: Array) -> float:
    """Return the variance that whitening leaves of samples which did not make Σ, per direction.

    ``scattered`` is the sum of the squared lengths of S. Samples that made Σ lie too well in it, see
    ``fiveshot.core.lda.tied_covariance``. Where no class has two samples, it is a share of what the means leave.
    """
    d, dof = means.shape[1], _dof(counts)
    if dof:
        inside = scattered / dof
        return float(inside / max(1 - inside / dof, 0.1) / d)
    n = len(means)
    inside = float(namespace(means).sum(squared_lengths(covariance.whiten(means + 0)))) / n
    return float(max(WITHIN * inside / max(1 - MEANS / 2 * inside / n, 0.1) / d, TINY))

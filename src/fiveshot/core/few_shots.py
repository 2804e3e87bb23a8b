"""The covariance within classes without a base session: from a few samples of a few classes.

Without a base there are far fewer samples than dimensions: N samples of C classes. Σ is estimated from three
sources:

    Σ = S / (N − C) + b M / (N + C) + λ diag(t).

S is the scatter within classes; classes with one sample add nothing to it. M is the scatter of the class means. It
contains differences between classes, but also those within classes, and with one sample a class it is the only
source. It counts less with more samples. The last term is a diagonal halfway between a constant and the variance
of each feature. λ is a share of the variance of all samples; it is larger with fewer samples. The scores are
computed as with a base, see ``fiveshot.core.lda``, but with a smaller B.
"""

from __future__ import annotations

import math
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

# Chosen on training photos alone, see docs/explanation/default-head.md.
MEANS = 0.6  # b
SPHERE = 0.072  # λ for one sample, as a share of the variance; for N samples times N to the power −2/3
TRUST = 0.5  # factor of B, relative to that with a base
WITHIN = 0.5  # assumed share of the variance within classes if no class has two samples
FEW, MANY, LEAST = 100, 1000, 0.8  # numbers of samples, and the share of the sharpness with the first

MOST_SHOTS = 10  # a first session with at most this many samples a class on average is not a base
DENSE_FROM = 0.5  # from this ratio of rows to features on, a dense matrix costs less than its factor


def has_no_base(memory: Memory, n_features: int) -> bool:
    """Tell whether the base session is missing, or too small to count as a base.

    >>> import numpy as np
    >>> from fiveshot.core import class_statistics
    >>> few = class_statistics(np.eye(40)[:20], np.repeat(["owl", "wren"], 10))
    >>> has_no_base(Memory(few), 40), has_no_base(Memory(few), 15), has_no_base(Memory(new=few), 15)
    (True, False, True)
    """
    return is_small(memory.base.n_samples, len(memory.base.summaries), n_features)


def is_small(n_samples: int, n_classes: int, n_features: int) -> bool:
    """Tell whether a first session is too small to estimate the covariance, so it is not a base."""
    return n_samples - n_classes < n_features and n_samples <= MOST_SHOTS * n_classes


def few_enough(summaries: Sequence[ClassSummary], n_features: int) -> bool:
    """Tell whether there are few enough rows to keep the covariance in factored form."""
    rows = sum(len(summary.factor) for summary in summaries) + min(len(summaries), MOST_SPECTRUM_CLASSES)
    return rows <= DENSE_FROM * n_features


def few_shot_model(memory: Memory, pooled: PooledScatter | None, *, prior: Prior) -> SpaceModel:
    """Return the scores of all classes; ``pooled`` is their scatter, or None if their factors are few enough."""
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
    new = counts > 0  # all True: one noise for all classes
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

    With few classes, a class with one sample loses more than the gap; with many classes, less than the gap.

    >>> few_shot_offset(3), round(few_shot_offset(100), 3)
    (2.0, 0.575)
    """
    return min(2.0, 0.5 + 7.5 / n_classes)


def share_of_sharpness(n_samples: float) -> float:
    """Return the share of the sharpness of many samples: 0.8 for 100 samples or fewer, 1 for 1,000 or more.

    With few samples the covariance is rough, and the best score is too high.

    >>> share_of_sharpness(15), round(share_of_sharpness(300), 2), share_of_sharpness(5000)
    (0.8, 0.9, 1.0)
    """
    share = math.log(max(n_samples, FEW) / FEW) / math.log(MANY / FEW)
    return LEAST + (1 - LEAST) * min(share, 1.0)


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
    """Return the variance per direction, after whitening, of samples that were not used for Σ.

    ``scattered`` is the sum of the squared lengths of S. The samples used for Σ fit it too well, see
    ``fiveshot.core.lda.tied_covariance``. If no class has two samples, it is a share of the means' variance.
    """
    d, dof = means.shape[1], _dof(counts)
    if dof:
        inside = scattered / dof
        return float(inside / max(1 - inside / dof, 0.1) / d)
    n = len(means)
    inside = float(namespace(means).sum(squared_lengths(covariance.whiten(means + 0)))) / n
    return float(max(WITHIN * inside / max(1 - MEANS / 2 * inside / n, 0.1) / d, TINY))

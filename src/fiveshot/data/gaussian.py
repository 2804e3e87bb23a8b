"""Seeded synthetic classes as feature vectors, with the structure that calibration relies on.

Classes come in families. Within a family the means are close *and* the covariances are alike, so a class
seen five times can borrow the covariance of base classes with similar means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError

Features = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class GaussianParameters:
    """The true distribution of every class: N(mean, factor factorᵀ + noise² I)."""

    families: Labels  # (n_classes,)
    means: NDArray[np.float64]  # (n_classes, n_features)
    factors: NDArray[np.float64]  # (n_classes, n_features, rank)
    noise: float

    def covariance(self, label: int) -> NDArray[np.float64]:
        """Return the true covariance of one class, (n_features, n_features)."""
        factor = self.factors[label]
        covariance: NDArray[np.float64] = factor @ factor.T + self.noise**2 * np.eye(len(factor))
        return covariance


def gaussian_parameters(
    *,
    n_classes: int,
    n_features: int,
    seed: int,
    n_families: int | None = None,
    separation: float = 4.0,
    rank: int = 8,
    spread: float = 2.5,
    noise: float = 0.5,
    perturbation: float = 0.3,
) -> GaussianParameters:
    """Draw the class distributions.

    Parameters
    ----------
    n_classes, n_features : int
        How many classes, in how many dimensions.
    seed : int
        Decides the distributions.
    n_families : int, optional
        Number of families; one for every ten classes unless given.
    separation : float
        About how far two means of one family are apart; two families are about twice as far.
    rank : int
        Number of directions along which a family varies most.
    spread : float
        Standard deviation along each of these directions.
    noise : float
        Standard deviation along every axis.
    perturbation : float
        How much of a class's directions is its own, from 0 (a family shares one covariance) to 1.

    Returns
    -------
    GaussianParameters
        The distribution of every class.

    Raises
    ------
    InputError
        When a number is out of range.

    Examples
    --------
    >>> parameters = gaussian_parameters(n_classes=20, n_features=16, seed=0)
    >>> parameters.means.shape, parameters.families.max() + 1
    ((20, 16), np.int64(2))
    """
    n_families = max(1, n_classes // 10) if n_families is None else n_families
    rank = min(rank, n_features)
    _check(n_classes, n_features, n_families, perturbation)
    rng = np.random.default_rng([seed, 0])
    # Dealt in turn, so that the first half of the classes already shows every family.
    families = np.arange(n_classes, dtype=np.int64) % n_families
    length = separation / np.sqrt(2 * n_features)
    centers = 2 * length * rng.standard_normal((n_families, n_features))
    means = centers[families] + length * rng.standard_normal((n_classes, n_features))
    shared = rng.standard_normal((n_families, n_features, rank))
    own = rng.standard_normal((n_classes, n_features, rank))
    mixed = np.sqrt(1 - perturbation**2) * shared[families] + perturbation * own
    return GaussianParameters(families, means, spread / np.sqrt(n_features) * mixed, noise)


def gaussian_classes(
    *,
    n_classes: int,
    n_features: int,
    train_per_class: int,
    test_per_class: int,
    seed: int,
    **distribution: Any,
) -> tuple[Features, Labels, Features, Labels]:
    """Draw training and test features with labels 0, 1, ..., class by class in label order.

    The distributions depend on the seed and the shape alone: asking for more images per class keeps them.

    Parameters
    ----------
    n_classes, n_features : int
        How many classes, in how many dimensions.
    train_per_class, test_per_class : int
        How many vectors of each class.
    seed : int
        Decides everything.
    **distribution
        What else :func:`gaussian_parameters` takes.

    Returns
    -------
    train_x, train_y, test_x, test_y : ndarray
        Features in float32 and labels in int64.

    Raises
    ------
    InputError
        When a number is out of range.

    Examples
    --------
    >>> train_x, train_y, test_x, test_y = gaussian_classes(
    ...     n_classes=3, n_features=4, train_per_class=5, test_per_class=2, seed=0)
    >>> train_x.shape, train_x.dtype, test_y.tolist()
    ((15, 4), dtype('float32'), [0, 0, 1, 1, 2, 2])
    """
    if min(train_per_class, test_per_class) < 0:
        raise InputError("train_per_class and test_per_class cannot be negative")
    parameters = gaussian_parameters(n_classes=n_classes, n_features=n_features, seed=seed, **distribution)
    train = sample_classes(parameters, per_class=train_per_class, rng=np.random.default_rng([seed, 1]))
    test = sample_classes(parameters, per_class=test_per_class, rng=np.random.default_rng([seed, 2]))
    return *train, *test


def sample_classes(
    parameters: GaussianParameters, *, per_class: int, rng: np.random.Generator
) -> tuple[Features, Labels]:
    """Draw ``per_class`` features of every class, with their labels."""
    n_classes, n_features, rank = parameters.factors.shape
    features = np.empty((n_classes, per_class, n_features), dtype=np.float32)
    for label in range(n_classes):
        along = rng.standard_normal((per_class, rank)) @ parameters.factors[label].T
        around = parameters.noise * rng.standard_normal((per_class, n_features))
        features[label] = parameters.means[label] + along + around
    labels = np.repeat(np.arange(n_classes, dtype=np.int64), per_class)
    return features.reshape(-1, n_features), labels


def _check(n_classes: int, n_features: int, n_families: int, perturbation: float) -> None:
    if min(n_classes, n_features, n_families) < 1:
        raise InputError(
            f"n_classes={n_classes}, n_features={n_features} and n_families={n_families} must be at least 1"
        )
    if n_families > n_classes:
        raise InputError(f"n_families={n_families} exceeds n_classes={n_classes}", hint="ask for fewer families")
    if not 0 <= perturbation <= 1:
        raise InputError(f"perturbation={perturbation} must be between 0 and 1")

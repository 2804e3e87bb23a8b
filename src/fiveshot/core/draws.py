"""Seeded draws: normal numbers, random features, samples of a class, held-out parts.

The normal numbers equal those of ``torch.randn`` on a CPU in single precision, but are computed with NumPy. So
random features do not depend on the installed libraries.
"""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from fiveshot.core.arrays import (
    Array,
    clip_negative_,
    empty,
    multiply_lower_,
    namespace,
    placed,
    product_into,
    zeros,
)
from fiveshot.core.calibration import Gaussian, SummedGaussian
from fiveshot.core.labels import Label, Labels
from fiveshot.core.ranges import Allowed, Flag, OneOf, Range, check_values

Sampled = Literal["new", "all"]
PAIRED = 16  # uniform numbers become normal ones in such groups; the first eight pair with the last
HELD_BACK = 20  # the most samples of a class; a class with fewer than 80 samples holds back a quarter
LEAST_TO_HOLD_BACK = 4  # fewest samples of a class for holding some back from an adapter
NUMBERS_AT_ONCE = 1 << 15  # they fit the caches near a core


@dataclass(frozen=True)
class Sampling:
    """Replace the features of new classes (or of all classes) by Gaussian samples.

    Parameters
    ----------
    per_class : int
        Number of samples of each class.
    classes : {"new", "all"}
        Which classes are replaced by samples.
    drawn : bool
        False draws no samples; their expectation is computed in closed form instead.

    Examples
    --------
    >>> from fiveshot.core.scorers import RanPACScorer
    >>> two = RanPACScorer(64, sampling=Sampling(per_class=20))
    >>> two = two.learn([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], ["owl", "owl", "wren", "wren"])
    >>> two.learn([[-1.0, -1.1], [-1.1, -1.0]], ["kite", "kite"]).classify([[-0.9, -1.0]]).tolist()
    ['kite']
    """

    per_class: int = 800
    classes: Sampled = "new"
    drawn: bool = True

    def __post_init__(self) -> None:
        check_values(self, SAMPLING_RANGES)


SAMPLING_RANGES: dict[str, Allowed] = {
    "per_class": Range(1, whole=True, hint="the paper draws 800"),
    "classes": OneOf(get_args(Sampled), kind="choice of sampled classes"),
    "drawn": Flag(),
}


@dataclass(frozen=True, eq=False)
class FactoredRows:
    """Rows μ + z A in factored form: if A has few rows, products with them are faster this way."""

    mean: Array  # (d,): μ
    numbers: Array  # (n, r): z
    factor: Array  # (r, d): A

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: slice) -> FactoredRows:
        return replace(self, numbers=self.numbers[rows])

    def __mul__(self, scale: float) -> FactoredRows:
        return replace(self, mean=self.mean * scale, factor=self.factor * scale)

    def times(self, right: Array, out: Array) -> Array:
        """Write the product with a matrix into ``out``, and return it."""
        xp = namespace(self.numbers)
        ones = zeros((len(self.numbers), 1), self.numbers) + 1
        # The mean is one more row of A, with the constant number one, so ``out`` is written only once.
        numbers, factor = xp.concat([self.numbers, ones], axis=1), xp.concat([self.factor, self.mean[None]])
        return product_into(numbers, factor @ right, out)


Rows = Array | FactoredRows


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """φ(x) = max(0, x W) with a fixed Gaussian W."""

    projection: Array  # (d, M)

    def __call__(self, X: Rows, out: Array | None = None) -> Array:
        """Map features, (n, d) → (n, M), into ``out`` if given."""
        if out is None:
            out = empty((len(X), self.projection.shape[1]), self.projection)
        if isinstance(X, FactoredRows):
            return clip_negative_(X.times(self.projection, out))
        return clip_negative_(product_into(X, self.projection, out))


def normal_like(shape: tuple[int, int], like: Array, *, seed: int) -> Array:
    """Return standard normal numbers in the library and on the device of an array; torch draws its own."""
    if not is_torch_array(like):
        return placed(normal_numbers(shape, seed=seed), like)
    torch: Any = sys.modules["torch"]  # already imported, because there is a tensor
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32).to(like)


def normal_numbers(shape: tuple[int, int], *, seed: int) -> NDArray[np.float32]:
    """Return standard normal numbers, the stream of ``torch.randn`` for this seed up to the last digit.

    >>> normal_numbers((2, 3), seed=0).astype(float).round(2).tolist()
    [[1.54, -0.29, -2.18], [0.57, -1.08, -1.4]]
    """
    source = np.random.RandomState(seed & 0xFFFFFFFF)
    size = math.prod(shape)
    found = np.empty(size, dtype=np.float32)
    if size < PAIRED:
        found[:] = _one_by_one(source, size)
        return found.reshape(shape)
    whole = size - size % PAIRED
    for start in range(0, whole, NUMBERS_AT_ONCE):
        _make_normal(
            _uniform(source, min(NUMBERS_AT_ONCE, whole - start)),
            found[start : min(start + NUMBERS_AT_ONCE, whole)],
        )
    if size > whole:  # as in torch, the last sixteen are drawn again
        _uniform(source, size - whole)
        _make_normal(_uniform(source, PAIRED), found[-PAIRED:])
    return found.reshape(shape)


def _uniform(source: np.random.RandomState, size: int) -> NDArray[np.float32]:
    """Return numbers of [0, 1) with 24 bits."""
    bits = source.randint(0, 1 << 32, size=size, dtype=np.uint32)
    bits &= np.uint32((1 << 24) - 1)
    found = bits.astype(np.float32)
    found *= np.float32(2.0**-24)
    return found


def _make_normal(uniform: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Turn uniform numbers, a multiple of 16, into normal ones by the method of Box and Muller."""
    pairs, made = uniform.reshape(-1, 2, PAIRED // 2), out.reshape(-1, 2, PAIRED // 2)
    radius = np.subtract(1, pairs[:, 0])
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    angle = np.multiply(pairs[:, 1], np.float32(2 * math.pi))
    np.multiply(radius, np.cos(angle), out=made[:, 0])
    np.multiply(radius, np.sin(angle, out=angle), out=made[:, 1])


def _one_by_one(source: np.random.RandomState, size: int) -> NDArray[np.float64]:
    """Return fewer than 16 normal numbers, which torch makes in double precision, two at a time."""
    count = size + size % 2
    bits = source.randint(0, 1 << 32, size=(count, 2), dtype=np.uint32).astype(np.uint64)
    joined = (bits[:, 0] << np.uint64(32)) | bits[:, 1]
    uniform = ((joined & np.uint64((1 << 53) - 1)).astype(np.float64) * 2.0**-53).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log1p(-uniform[:, 1]))
    angle = 2 * math.pi * uniform[:, 0]
    found: NDArray[np.float64] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
    return found[:size]


def random_features(n_features: int, width: int, *, seed: int, like: Array) -> RandomFeatures:
    """Draw random features for vectors like ``like`` (its library, precision and device)."""
    return RandomFeatures(normal_like((n_features, width), like, seed=derived_seed(seed, "projection")))


def gaussian_samples(gaussian: Gaussian, count: int, *, seed: int) -> Array:
    """Draw from N(μ, Σ) through the factor, x = μ + z A with Σ = AᵀA, (count, d)."""
    drawn = factored_samples(gaussian, count, seed=seed)
    if isinstance(gaussian, SummedGaussian):
        samples = multiply_lower_(drawn.factor.T, drawn.numbers)
    else:
        samples = drawn.numbers @ drawn.factor
    samples += drawn.mean
    return samples


def factored_samples(gaussian: Gaussian, count: int, *, seed: int) -> FactoredRows:
    """Return the same samples in factored form."""
    numbers = normal_like((count, len(gaussian.factor)), gaussian.mean, seed=seed)
    return FactoredRows(gaussian.mean, numbers, gaussian.factor)


def derived_seed(seed: int, name: Label) -> int:
    """Return a seed for one named purpose, independent of all others.

    >>> derived_seed(0, "owl") != derived_seed(0, "wren") != derived_seed(1, "wren")
    True
    """
    digest = hashlib.sha256(f"{seed}|{type(name).__name__}|{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def hold_back(labels: NDArray[Any], *, seed: int, least: int = 2) -> NDArray[np.bool_]:
    """Choose the samples of each class for setting thresholds, (n,): a quarter, at most 20.

    Classes with fewer than ``least`` samples hold back none.

    >>> int(hold_back(np.array(["owl"] * 8 + ["wren"]), seed=0).sum())
    2
    """
    rng, held = np.random.default_rng([seed, 0]), np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(rows) >= least:
            held[rows[: min(max(1, len(rows) // 4), HELD_BACK, len(rows) - 1)]] = True
    return held


def stratified_split(labels: Labels, *, held_out: float, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split sample indices class by class; each class with two or more samples has at least one held out."""
    rng = np.random.default_rng(derived_seed(seed, "held out"))
    train, other = [], []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        cut = max(1, round(held_out * len(members))) if len(members) > 1 else 0
        other.append(members[:cut])
        train.append(members[cut:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(other))

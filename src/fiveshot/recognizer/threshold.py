"""When a photo is called unknown: a threshold on its familiarity, by how well the nearest class is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fiveshot.errors import InputError

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Rejection:
    """Thresholds on familiarity for classes of some numbers of photos; between them, linear in log n.

    Without thresholds nothing is rejected; ``note`` says on what they rest, or why there are none.

    >>> rejection = Rejection(0.05, counts=(1, 100), thresholds=(-4.0, -2.0), note="an example")
    >>> rejection.threshold(10), rejection.threshold(1000)
    (-3.0, -2.0)
    """

    false_rejection: float
    counts: tuple[int, ...] = ()
    thresholds: tuple[float, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be interpolated."""
        check_rate(self.false_rejection)
        if len(self.counts) != len(self.thresholds) or list(self.counts) != sorted(set(self.counts)):
            raise InputError(f"thresholds {self.thresholds} do not fit the counts {self.counts}, which must rise")
        if not all(map(math.isfinite, self.thresholds)) or not all(count >= 1 for count in self.counts):
            raise InputError(f"counts {self.counts} must be positive and thresholds {self.thresholds} finite")

    def threshold(self, count: int) -> float:
        """Return the familiarity below which a photo is unknown, given the photos of its nearest class."""
        return float(self.thresholds_of(np.array([count]))[0])

    def thresholds_of(self, counts: ArrayLike) -> Values:
        """Return the thresholds for several classes at once; minus infinity rejects nothing."""
        counts = np.asarray(counts, dtype=np.float64)
        if not self.counts:
            return np.full(counts.shape, -np.inf)
        interpolated: Values = np.interp(np.log(counts), np.log(self.counts), self.thresholds)
        return interpolated

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rejection:
        """Read what ``as_dict`` wrote."""
        try:
            return cls(
                float(values["false_rejection"]),
                tuple(int(count) for count in values["counts"]),
                tuple(float(threshold) for threshold in values["thresholds"]),
                str(values["note"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"these are not the thresholds of a rejection ({error!r})") from error


def check_rate(rate: float) -> float:
    """Return a false-rejection rate that makes sense, or say which do."""
    if not 0 < rate < 1:
        raise InputError(f"the false-rejection rate must lie between 0 and 1, got {rate}; the default is 0.05")
    return rate


def photos_needed(rate: float) -> int:
    """Return how many held-out photos a threshold needs.

    >>> photos_needed(0.05)
    19
    """
    return math.ceil(1 / rate - 1e-9) - 1


def quantile_threshold(familiarity: ArrayLike, rate: float) -> float:
    """Return the threshold below which a further photo of the same kind falls with probability ``rate`` at most.

    Among n + 1 photos in any order each rank is equally likely, so a new one falls below the k-th smallest of n
    with probability k / (n + 1): the largest such k counts, whatever the distribution.
    """
    values = np.sort(np.asarray(familiarity, dtype=np.float64))
    k = math.floor(rate * (len(values) + 1) + 1e-9)
    if k < 1:
        raise InputError(
            f"{len(values)} photos are too few for a rate of {rate:g}; {photos_needed(rate)} are needed"
        )
    return float(values[k - 1])

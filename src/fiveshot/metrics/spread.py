"""Mean and standard deviation over seeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fiveshot.errors import InputError


class Spread(NamedTuple):
    """Mean and sample standard deviation of ``n`` values; no deviation (None) is known from one value.

    >>> from fiveshot.metrics import mean_std
    >>> measured = mean_std([0.5, 0.75, 1.0])
    >>> f"{measured.mean:.2f} ± {measured.std:.2f} over {measured.n} seeds"
    '0.75 ± 0.25 over 3 seeds'
    """

    mean: float
    std: float | None
    n: int


def mean_std(values: Iterable[float]) -> Spread:
    """Return mean and sample standard deviation (divisor n - 1) of values measured with several seeds.

    With one value the deviation is None: zero would claim that seeds make no difference.

    >>> from fiveshot.metrics import mean_std
    >>> mean_std([0.5, 0.75, 1.0])
    Spread(mean=0.75, std=0.25, n=3)
    >>> mean_std([0.5])
    Spread(mean=0.5, std=None, n=1)
    """
    found = np.array(list(values), dtype=np.float64)
    if len(found) == 0 or not np.isfinite(found).all():
        raise InputError(f"mean and deviation need at least one value, and finite ones, not {found.tolist()}")
    return Spread(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else None, len(found))

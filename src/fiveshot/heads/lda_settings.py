"""What UnbiasedLDA keeps of its base session beside the statistics, read strictly: it may come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.episodes import Choice
from fiveshot.errors import InputError

MOST_FEATURES = 1 << 14  # of a vector: bounds the memory of the random features before they are drawn


@dataclass(frozen=True, eq=False)
class LdaSettings:
    """The center of the features, the random features beside them, and what the episodes chose."""

    center: NDArray[np.float32]  # (d,)
    n_random: int
    seed: int
    choice: Choice


def read_settings(settings: Mapping[str, Any], *, n_random: int) -> LdaSettings:
    """Return settings of a head with so many random features; whatever does not fit is refused.

    >>> choice = {"offset": 0.5, "sharpness": 9.0, "offset_spread": 0.1, "episodes": 6}
    >>> read_settings({"center": [0.5, 1], "n_random": 0, "seed": 0, "choice": choice}, n_random=1000).choice
    Choice(offset=0.5, sharpness=9.0, offset_spread=0.1, episodes=6)
    """
    _expect_entries(settings, LdaSettings, "settings")
    if type(settings["n_random"]) is not int or settings["n_random"] not in (0, n_random):
        raise InputError(f"n_random is {settings['n_random']!r}; this head has 0 or {n_random} random features")
    if type(settings["seed"]) is not int:
        raise InputError(f"seed is {settings['seed']!r}; it must be an integer")
    return LdaSettings(
        _read_center(settings["center"]), settings["n_random"], settings["seed"], read_choice(settings["choice"])
    )


def read_choice(values: Any) -> Choice:
    """Return a choice from its plain values; whatever does not fit is refused."""
    _expect_entries(values, Choice, "choice")
    for name in ("offset", "sharpness", "offset_spread"):
        if not _is_number(values[name]) or values[name] < 0:
            raise InputError(f"{name} is {values[name]!r}; it must be a finite number of at least 0")
    if type(values["episodes"]) is not int or values["episodes"] < 0:
        raise InputError(f"episodes is {values['episodes']!r}; it must be an integer of at least 0")
    return Choice(**values)


def _read_center(values: Any) -> NDArray[np.float32]:
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_FEATURES:
        raise InputError(f"the center is no list of 1 to {MOST_FEATURES} numbers")
    if not all(map(_is_number, values)):
        raise InputError("the center holds something that is no finite number")
    with np.errstate(over="ignore"):
        center = np.array(values, dtype=np.float32)
    if not np.isfinite(center).all():
        raise InputError("the center holds a number beyond 32 bits")
    return center


def _expect_entries(values: Any, kind: type[Any], what: str) -> None:
    expected = {entry.name for entry in fields(kind)}
    if not isinstance(values, Mapping) or set(values) != expected:
        found = sorted(map(str, values))[:9] if isinstance(values, Mapping) else repr(values)[:40]
        raise InputError(f"the {what} must have the entries {sorted(expected)}, got {found}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

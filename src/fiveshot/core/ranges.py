"""Allowed values of parameters: numbers in a range, words, truth values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveshot.errors import InputError, is_number, unknown_name


@dataclass(frozen=True)
class Range:
    """Finite numbers from ``low`` to ``high``; both ends are allowed, except 0 with ``positive``.

    Parameters
    ----------
    low, high : float
        The ends.
    positive : bool
        Zero is not allowed.
    whole : bool
        Integers only.
    words : tuple of str
        Texts that are allowed in addition to numbers.
    none : bool
        Whether None is allowed.
    each : bool
        The value is a non-empty sequence of such numbers.
    hint : str
        Hint for the error.

    Examples
    --------
    >>> Range(0, 1, hint="the paper uses 0.9").check("alpha", 1.5)
    Traceback (most recent call last):
    fiveshot.errors.InputError: alpha must lie in [0, 1], got 1.5; the paper uses 0.9
    """

    low: float = -math.inf
    high: float = math.inf
    positive: bool = False
    whole: bool = False
    words: tuple[str, ...] = ()
    none: bool = False
    each: bool = False
    hint: str = ""

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that is not allowed."""
        if (value is None and self.none) or (isinstance(value, str) and value in self.words):
            return
        if self.each:
            values = list(value) if np.iterable(value) and not isinstance(value, str) else []
            allowed = bool(values) and all(map(self._holds, values))
        else:
            allowed = self._holds(value)
        if not allowed:
            raise InputError(f"{name} must {self.expected}, got {value!r}", hint=self.hint, code="out_of_range")

    @property
    def expected(self) -> str:
        """What is allowed, as the end of the sentence "alpha must ..."."""
        others = [*(["be None"] if self.none else []), *(f"be {word!r}" for word in self.words)]
        return " or ".join([*others, self._numbers()])

    def _numbers(self) -> str:
        kind = "only hold numbers that are" if self.each else "be"
        if self.whole:
            return f"be a whole number of at least {self.low:g}" if self.low > -math.inf else "be a whole number"
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"lie in [{self.low:g}, {self.high:g}]"
        if self.positive:
            return f"{kind} positive and finite"
        return f"{kind} finite and not negative" if self.low == 0 else f"{kind} finite"

    def _holds(self, value: Any) -> bool:
        if not is_number(value, whole=self.whole) or not math.isfinite(value):
            return False
        return self.low <= value <= self.high and not (self.positive and value <= 0)


@dataclass(frozen=True)
class OneOf:
    """One of several words; ``kind`` is their name in the error.

    Examples
    --------
    >>> OneOf(("cosine", "euclidean")).check("metric", "cosin")
    Traceback (most recent call last):
    fiveshot.errors.InputError: no metric 'cosin'; did you mean 'cosine'? choose from cosine, euclidean
    """

    words: tuple[str, ...]
    kind: str = ""

    def check(self, name: str, value: Any) -> None:
        """Refuse anything else."""
        if not isinstance(value, str) or value not in self.words:
            raise unknown_name(self.kind or name, value, self.words)


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def check(self, name: str, value: Any) -> None:
        """Refuse anything else."""
        if not isinstance(value, bool):
            raise InputError(f"{name} must be True or False, got {value!r}", code="out_of_range")


Allowed = Range | OneOf | Flag


def check_values(owner: Any, ranges: Mapping[str, Allowed]) -> None:
    """Refuse an object with an attribute that is not allowed."""
    for name, allowed in ranges.items():
        allowed.check(name, getattr(owner, name))

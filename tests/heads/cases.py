"""What the contract suite runs over: every recipe in both flavours, and small sessions of labelled features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveshot.heads import RECIPES, FewShotHead, Sampling, make_head

Rows = dict[int, np.ndarray]  # label → (n, d)

N_FEATURES = 16
BASE = {10: 7, 30: 20, 50: 6, 20: 9, 40: 5}  # class → samples: one class has more than there are features
FIRST = {25: 3, 5: 1}  # new classes sort among, before and after the base classes; one is seen once
SECOND = {60: 4}
# With 30 random features the base session is folded into sums; with 52 the second session makes it so; with 400
# everything stays in the dual form.
WIDTHS = (30, 52, 400)


@dataclass(frozen=True)
class Case:
    """A recipe, and for the ridge heads the number of random features."""

    recipe: str
    flavour: str
    width: int | None = None

    def __str__(self) -> str:
        return "-".join(str(part) for part in (self.recipe, self.flavour, self.width) if part)

    @property
    def ridge(self) -> bool:
        return self.width is not None

    @property
    def sampled(self) -> bool:
        return self.recipe in ("ranpac*", "c-ranpac")

    def make(self, **parameters: Any) -> FewShotHead:
        if self.ridge:
            parameters.setdefault("n_projections", self.width)
        if self.sampled:
            parameters.setdefault("sampling", Sampling(per_class=40))
        if self.recipe == "ulda":  # what is chosen on the base session stays when a base class is forgotten
            parameters = {"centre": False, "offset": 0.5, "sharpness": 10.0, "n_random": 10} | parameters
        return make_head(self.recipe, self.flavour, **parameters)

    def make_with_one_lambda(self, **parameters: Any) -> FewShotHead:
        """Make a head whose λ does not hang on which samples are held out."""
        return self.make(**parameters, **({"lambdas": (30.0,)} if self.ridge else {}))

    @property
    def summed(self) -> bool:
        """Whether scores come from a sum over all classes, whose rounding depends on the order."""
        return self.ridge or self.recipe == "ulda"

    def close(self, found: np.ndarray, expected: np.ndarray) -> None:
        """Compare scores: to rounding for heads with sums over all classes, else to the bit."""
        if self.summed:
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)
        else:
            np.testing.assert_array_equal(found, expected)


CASES = [
    Case(recipe, flavour, width)
    for recipe in RECIPES
    for flavour in ("paper", "published")
    for width in (WIDTHS if "ranpac" in recipe else (None,))
]


def draw(counts: dict[int, int], *, seed: int = 0, n_features: int = N_FEATURES, dtype: Any = np.float64) -> Rows:
    """Draw correlated samples; a class's distribution depends on its label alone, its samples on the seed too."""
    rows = {}
    for label, count in counts.items():
        own = np.random.default_rng([label, 1])
        mean, mixing = 10 + 6 * own.normal(size=n_features), own.normal(size=(n_features, n_features))
        noise = np.random.default_rng([label, 2, seed]).normal(size=(count, n_features))
        rows[label] = (mean + noise @ mixing * 2).astype(dtype)
    return rows


def flat(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels, class by class."""
    return np.concatenate(list(rows.values())), np.repeat(list(rows), [len(part) for part in rows.values()])


def shuffled(rows: Rows, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels in a random order."""
    X, y = flat(rows)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order], y[order]


def queries(n: int = 23, dtype: Any = np.float64) -> np.ndarray:
    """Return samples to score, of all classes."""
    rows = draw(dict.fromkeys((*BASE, *FIRST, *SECOND), n // 8 + 1), seed=99, dtype=dtype)
    return flat(rows)[0][:n]


def learned(case: Case, *sessions: Rows, **parameters: Any) -> FewShotHead:
    """Return a head that has learned the sessions one after the other."""
    head = case.make(**parameters)
    for session in sessions:
        head.partial_fit(*flat(session))
    return head

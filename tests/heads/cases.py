"""What the contract suite runs over: every recipe in both flavors, and small sessions of labeled features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveshot.core.scorers import RECIPES, RefittedScorer
from fiveshot.heads import FewShotHead, Sampling, make_head
from fiveshot.heads._testing import (
    BASE,
    FIRST,
    N_FEATURES,
    SECOND,
    Rows,
    draw,
    flat,
    halves,
    queries,
    shuffled,
    without,
)

__all__ = [
    "BASE",
    "CASES",
    "FIRST",
    "KINDS",
    "N_FEATURES",
    "SECOND",
    "VARIANTS",
    "Case",
    "Rows",
    "draw",
    "flat",
    "halves",
    "learned",
    "queries",
    "shuffled",
    "without",
]


# With 30 random features the base session is folded into sums; with 52 the second session makes it so; with 400
# everything stays in the dual form.
WIDTHS = (30, 52, 400)
SMALL: dict[str, dict[str, Any]] = {
    "klda": {"n_projections": 40, "gammas": (0.3,)},  # which samples are held out decides between several
    "loranpac": {"n_projections": 40},
}
BROKEN = {
    # The published update weighs a sample by its place in the stream.
    "deep-slda": ("class order", "sample order", "sessions", "more samples"),
    "loranpac": ("sessions", "more samples"),  # what a session drops is gone
    "klda": ("forgetting base",),  # the kernel is as wide as the base session was
}


@dataclass(frozen=True)
class Case:
    """A recipe, and for the ridge heads the number of random features."""

    recipe: str
    flavor: str
    width: int | None = None
    drawn: bool = True  # samples, where it is sampled

    def __str__(self) -> str:
        parts = (self.recipe, self.flavor, self.width, None if self.drawn else "closed")
        return "-".join(str(part) for part in parts if part)

    @property
    def ridge(self) -> bool:
        return self.width is not None

    @property
    def broken(self) -> tuple[str, ...]:
        """The promises that a head does not make."""
        return ("label values",) if self.sampled and self.drawn else BROKEN.get(self.recipe, ())

    @property
    def sampled(self) -> bool:
        return self.recipe in ("ranpac*", "c-ranpac")

    def make(self, **parameters: Any) -> FewShotHead:
        parameters = SMALL.get(self.recipe, {}) | parameters
        if self.ridge:
            parameters.setdefault("n_projections", self.width)
        if self.sampled:
            parameters.setdefault("sampling", Sampling(per_class=40, drawn=self.drawn))
        if (
            self.recipe == "unbiased-lda"
        ):  # what is chosen on the base session stays when a base class is forgotten
            parameters = {"center": False, "offset": 0.5, "sharpness": 10.0, "n_random": 10} | parameters
        return make_head(self.recipe, self.flavor, **parameters)

    def make_with_one_lambda(self, **parameters: Any) -> FewShotHead:
        """Make a head whose λ does not hang on which samples are held out."""
        return self.make(**parameters, **({"lambdas": (30.0,)} if self.ridge else {}))

    @property
    def summed(self) -> bool:
        """Whether scores come from a sum over all classes, whose rounding depends on the order."""
        return self.ridge or self.recipe in ("unbiased-lda", "klda", "knn")

    def close(self, found: np.ndarray, expected: np.ndarray) -> None:
        """Compare scores: to rounding for heads with sums over all classes, else to the bit."""
        if self.summed:
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)
        else:
            np.testing.assert_array_equal(found, expected)


def is_another(recipe: str, flavor: str) -> bool:
    """Tell whether a flavor is a head of its own here: RanPAC's differ in the λ they try, and one is given."""
    own = RECIPES[recipe].published is not None and recipe not in ("ranpac", "ranpac*")
    return flavor == "paper" or own


VARIANTS = [
    (recipe, flavor) for recipe in RECIPES for flavor in ("paper", "published") if is_another(recipe, flavor)
]
# Classifiers that are fitted again are one class of heads; here the quickest, the others in test_refitted.py.
CASES = [
    Case(recipe, flavor, width)
    for recipe, flavor in VARIANTS
    if recipe == "knn" or not isinstance(RECIPES[recipe].make(), RefittedScorer)
    for width in (WIDTHS if recipe.removeprefix("c-").startswith("ranpac") else (None,))
]
CASES += [Case("ranpac*", "paper", 52, drawn=False), Case("c-ranpac", "paper", 52, drawn=False)]
# One case of each class of scorers, for what all recipes of a class share.
KINDS = list({type(case.make().unlearned_scorer()): case for case in reversed(CASES)}.values())[::-1]


def learned(case: Case, *sessions: Rows, **parameters: Any) -> FewShotHead:
    """Return a head that has learned the sessions one after the other."""
    head = case.make(**parameters)
    for session in sessions:
        head.partial_fit(*flat(session))
    return head

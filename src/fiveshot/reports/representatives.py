"""Few variants to draw out of many: of every method the one nearest to its recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveshot.benchmark import RunRecord
from fiveshot.benchmark.shown_head import shown_head
from fiveshot.heads import RECIPES, make_head
from fiveshot.heads.files import plain_parameters
from fiveshot.reports.method_style import method_label
from fiveshot.reports.variants import Variant, flat

MOST_DRAWN = 8


def representatives(variants: Sequence[Variant], most: int = MOST_DRAWN) -> tuple[Variant, ...]:
    """Return the variants if they are few, else one of every method and flavour: the one with its own values.

    Chosen by parameters and not by accuracy, for that would show each method at its luckiest.
    """
    if len(variants) <= most:
        return tuple(variants)
    chosen: dict[str, Variant] = {}
    for variant in variants:
        label = method_label(variant.summary.method, variant.summary.flavour)
        known = chosen.get(label)
        if known is None or _changes(variant.records[0]) < _changes(known.records[0]):
            chosen[label] = variant
    return tuple(replace(variant, label=label) for label, variant in chosen.items())


def _changes(record: RunRecord) -> int:
    """Return how many parameters differ from the recipe's."""
    if record.method not in RECIPES:
        return 0
    recipe = flat(plain_parameters(make_head(record.method, record.config.get("flavour", "paper"))))
    own = flat(shown_head(record)[1])
    return sum(own.get(name) != recipe.get(name) for name in {*own, *recipe} - {"random_state"})

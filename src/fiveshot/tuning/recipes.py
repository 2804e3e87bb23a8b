"""The two named recipes. Their values are written down here and nowhere else."""

from __future__ import annotations

from fiveshot.errors import unknown_name
from fiveshot.tuning.recipe import TuneRecipe

RECIPES: dict[str, TuneRecipe] = {
    "paper": TuneRecipe(
        optimizer="sgd",
        lr=0.01,
        momentum=0.9,
        weight_decay=5e-4,
        batch_size=48,
        epochs=40,
        schedule="cosine-per-epoch",
        head_scale=1.0,
        head_scale_learnable=True,
    ),
    "ours": TuneRecipe(
        optimizer="adamw",
        lr=1e-3,
        weight_decay=0.01,
        batch_size=64,
        epochs=40,
        head_scale=16.0,
    ),
}
"""The recipes by name: ``paper`` has the paper's values, ``ours`` is the default of ``tune``."""


def get_recipe(name: str) -> TuneRecipe:
    """Return a recipe by its name.

    >>> from fiveshot.tuning import get_recipe
    >>> get_recipe("ours").optimizer
    'adamw'
    >>> get_recipe("papr")
    Traceback (most recent call last):
    fiveshot.errors.InputError: no recipe 'papr'; did you mean 'paper'? choose from ours, paper
    """
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]

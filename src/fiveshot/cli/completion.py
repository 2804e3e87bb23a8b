"""Names that TAB completes: classes of a model, heads, protocols, networks and others."""

from __future__ import annotations

import re
from pathlib import Path

from typer import Context

PLAIN = re.compile(r"\w[\w.-]*")  # a name that needs no quotes in any shell


def classes(ctx: Context) -> list[str]:
    """Offer the classes of the model on the command line, except names that need quotes."""
    model = ctx.params.get("model")
    from fiveshot.recognizer import stored_names

    names = stored_names(Path(model)) if model else []
    return [name for name in names if PLAIN.fullmatch(name)]


def classes_to_add_to(ctx: Context) -> list[str]:
    """Offer the classes of the model with --add; otherwise the name is new."""
    return classes(ctx) if ctx.params.get("add") else []


def methods(incomplete: str) -> list[str]:
    """Offer the methods of a benchmark for the last name in a list with commas.

    >>> methods("ncm,te")[:2]
    ['ncm,teen', 'ncm,fecam']
    """
    before, comma, _ = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{name}" for name in recipes() if name not in given]


def recipes() -> list[str]:
    """Return the names of all heads."""
    from fiveshot.core.scorers import RECIPES

    return list(RECIPES)


def model_heads() -> list[str]:
    """Offer the heads that a model can have; heads that need samples are left out.

    >>> "teen" in model_heads(), "ranpac" in model_heads()
    (True, False)
    """
    from fiveshot.core.scorers import RECIPES

    return [name for name, recipe in RECIPES.items() if not recipe.make().needs_samples]


def heads_or_none() -> list[str]:
    """Offer the heads that a model can have, and 'none'."""
    return [*model_heads(), "none"]


def protocols() -> list[str]:
    """Offer the named protocols.

    >>> protocols()[:2]
    ['cifar100/small', 'cub200/small']
    """
    from fiveshot.benchmark import PROTOCOLS

    return list(PROTOCOLS)


def backbones() -> list[str]:
    """Offer the short list of backbones; other names of timm are allowed, too.

    >>> backbones()[0]
    'tiny_vit_5m_224.dist_in22k'
    """
    from fiveshot.backbones import CURATED

    return list(CURATED)


def adapters() -> list[str]:
    """Offer the adapters that come with the package.

    >>> adapters()[0]
    'cub200-big'
    """
    from fiveshot.backbones import embedded_adapters

    return list(embedded_adapters())


def datasets() -> list[str]:
    """Offer the known datasets.

    >>> datasets()
    ['aircraft', 'cars', 'cifar100', 'cub200', 'imagenet-r', 'miniimagenet']
    """
    from fiveshot.data import dataset_specs

    return list(dataset_specs())


def paper_targets() -> list[str]:
    """Offer the tables, figures and ablations of the paper, and 'all'.

    >>> paper_targets()[:2]
    ['table1', 'table2']
    """
    from fiveshot.reports import FURTHER_TARGETS, TARGETS

    return [*TARGETS, "all", *FURTHER_TARGETS]


def published() -> list[str]:
    """Offer the published figures that come with the package.

    >>> published()[:2]
    ['asp-cifar100', 'asp-cub200']
    """
    from fiveshot.benchmark import shipped_figures

    return list(shipped_figures())


def tuning_recipes() -> list[str]:
    """Offer the recipes for tuning."""
    from fiveshot.tuning import TUNE_RECIPES

    return list(TUNE_RECIPES)


def findings() -> list[str]:
    """Return the kinds of findings of a review."""
    from fiveshot.values import FINDINGS

    return list(FINDINGS)

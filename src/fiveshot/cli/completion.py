"""What TAB offers: classes of a model, and the names that the package knows. Nothing here imports torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from fiveshot.cli.stored import stored_classes

SPECIAL = re.compile(r"""[\s\\$`"'!#&*()<>?;|\[\]{}~^]""")  # what bash takes for something else
RISKY = re.compile(r"""[\\$`"'!]""")  # what a shell may still run or drop inside quotation marks


class BashWord(str):
    r"""A value as bash wants it typed, with backslashes; what it stands for decides whether it fits.

    >>> word = BashWord("barn owl")
    >>> print(word, word.startswith("barn o"))
    barn\ owl True
    """

    plain: str

    def __new__(cls, plain: str) -> BashWord:
        """Escape what bash would take for something else."""
        word = super().__new__(cls, SPECIAL.sub(r"\\\g<0>", plain))
        word.plain = plain
        return word

    def startswith(self, *given: Any) -> bool:
        """Compare with what was typed so far, which has lost its backslashes on the way here."""
        return self.plain.startswith(*given)


def offered(names: Iterable[str]) -> list[str]:
    """Return names in the form in which the asking shell can take them; a name it could run is not offered.

    >>> offered(["owl", "$(reboot)", "a\\nb"])
    ['owl']
    """
    printable = [name for name in names if name.isprintable()]
    if _is_bare_bash_word():
        return [BashWord(name) for name in printable]
    return [name for name in printable if not RISKY.search(name)]


def _is_bare_bash_word() -> bool:
    """Tell whether bash asks, for a word that was not begun with a quotation mark."""
    if "COMP_CWORD" not in os.environ:
        return False
    words, current = os.environ.get("COMP_WORDS", "").split("\n"), int(os.environ["COMP_CWORD"])
    return not (current < len(words) and words[current].startswith(("'", '"')))


def classes(ctx: typer.Context) -> list[str]:
    """Offer the classes of the model that was named before."""
    model = ctx.params.get("model")
    return offered(stored_classes(Path(model))) if model else []


def classes_to_add_to(ctx: typer.Context) -> list[str]:
    """Offer the classes of the model where photos are added to one; otherwise the name is a new one."""
    return classes(ctx) if ctx.params.get("add") else []


def methods(incomplete: str) -> list[str]:
    """Offer the methods of a benchmark for the last place of a list with commas.

    >>> methods("ncm,te")[:2]
    ['ncm,teen', 'ncm,fecam']
    """
    before, comma, _ = incomplete.rpartition(",")
    given = before.split(",")
    return offered(f"{before}{comma}{name}" for name in recipes() if name not in given)


def recipes() -> list[str]:
    """Return the names of all heads."""
    from fiveshot.heads import RECIPES

    return list(RECIPES)


def heads() -> list[str]:
    """Offer the heads that a model can have."""
    return offered(model_heads())


def model_heads() -> list[str]:
    """Return the heads that a model can have: it keeps statistics, and some heads need samples.

    >>> "teen" in model_heads(), "ranpac" in model_heads()
    (True, False)
    """
    from fiveshot.heads.registry import RECIPES

    return [name for name, recipe in RECIPES.items() if not recipe.make().needs_samples]


def heads_or_none() -> list[str]:
    """Offer the heads that a model can have, and none."""
    return [*heads(), "none"]


def protocols() -> list[str]:
    """Offer the named protocols.

    >>> protocols()[:2]
    ['cifar100/small', 'cub200/small']
    """
    from fiveshot.benchmark import PROTOCOLS

    return list(PROTOCOLS)


def backbones() -> list[str]:
    """Offer the short list of backbones; any other name of timm's is allowed too.

    >>> backbones()[0]
    'vit_hybrid_small_patch16_224.fiveshot'
    """
    from fiveshot.backbones.spec import CURATED

    return list(CURATED)


def adapters() -> list[str]:
    """Offer the adapters that come with the package.

    >>> adapters()[0]
    'cub200-big'
    """
    from fiveshot.backbones import embedded_adapters

    return list(embedded_adapters())


def datasets() -> list[str]:
    """Offer the datasets that are known by name.

    >>> datasets()
    ['aircraft', 'cars', 'cifar100', 'cub200', 'imagenet-r', 'miniimagenet']
    """
    from fiveshot.data import dataset_specs

    return list(dataset_specs())


def paper_targets() -> list[str]:
    """Offer the tables and figures of the paper, its ablations, and all of it.

    >>> paper_targets()[:2]
    ['table1', 'table2']
    """
    from fiveshot.reports.paper.plan import FURTHER_TARGETS, TARGETS

    return [*TARGETS, "all", *FURTHER_TARGETS]


def tuning_recipes() -> list[str]:
    """Offer the recipes for tuning."""
    from fiveshot.tuning import TUNE_RECIPES

    return list(TUNE_RECIPES)

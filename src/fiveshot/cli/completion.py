"""What TAB offers: classes of a model, read without torch, and the names that the package knows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from typer import Context

SPECIAL = re.compile(r"""[\s\\$`"'!#&*()<>?;|\[\]{}~^]""")  # what bash takes for something else
RISKY = re.compile(r"""[\\$`"'!]""")  # what a shell may still run or drop inside quotation marks
PATIENCE = 0.2  # seconds to wait for a process that writes
LONGEST_HEADER = 100_000_000  # bytes, as the format of these files has it


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


def classes(ctx: Context) -> list[str]:
    """Offer the classes of the model that was named before."""
    model = ctx.params.get("model")
    return offered(stored_classes(Path(model))) if model else []


def classes_to_add_to(ctx: Context) -> list[str]:
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
    from fiveshot.reports.paper_plan import FURTHER_TARGETS, TARGETS

    return [*TARGETS, "all", *FURTHER_TARGETS]


def tuning_recipes() -> list[str]:
    """Offer the recipes for tuning."""
    from fiveshot.tuning import TUNE_RECIPES

    return list(TUNE_RECIPES)


def findings() -> list[str]:
    """Return what a review may find."""
    from fiveshot.recognizer.review import KINDS

    return list(KINDS)


def stored_state(model: Path) -> int | None:
    """Return the number of a model's state, one more with every change; None where no model can be read.

    >>> stored_state(Path("no such folder")) is None
    True
    """
    rows = _rows(model, "SELECT value FROM meta WHERE key = 'state'")
    return int(rows[0][0]) if rows else None


def stored_classes(model: Path) -> list[str]:
    """Return the names of all classes, sorted: those of the database, and those of the base file.

    >>> stored_classes(Path("no such folder"))
    []
    """
    from fiveshot.recognizer.names import NONE

    learned = {name for (name,) in _rows(model, "SELECT name FROM classes")} - {NONE}
    manifests = _rows(model, "SELECT value FROM meta WHERE key = 'manifest'")
    return sorted(learned.union(*(_base_classes(model, text) for (text,) in manifests)))


def _base_classes(model: Path, manifest: str) -> list[str]:
    """Return the names in the header of the base file, a JSON object after its length; tensors are left alone."""
    from fiveshot.errors import FiveshotError
    from fiveshot.recognizer.store.manifest import Manifest

    try:
        file = Manifest.from_toml(manifest).base.file
        if not file:
            return []
        with (model / file).open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(min(length, LONGEST_HEADER)))
        labels: list[str] = json.loads(header["__metadata__"]["fiveshot"])["meta"]["labels"]
        return labels
    except (FiveshotError, OSError, LookupError, TypeError, ValueError):
        return []


def _rows(model: Path, query: str) -> list[tuple[Any, ...]]:
    """Return what the database answers; nothing where there is none, or it cannot be read just now."""
    import sqlite3

    from fiveshot.errors import FiveshotError
    from fiveshot.recognizer.store.schema import DATABASE, open_database

    try:
        with closing(open_database(model / DATABASE, readonly=True, timeout=PATIENCE)) as connection:
            return connection.execute(query).fetchall()
    except (FiveshotError, OSError, sqlite3.Error):
        return []

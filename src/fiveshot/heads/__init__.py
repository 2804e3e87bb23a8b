"""Heads: classifiers that learn classes session by session from feature vectors, as scikit-learn's do.

Every class of heads stands in a module of its own here, with all that is known of it. Adding one is one file.
"""

from typing import Any

from fiveshot.core import ClassModels, Memory, derive_models
from fiveshot.core.draws import Sampling
from fiveshot.core.lda import Prior
from fiveshot.heads._testing import check_head
from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.files import load_head, save_head
from fiveshot.heads.head import Answer, FewShotHead, Recipe, ScoreTable, Style
from fiveshot.heads.ncm import NCM
from fiveshot.heads.ranpac import RanPAC
from fiveshot.heads.registry import DEFAULT_HEAD, RECIPES, make_head, register_head, unregister_head
from fiveshot.heads.tuned import Tuned, TunedHead, choose_parameters, tune_on_base
from fiveshot.heads.unbiased_lda import UnbiasedLDA

__all__ = [
    "DEFAULT_HEAD",
    "NCM",
    "RECIPES",
    "Answer",
    "ClassModels",
    "FeCAM",
    "FewShotHead",
    "Memory",
    "Prior",
    "RanPAC",
    "Recipe",
    "Sampling",
    "ScoreTable",
    "Style",
    "Tuned",
    "TunedHead",
    "UnbiasedLDA",
    "check_head",
    "choose_parameters",
    "derive_models",
    "load_head",
    "make_head",
    "register_head",
    "save_head",
    "tune_on_base",
    "unregister_head",
]


def __getattr__(name: str) -> Any:
    """Return a head of this package that is not named above."""
    from fiveshot.heads.registry import heads_of_package

    if name.startswith("_") or name not in heads_of_package():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return heads_of_package()[name]

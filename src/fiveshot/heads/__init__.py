"""Heads: scikit-learn classifiers that learn classes session by session from feature vectors."""

from fiveshot.core import ClassModels, Memory, derive_models
from fiveshot.core.draws import Sampling
from fiveshot.core.lda import Prior
from fiveshot.heads.contract import check_head
from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.files import load_head, save_head
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.ncm import NCM
from fiveshot.heads.ranpac import RanPAC
from fiveshot.heads.recipes import DESCRIPTIONS, RECIPES, make_head
from fiveshot.heads.registry import register_head, unregister_head
from fiveshot.heads.score_table import ScoreTable
from fiveshot.heads.tune_on_base import Tuned, choose_parameters, tune_on_base
from fiveshot.heads.tuned_head import TunedHead
from fiveshot.heads.unbiased_lda import UnbiasedLDA

__all__ = [
    "DESCRIPTIONS",
    "NCM",
    "RECIPES",
    "ClassModels",
    "FeCAM",
    "FewShotHead",
    "Memory",
    "Prior",
    "RanPAC",
    "Sampling",
    "ScoreTable",
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

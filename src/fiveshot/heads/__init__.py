"""Heads: scikit-learn classifiers that learn classes session by session from feature vectors."""

from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.files import load_head, save_head
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.ncm import NCM
from fiveshot.heads.ranpac import RanPAC
from fiveshot.heads.recipes import DESCRIPTIONS, RECIPES, make_head
from fiveshot.heads.sampling import Sampling
from fiveshot.heads.score_table import ScoreTable
from fiveshot.heads.tune_on_base import Tuned, tune_on_base
from fiveshot.heads.two_covariance import Prior
from fiveshot.heads.unbiased_lda import UnbiasedLDA

__all__ = [
    "DESCRIPTIONS",
    "NCM",
    "RECIPES",
    "FeCAM",
    "FewShotHead",
    "Prior",
    "RanPAC",
    "Sampling",
    "ScoreTable",
    "Tuned",
    "UnbiasedLDA",
    "load_head",
    "make_head",
    "save_head",
    "tune_on_base",
]

"""Heads: scikit-learn estimators that learn classes session by session from feature vectors.

The mathematics is in ``fiveshot.core.scorers``. This package checks data, exposes parameters for searches, and
chooses parameters by episodes.
"""

from fiveshot.core.draws import Sampling
from fiveshot.core.lda import Prior
from fiveshot.heads._files import load_head, save_head
from fiveshot.heads._making import make_head
from fiveshot.heads._testing import check_head
from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.head import FewShotHead, ScorerHead
from fiveshot.heads.ncm import NCM
from fiveshot.heads.ranpac import RanPAC
from fiveshot.heads.tuned import Tuned, TunedHead, choose_parameters, plain_head, tune_on_base
from fiveshot.heads.unbiased_lda import UnbiasedLDA

__all__ = [
    "NCM",
    "FeCAM",
    "FewShotHead",
    "Prior",
    "RanPAC",
    "Sampling",
    "ScorerHead",
    "Tuned",
    "TunedHead",
    "UnbiasedLDA",
    "check_head",
    "choose_parameters",
    "load_head",
    "make_head",
    "plain_head",
    "save_head",
    "tune_on_base",
]

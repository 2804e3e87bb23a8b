"""Scorers: methods that score feature vectors against classes, one file each.

The recognizer uses them directly. ``fiveshot.heads`` wraps them as scikit-learn estimators. Only ``refitted.py``
uses scikit-learn itself, for comparison.
"""

from fiveshot.core.scorers.fecam import FeCAMScorer
from fiveshot.core.scorers.files import load_scorer, save_scorer
from fiveshot.core.scorers.inputs import as_features, on_device
from fiveshot.core.scorers.kernel_lda import KernelLDAScorer
from fiveshot.core.scorers.loranpac import LoRanPACScorer
from fiveshot.core.scorers.nearest_mean import NCMScorer, Prototype
from fiveshot.core.scorers.parameters import (
    changed_parameters,
    check_parameters,
    field_owners,
    field_parameters,
    method_name,
    own_parameters,
    parameter,
    parameter_names,
    plain_parameters,
    read_parameters,
    with_parameters,
)
from fiveshot.core.scorers.ranpac import LAMBDAS, RanPACScorer
from fiveshot.core.scorers.recipes import (
    DEFAULT_HEAD,
    RECIPES,
    Flavor,
    Recipe,
    make_scorer,
    recipe_name,
    refuse_unknown_parameters,
    register_head,
    require_scorer,
    source_digest,
    unregister_head,
)
from fiveshot.core.scorers.refitted import RefittedScorer
from fiveshot.core.scorers.scorer import Answer, Scorer, ScoreTable
from fiveshot.core.scorers.streaming_lda import StreamingLDAScorer
from fiveshot.core.scorers.unbiased_lda import UnbiasedLDAScorer

__all__ = [
    "DEFAULT_HEAD",
    "LAMBDAS",
    "RECIPES",
    "Answer",
    "FeCAMScorer",
    "Flavor",
    "KernelLDAScorer",
    "LoRanPACScorer",
    "NCMScorer",
    "Prototype",
    "RanPACScorer",
    "Recipe",
    "RefittedScorer",
    "ScoreTable",
    "Scorer",
    "StreamingLDAScorer",
    "UnbiasedLDAScorer",
    "as_features",
    "changed_parameters",
    "check_parameters",
    "field_owners",
    "field_parameters",
    "load_scorer",
    "make_scorer",
    "method_name",
    "on_device",
    "own_parameters",
    "parameter",
    "parameter_names",
    "plain_parameters",
    "read_parameters",
    "recipe_name",
    "refuse_unknown_parameters",
    "register_head",
    "require_scorer",
    "save_scorer",
    "source_digest",
    "unregister_head",
    "with_parameters",
]

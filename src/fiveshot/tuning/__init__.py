"""First-task tuning: AdaptFormer adapters trained on the base classes, the backbone frozen.

Recipes and results can be read without PyTorch. What trains is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import import_extra, imported_name
from fiveshot.tuning._recipes import TUNE_RECIPES, TuneRecipe, get_recipe, parse_setting
from fiveshot.tuning.results import EpochRecord, FewShotScore, TuneProgress, TuneResult, TuningLog

if TYPE_CHECKING:
    from fiveshot.tuning._run import Run, TuningRun
    from fiveshot.tuning.execution import Execution
    from fiveshot.tuning.first_task import Selection, tune
    from fiveshot.tuning.material import FewShotTest, Fold, Material, few_shot_score, open_material
    from fiveshot.tuning.models import create_tuned, retune

__all__ = [
    "TUNE_RECIPES",
    "EpochRecord",
    "Execution",
    "FewShotScore",
    "FewShotTest",
    "Fold",
    "Material",
    "Run",
    "Selection",
    "TuneProgress",
    "TuneRecipe",
    "TuneResult",
    "TuningLog",
    "TuningRun",
    "create_tuned",
    "few_shot_score",
    "get_recipe",
    "open_material",
    "parse_setting",
    "retune",
    "tune",
]

# Loaded when first asked for: they need PyTorch.
_MODULES = ("execution", "material", "_run", "first_task")


def __getattr__(name: str) -> Any:
    if name in ("create_tuned", "retune"):  # they refuse what does not fit before PyTorch is asked for
        return imported_name(__name__, ("models",), name, __all__)
    if name in __all__:
        import_extra("torch")
    return imported_name(__name__, _MODULES, name, __all__)

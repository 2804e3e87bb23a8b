"""First-task tuning: AdaptFormer adapters trained on the base classes, the backbone frozen.

Recipes and results can be read without PyTorch. Names that train are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import import_extra, imported_name
from fiveshot.tuning._recipes import TUNE_RECIPES, TuneRecipe, get_recipe, parse_setting
from fiveshot.tuning.results import EpochRecord, FewShotScore, TuneProgress, TuneResult, TuningLog
from fiveshot.tuning.results import OnProgress as OnProgress

if TYPE_CHECKING:
    from fiveshot.tuning._run import Run, TuningRun
    from fiveshot.tuning.execution import Execution
    from fiveshot.tuning.execution import make_accelerator as make_accelerator
    from fiveshot.tuning.execution import started_by_launcher as started_by_launcher
    from fiveshot.tuning.first_task import Selection, tune
    from fiveshot.tuning.first_task import SelectionKind as SelectionKind
    from fiveshot.tuning.material import FewShotTest, Fold, Material, few_shot_score, open_material
    from fiveshot.tuning.material import HeldOut as HeldOut
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

# Loaded on first use: they need PyTorch.
_MODULES = ("execution", "material", "_run", "first_task")
_FOR_PACKAGES = [
    "HeldOut",
    "SelectionKind",
    "make_accelerator",
    "started_by_launcher",
]  # of fiveshot, above this one


def __getattr__(name: str) -> Any:
    if name in ("create_tuned", "retune"):  # they check their arguments before PyTorch is needed
        return imported_name(__name__, ("models",), name, __all__)
    names = [*__all__, *_FOR_PACKAGES]
    if name in names:
        import_extra("torch")
    return imported_name(__name__, _MODULES, name, names)

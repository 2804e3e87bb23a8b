"""First-task tuning: AdaptFormer adapters trained on the base classes, the backbone frozen."""

from fiveshot.tuning.execution import Execution
from fiveshot.tuning.fewshot import FewShotScore, FewShotTest, few_shot_score
from fiveshot.tuning.material import Material, open_material
from fiveshot.tuning.recipe import TuneRecipe
from fiveshot.tuning.recipes import RECIPES, get_recipe
from fiveshot.tuning.result import EpochRecord, TuneProgress, TuneResult
from fiveshot.tuning.run import Run, TuningRun
from fiveshot.tuning.selection import Selection
from fiveshot.tuning.settings import parse_setting
from fiveshot.tuning.split import Fold
from fiveshot.tuning.tune import tune

__all__ = [
    "RECIPES",
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
    "TuningRun",
    "few_shot_score",
    "get_recipe",
    "open_material",
    "parse_setting",
    "tune",
]

"""The mathematics, as pure functions on NumPy arrays or torch tensors; tensors stay on their device.

This package imports neither torch nor scikit-learn, except that ``scorers/refitted.py`` fits classifiers of
scikit-learn. Only ``scorers/files.py`` reads and writes files.
"""

from fiveshot.core.calibration import (
    Calibration,
    ClassGaussian,
    SummedGaussian,
    calibrate,
    calibrate_all,
    calibrate_mean,
    calibrated_factor,
    calibrated_mean,
    similarity_weights,
)
from fiveshot.core.memory import ClassModels, Memory, derive_models
from fiveshot.core.statistics import (
    NO_CLASSES,
    ClassStatistics,
    ClassSummary,
    class_statistics,
    statistics_of_batches,
    summarize,
)

__all__ = [
    "NO_CLASSES",
    "Calibration",
    "ClassGaussian",
    "ClassModels",
    "ClassStatistics",
    "ClassSummary",
    "Memory",
    "SummedGaussian",
    "calibrate",
    "calibrate_all",
    "calibrate_mean",
    "calibrated_factor",
    "calibrated_mean",
    "class_statistics",
    "derive_models",
    "similarity_weights",
    "statistics_of_batches",
    "summarize",
]

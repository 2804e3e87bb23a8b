"""Class statistics, exact to merge, and their calibration by similar classes."""

from fiveshot.statistics.calibration import (
    Calibration,
    ClassGaussian,
    calibrate,
    calibrate_mean,
    calibrated_factor,
    calibrated_mean,
    similarity_weights,
)
from fiveshot.statistics.class_statistics import (
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
    "ClassStatistics",
    "ClassSummary",
    "calibrate",
    "calibrate_mean",
    "calibrated_factor",
    "calibrated_mean",
    "class_statistics",
    "similarity_weights",
    "statistics_of_batches",
    "summarize",
]

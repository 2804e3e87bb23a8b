"""Measures of few-shot class-incremental learning: pure functions on unrounded values between 0 and 1.

Names in ``__all__`` are for everybody. The others are for the packages of fiveshot above this one.
"""

from fiveshot.metrics._accuracy import (
    BaseNewConfusion,
    GeneralizedAccuracy,
    OldNewAccuracy,
    TradeOff,
    accuracy,
    base_new_confusion,
    expected_calibration_error,
    generalized_accuracy,
    harmonic_mean,
    old_new_accuracy,
    open_set_area,
    per_class_accuracy,
    trade_off,
)
from fiveshot.metrics._sessions import (
    Forgetting,
    RunMetrics,
    SessionMetrics,
    SessionPredictions,
    Spread,
    a_inc,
    a_last,
    accuracy_matrix,
    forgetting,
    mean_std,
    run_metrics,
)
from fiveshot.metrics.paired import RESAMPLES as RESAMPLES
from fiveshot.metrics.paired import (
    PairedDifference,
    StandardError,
    hierarchical_difference,
    hierarchical_error,
    holm,
    mean_interval,
    paired_difference,
    resampled_difference,
    resampled_measures,
)
from fiveshot.metrics.paired import hierarchical_interval as hierarchical_interval
from fiveshot.metrics.paired import holm_corrected as holm_corrected
from fiveshot.metrics.paired import resampled_interval as resampled_interval

__all__ = [
    "BaseNewConfusion",
    "Forgetting",
    "GeneralizedAccuracy",
    "OldNewAccuracy",
    "PairedDifference",
    "RunMetrics",
    "SessionMetrics",
    "SessionPredictions",
    "Spread",
    "StandardError",
    "TradeOff",
    "a_inc",
    "a_last",
    "accuracy",
    "accuracy_matrix",
    "base_new_confusion",
    "expected_calibration_error",
    "forgetting",
    "generalized_accuracy",
    "harmonic_mean",
    "hierarchical_difference",
    "hierarchical_error",
    "holm",
    "mean_interval",
    "mean_std",
    "old_new_accuracy",
    "open_set_area",
    "paired_difference",
    "per_class_accuracy",
    "resampled_difference",
    "resampled_measures",
    "run_metrics",
    "trade_off",
]

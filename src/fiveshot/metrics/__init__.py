"""Measures of few-shot class-incremental learning: pure functions on unrounded values between 0 and 1."""

from fiveshot.metrics.accuracy import (
    BaseNewConfusion,
    OldNewAccuracy,
    accuracy,
    base_new_confusion,
    expected_calibration_error,
    harmonic_mean,
    old_new_accuracy,
    per_class_accuracy,
)
from fiveshot.metrics.paired import (
    PairedDifference,
    mean_interval,
    paired_difference,
    resampled_difference,
    resampled_measures,
)
from fiveshot.metrics.sessions import (
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
from fiveshot.metrics.trade_off import GeneralizedAccuracy, TradeOff, generalized_accuracy, trade_off

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
    "mean_interval",
    "mean_std",
    "old_new_accuracy",
    "paired_difference",
    "per_class_accuracy",
    "resampled_difference",
    "resampled_measures",
    "run_metrics",
    "trade_off",
]

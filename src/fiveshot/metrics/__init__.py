"""Measures of few-shot class-incremental learning: pure functions on unrounded values between 0 and 1."""

from fiveshot.metrics.accuracy import (
    BaseNewConfusion,
    OldNewAccuracy,
    accuracy,
    base_new_confusion,
    harmonic_mean,
    old_new_accuracy,
    per_class_accuracy,
)
from fiveshot.metrics.calibration import expected_calibration_error
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

__all__ = [
    "BaseNewConfusion",
    "Forgetting",
    "OldNewAccuracy",
    "RunMetrics",
    "SessionMetrics",
    "SessionPredictions",
    "Spread",
    "a_inc",
    "a_last",
    "accuracy",
    "accuracy_matrix",
    "base_new_confusion",
    "expected_calibration_error",
    "forgetting",
    "harmonic_mean",
    "mean_std",
    "old_new_accuracy",
    "per_class_accuracy",
    "run_metrics",
]

"""The recogniser: learn a class from five photos, predict, forget, ship."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiveshot.recognizer.change import NotErasedError
    from fiveshot.recognizer.checking import Finding, check_model
    from fiveshot.recognizer.conflict import ConflictError
    from fiveshot.recognizer.evaluation import Evaluation
    from fiveshot.recognizer.forgetting import NotUndoableError
    from fiveshot.recognizer.history import HistoryEntry
    from fiveshot.recognizer.info import ClassInfo, ModelInfo
    from fiveshot.recognizer.insight import LearnReport
    from fiveshot.recognizer.merging import MergeReport
    from fiveshot.recognizer.prediction import Prediction
    from fiveshot.recognizer.recognizer import Recognizer
    from fiveshot.recognizer.snapshot import Snapshot

# Read when they are used: `fiveshot --help` must not wait for torch.
_PLACES = {
    "ClassInfo": "info",
    "ConflictError": "conflict",
    "Evaluation": "evaluation",
    "Finding": "checking",
    "HistoryEntry": "history",
    "LearnReport": "insight",
    "MergeReport": "merging",
    "ModelInfo": "info",
    "NotErasedError": "change",
    "NotUndoableError": "forgetting",
    "Prediction": "prediction",
    "Recognizer": "recognizer",
    "Snapshot": "snapshot",
    "check_model": "checking",
}

__all__ = [
    "ClassInfo",
    "ConflictError",
    "Evaluation",
    "Finding",
    "HistoryEntry",
    "LearnReport",
    "MergeReport",
    "ModelInfo",
    "NotErasedError",
    "NotUndoableError",
    "Prediction",
    "Recognizer",
    "Snapshot",
    "check_model",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)

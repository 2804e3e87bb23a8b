"""The recognizer: learn a class from five photos, predict, forget, ship."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer
    from fiveshot.recognizer.change import ConflictError, NotErasedError
    from fiveshot.recognizer.checking import Finding, check_model
    from fiveshot.recognizer.correction import NotUndoableError, PhotoChange
    from fiveshot.recognizer.evaluation import Evaluation
    from fiveshot.recognizer.info import ClassInfo, ModelInfo, PhotoInfo
    from fiveshot.recognizer.insight import LearnReport
    from fiveshot.recognizer.photos.boxes import Region
    from fiveshot.recognizer.recognition.snapshot import Neighbor, Prediction, RejectedAt, Snapshot
    from fiveshot.recognizer.review import Review, Suggestion
    from fiveshot.recognizer.shipping._merging import MergeReport
    from fiveshot.recognizer.shipping._web import WebExport
    from fiveshot.recognizer.sorting import Sorting
    from fiveshot.recognizer.store.history import HistoryEntry
    from fiveshot.recognizer.store.rows import PhotoRecord
    from fiveshot.recognizer.store.schema import LostModelError

# Imported when they are used: the command line asks for an error or a name long before it needs a model.
_NAMES = {
    "change": ("ConflictError", "NotErasedError"),
    "checking": ("Finding", "check_model"),
    "correction": ("NotUndoableError", "PhotoChange"),
    "evaluation": ("Evaluation",),
    "info": ("ClassInfo", "ModelInfo", "PhotoInfo"),
    "insight": ("LearnReport",),
    "photos.boxes": ("Region",),
    "recognition.snapshot": ("Neighbor", "Prediction", "RejectedAt", "Snapshot"),
    "_recognizer": ("Recognizer",),
    "review": ("Review", "Suggestion"),
    "shipping._merging": ("MergeReport",),
    "shipping._web": ("WebExport",),
    "sorting": ("Sorting",),
    "store.history": ("HistoryEntry",),
    "store.rows": ("PhotoRecord",),
    "store.schema": ("LostModelError",),
}

__all__ = [
    "ClassInfo",
    "ConflictError",
    "Evaluation",
    "Finding",
    "HistoryEntry",
    "LearnReport",
    "LostModelError",
    "MergeReport",
    "ModelInfo",
    "Neighbor",
    "NotErasedError",
    "NotUndoableError",
    "PhotoChange",
    "PhotoInfo",
    "PhotoRecord",
    "Prediction",
    "Recognizer",
    "Region",
    "RejectedAt",
    "Review",
    "Snapshot",
    "Sorting",
    "Suggestion",
    "WebExport",
    "check_model",
]


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

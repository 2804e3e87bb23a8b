"""The recognizer: learn a class from five photos, predict, forget, ship."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer
    from fiveshot.recognizer.change import ConflictError, NotErasedError
    from fiveshot.recognizer.checking import Finding, check_model
    from fiveshot.recognizer.correction import NotUndoableError
    from fiveshot.recognizer.evaluation import Evaluation
    from fiveshot.recognizer.photos.photo import Region
    from fiveshot.recognizer.recognition.snapshot import Snapshot
    from fiveshot.recognizer.shipping._merging import MergeReport
    from fiveshot.recognizer.shipping._web import WebExport
    from fiveshot.recognizer.store.rows import PhotoRecord
    from fiveshot.recognizer.store.schema import LostModelError

# Imported when they are used: the command line asks for an error or a name long before it needs a model.
_NAMES = {
    "change": ("ConflictError", "NotErasedError"),
    "checking": ("Finding", "check_model"),
    "correction": ("NotUndoableError",),
    "evaluation": ("Evaluation",),
    "photos.photo": ("Region",),
    "recognition.snapshot": ("Snapshot",),
    "_recognizer": ("Recognizer",),
    "shipping._merging": ("MergeReport",),
    "shipping._web": ("WebExport",),
    "store.rows": ("PhotoRecord",),
    "store.schema": ("LostModelError",),
}

__all__ = [
    "ConflictError",
    "Evaluation",
    "Finding",
    "LostModelError",
    "MergeReport",
    "NotErasedError",
    "NotUndoableError",
    "PhotoRecord",
    "Recognizer",
    "Region",
    "Snapshot",
    "WebExport",
    "check_model",
]


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

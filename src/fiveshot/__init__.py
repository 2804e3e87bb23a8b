"""Teach an image classifier new classes from five photos each, without forgetting and without retraining.

These are the names to begin with. Each is imported when it is used, so that ``import fiveshot`` takes no time.

Examples
--------
>>> from fiveshot import make_head
>>> head = make_head("ncm").fit([[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.1]], ["owl", "owl", "wren", "wren"])
>>> head.predict([[1.0, 0.1]]).tolist()
['wren']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiveshot.errors import FiveshotError, InputError, StorageError
    from fiveshot.features import load_features
    from fiveshot.heads import make_head
    from fiveshot.recognizer import Recognizer, Region

__version__ = "0.2.0"
__all__ = [
    "FiveshotError",
    "InputError",
    "Recognizer",
    "Region",
    "StorageError",
    "__version__",
    "load_features",
    "make_head",
]

_MODULES = {
    "FiveshotError": "fiveshot.errors",
    "InputError": "fiveshot.errors",
    "StorageError": "fiveshot.errors",
    "load_features": "fiveshot.features",
    "make_head": "fiveshot.heads",
    "Recognizer": "fiveshot.recognizer",
    "Region": "fiveshot.recognizer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fiveshot' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__

"""Teach an image classifier new classes from five photos each, without forgetting and without retraining.

>>> import fiveshot
>>> fiveshot.Recognizer.__name__
'Recognizer'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer as Recognizer

__version__ = "0.1.0"
__all__ = ["Recognizer", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the recogniser when it is asked for: it brings torch, and ``fiveshot --help`` must not."""
    if name == "Recognizer":
        from fiveshot.recognizer import Recognizer

        return Recognizer
    raise AttributeError(f"module 'fiveshot' has no attribute {name!r}")

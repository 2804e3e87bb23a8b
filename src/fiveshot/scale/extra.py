"""Import a library of the extras ``ray`` and ``index``, or say how to install it.

The workers that read images import this and little else: a process that only reads must not load torch first.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fiveshot.errors import InputError


def import_extra(module: str, *, extra: str = "ray") -> Any:
    """Return the imported module; where it is missing, the error says which extra brings it.

    >>> import_extra("no_such_library", extra="index")
    Traceback (most recent call last):
    fiveshot.errors.InputError: this needs no_such_library; install it with: pip install 'fiveshot[index]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise InputError(f"this needs {library}; install it with: pip install 'fiveshot[{extra}]'") from error

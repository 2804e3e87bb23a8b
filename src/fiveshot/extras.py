"""Import a library of an optional extra, or say how to install it.

Light itself: a process that only reads images must not load torch to find out that a library is missing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from fiveshot.errors import InputError

# ONNX Runtime's official builds report events and a device id to their maker unless told not to at the start.
PRIVATE = {"onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"}}


def import_extra(module: str, *, extra: str = "torch") -> Any:
    """Return the imported module; where it is missing, the error says which extra brings it.

    >>> from fiveshot.extras import import_extra
    >>> import_extra("no_such_library", extra="index")
    Traceback (most recent call last):
    fiveshot.errors.InputError: this needs no_such_library; install it with: pip install 'fiveshot[index]'
    """
    for name, value in PRIVATE.get(module, {}).items():
        os.environ.setdefault(name, value)
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise InputError(f"this needs {library}; install it with: pip install 'fiveshot[{extra}]'") from error

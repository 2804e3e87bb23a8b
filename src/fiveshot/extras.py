"""Import a library of an optional extra, or say how to install it; and names of ours when they are used.

Light itself: a process finds out that a library is missing before it has loaded anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fiveshot.errors import InputError

# ONNX Runtime's official builds report events, with a device id, to their makers unless told not to at the start.
PRIVATE = {"onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"}}


def import_extra(module: str, *, extra: str = "torch") -> Any:
    """Return the imported module; where it is missing, the error says which extra brings it.

    Parameters
    ----------
    module : str
        Name of the module, such as ``timm.data``.
    extra : str, default "torch"
        The extra of fiveshot that installs it; an empty text is the package itself.

    Returns
    -------
    module
        The module.

    Raises
    ------
    InputError
        When it is not installed. The hint is the line that installs it.

    Examples
    --------
    >>> from fiveshot.extras import import_extra
    >>> import_extra("no_such_library", extra="plots")
    Traceback (most recent call last):
    fiveshot.errors.InputError: this needs no_such_library; install it with: pip install 'fiveshot[plots]'
    """
    for name, value in PRIVATE.get(module, {}).items():
        os.environ.setdefault(name, value)
    try:
        return import_module(module)
    except ImportError as error:
        raise _missing(module, extra) from error


def require_extra(*modules: str, extra: str = "torch") -> None:
    """Raise where a library is missing, without loading any of those that are there.

    Parameters
    ----------
    *modules : str
        Names of top-level modules.
    extra : str, default "torch"
        The extra of fiveshot that installs them.

    Raises
    ------
    InputError
        When one of them is not installed. The hint is the line that installs it.

    Examples
    --------
    >>> from fiveshot.extras import require_extra
    >>> require_extra("numpy", "no_such_library", extra="plots")
    Traceback (most recent call last):
    fiveshot.errors.InputError: this needs no_such_library; install it with: pip install 'fiveshot[plots]'
    """
    for module in modules:
        if not is_installed(module):
            raise _missing(module, extra)


def imported_name(package: str, modules: Iterable[str], name: str, names: Sequence[str]) -> Any:
    """Return what a name of a package stands for, imported now: the first of its modules to have it.

    A package calls this from its ``__getattr__``, with its modules in the order in which they build on each other.

    >>> imported_name("fiveshot", ("errors", "storage"), "counted", ["counted"])(2, "photo")
    '2 photos'
    """
    for module in modules if name in names else ():
        found = import_module(f"{package}.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def is_installed(module: str) -> bool:
    """Tell whether a top-level module could be imported, without importing it.

    >>> is_installed("numpy"), is_installed("no_such_library")
    (True, False)
    """
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # how an import that is blocked, or half done, answers
        return False


def _missing(module: str, extra: str) -> InputError:
    """Return the error for a library that is not installed."""
    library = module.partition(".")[0]
    what = f"'fiveshot[{extra}]'" if extra else "fiveshot"
    return InputError(f"this needs {library}", hint=f"install it with: pip install {what}", code="missing_library")

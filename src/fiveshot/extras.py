"""Imports on first use: libraries of optional extras, and our own names.

The error for a missing library says how to install it. This module itself imports almost nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fiveshot.errors import InputError

# ONNX Runtime's official builds send events with a device id to Microsoft unless this is set before the import.
PRIVATE = {"onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"}}


def import_extra(module: str, *, extra: str = "torch") -> Any:
    """Import and return a module; if it is missing, the error says which extra installs it.

    Parameters
    ----------
    module : str
        Name of the module, such as ``timm.data``.
    extra : str, default "torch"
        The extra of fiveshot that installs it; empty if fiveshot without extras does.

    Returns
    -------
    module
        The module.

    Raises
    ------
    InputError
        If it is not installed. The hint is the command that installs it.

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
    """Raise an error if a library is missing, without importing any.

    Parameters
    ----------
    *modules : str
        Names of top-level modules.
    extra : str, default "torch"
        The extra of fiveshot that installs them.

    Raises
    ------
    InputError
        If one of them is not installed. The hint is the command that installs it.

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
    """Return a name of a package from the first of its modules that has it.

    A package calls this from its ``__getattr__``, with its modules in the order in which they import each other.

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
    except (ImportError, ValueError):  # a blocked or unfinished import
        return False


def _missing(module: str, extra: str) -> InputError:
    """Return the error for a missing library."""
    library = module.partition(".")[0]
    what = f"'fiveshot[{extra}]'" if extra else "fiveshot"
    return InputError(f"this needs {library}", hint=f"install it with: pip install {what}", code="missing_library")

"""Arguments from Python, where nothing keeps a text from standing for a number: each is checked and named."""

from __future__ import annotations

import os
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fiveshot.backbones.loading import checked_device
from fiveshot.errors import InputError, unknown_name
from fiveshot.features.runner import RUNTIMES


def given_path(value: Any, name: str) -> Path:
    """Return a path, or say that it is none.

    >>> given_path("birds", "path")
    PosixPath('birds')
    >>> given_path(5, "path")
    Traceback (most recent call last):
    fiveshot.errors.InputError: path=5 (int) is no path; give text or a pathlib.Path
    """
    if isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str):
        return Path(value)
    raise InputError(f"{_shown(name, value)} is no path; give text or a pathlib.Path")


def whole_number(value: Any, name: str, *, least: int) -> int:
    """Return a whole number from ``least`` on, or say that it is none.

    >>> whole_number(3, "top", least=1)
    3
    >>> whole_number("3", "top", least=1)
    Traceback (most recent call last):
    fiveshot.errors.InputError: top='3' (str) is no whole number from 1 on; the number itself is wanted
    """
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise InputError(f"{_shown(name, value)} is no whole number from {least} on; the number itself is wanted")
    return number


def number(value: Any, name: str) -> float:
    """Return a number, or say that it is none; a text is none, whatever it says.

    >>> number(0.05, "false_rejection")
    0.05
    """
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{_shown(name, value)} is no number; give one such as 0.05") from None


def yes_or_no(value: Any, name: str) -> bool:
    """Return True or False, or say that it is neither: a text such as ``"no"`` would count as yes.

    >>> yes_or_no(True, "keep_photos")
    True
    """
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{_shown(name, value)} is neither True nor False; give one of the two")
    return bool(value)


def listed(value: Any, name: str) -> list[Any]:
    """Return what may come one by one as a list, or say that it is none.

    >>> listed(iter("ab"), "photos")
    ['a', 'b']
    """
    try:
        return list(value)
    except TypeError:
        raise InputError(f"{_shown(name, value)} is no list; give one entry for each row") from None


def device_name(value: Any) -> str:
    """Return a device that this machine has, or ``auto``, before a model is opened for it."""
    if not isinstance(value, str | torch.device):
        raise InputError(f"{_shown('device', value)} is no device; give 'auto', 'cpu' or 'cuda'")
    if value != "auto":
        checked_device(value)
    return str(value)


def runtime_name(value: Any) -> str:
    """Return what may run the network, or say what may.

    >>> runtime_name("torch")
    'torch'
    """
    if not isinstance(value, str) or value not in RUNTIMES:
        raise unknown_name("runtime", value, RUNTIMES)
    return value


def _shown(name: str, value: object) -> str:
    return f"{name}={value!r:.80} ({type(value).__name__})"

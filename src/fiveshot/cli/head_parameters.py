"""Options that go to heads as their parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fiveshot.errors import InputError

WHOLE = {
    "device": "use --device",
    "calibration": "set its fields: alpha, beta, tau, similarity or prototypes",
    "prior": "set its fields: shrinkage, strength, smoothing, bias or posterior",
    "sampling": "set its fields: per_class or classes",
}


def head_parameters(
    projections: int | None, device: str | None, settings: Iterable[str] = (), *, here: bool = True
) -> dict[str, Any]:
    """Return those that were given, by the names that heads have for them.

    A device must be there, unless heads compute on other machines and not ``here``. ``settings`` are of the
    form NAME=VALUE.

    >>> head_parameters(None, "cpu"), head_parameters(500, None, ["alpha=auto", "gamma=10"])
    ({'device': 'cpu'}, {'alpha': 'auto', 'gamma': 10, 'n_projections': 500})
    """
    from fiveshot.backbones.loading import checked_device

    given: dict[str, Any] = {}
    for name, value in map(_named_value, settings):
        if name in given or (name == "n_projections" and projections is not None):
            raise InputError(f"{name} is given twice; give it once")
        given[name] = value
    if projections is not None:
        given["n_projections"] = projections
    if device is not None:
        given["device"] = str(checked_device(device)) if here else device
    return given


def named_settings(settings: Iterable[str]) -> list[str]:
    """Return the names alone.

    >>> named_settings(["alpha=auto", "gamma=10"])
    ['alpha', 'gamma']
    """
    return [_named_value(text)[0] for text in settings]


def _named_value(text: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise InputError(f"--set takes NAME=VALUE, got {text!r}; for example --set alpha=0.75 or --set alpha=auto")
    if name in WHOLE:
        raise InputError(f"--set cannot set {name!r}; {WHOLE[name]}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a word, such as auto or cosine

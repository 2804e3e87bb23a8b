"""Options that go to heads as their parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fiveshot.errors import InputError

WHOLE = {
    "device": "use --device",
    "calibration": "set its fields: alpha, beta, tau, similarity or prototypes",
    "prior": "set its fields: shrinkage, strength, smoothing, bias or posterior",
    "sampling": "set its fields: per_class or classes",
}


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Read what --set was given, of the form NAME=VALUE.

    >>> parse_settings(["alpha=auto", "gamma=10"])
    {'alpha': 'auto', 'gamma': 10}
    """
    given: dict[str, Any] = {}
    for name, value in map(_named_value, settings):
        if name in given:
            raise _twice(name)
        given[name] = value
    return given


def head_parameters(
    projections: int | None, device: str | None, given: Mapping[str, Any] | None = None, *, here: bool = True
) -> dict[str, Any]:
    """Return those that were given, by the names that heads have for them.

    A device must be there, unless heads compute on other machines and not ``here``.

    >>> head_parameters(None, "cpu"), head_parameters(500, None, {"alpha": "auto"})
    ({'device': 'cpu'}, {'alpha': 'auto', 'n_projections': 500})
    """
    from fiveshot.backbones.loading import checked_device

    parameters = dict(given or {})
    if projections is not None:
        if "n_projections" in parameters:
            raise _twice("n_projections")
        parameters["n_projections"] = projections
    if device is not None:
        parameters["device"] = str(checked_device(device)) if here else device
    return parameters


def _twice(name: str) -> InputError:
    return InputError(f"{name} is given twice; give it once")


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

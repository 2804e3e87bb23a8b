"""Parameters of a head by their short names: ``alpha`` is a field of ``calibration``, ``gamma`` one of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fiveshot.errors import InputError, is_number
from fiveshot.heads.estimator import clone
from fiveshot.heads.head import FewShotHead


def parameter_names(head: FewShotHead) -> list[str]:
    """Return what :func:`with_parameters` can set: a head's own parameters, and the fields of their values.

    >>> from fiveshot.heads import make_head
    >>> sorted(set(parameter_names(make_head("teen"))) - set(parameter_names(make_head("ncm"))))
    ['alpha', 'prototypes', 'similarity', 'tau']
    """
    return sorted({*head.get_params(deep=False), *_fields(head)})


def parameter(head: FewShotHead, name: str) -> Any:
    """Return one parameter.

    >>> from fiveshot.heads import make_head
    >>> parameter(make_head("c-fecam"), "alpha"), parameter(make_head("c-fecam"), "gamma")
    (0.9, 100.0)
    """
    own = head.get_params(deep=False)
    if name in own:
        return own[name]
    fields = _fields(head)
    if name not in fields:
        raise InputError(
            f"{type(head).__name__} as given has no parameter {name!r}",
            hint=f"it has {', '.join(parameter_names(head))}",
            code="unknown_name",
        )
    return getattr(_value(head, fields[name]), name)


def with_parameters(head: FewShotHead, values: Mapping[str, Any]) -> FewShotHead:
    """Return an unfitted copy of the head with other values.

    >>> from fiveshot.heads import make_head
    >>> with_parameters(make_head("teen"), {"alpha": 0.5, "bias": 1.0}).calibration.alpha
    0.5
    """
    changed: FewShotHead = clone(head)
    own = changed.get_params(deep=False)
    changed.set_params(**{name: value for name, value in values.items() if name in own})
    for name in (name for name in values if name not in own):  # fields of what may just have been set
        parameter(changed, name)  # refuses one that it does not have
        owner = _fields(changed)[name]
        changed.set_params(**{owner: dataclasses.replace(_value(changed, owner), **{name: values[name]})})
    return changed


def values_to_try(head: FewShotHead, name: str) -> list[float]:
    """Return the values of one parameter that episodes try beside the head's own.

    >>> from fiveshot.heads import make_head
    >>> values_to_try(make_head("c-fecam"), "alpha"), values_to_try(make_head("c-fecam"), "gamma")
    ([0.5, 0.75, 1.0], [10.0, 1000.0])
    """
    own = parameter(head, name)
    tried = head.tried[name].beside(own) if name in head.tried else []
    if tried:
        return tried
    known = [
        one for one in parameter_names(head) if one in head.tried and head.tried[one].beside(parameter(head, one))
    ]
    raise InputError(
        f"{name!r} of {type(head).__name__} cannot be chosen by episodes",
        hint=f"give it a value; what can be chosen: {', '.join(known) or 'nothing'}",
    )


def is_auto(head: FewShotHead, name: str, value: object) -> bool:
    """Tell whether a value asks for a choice by episodes; where a word can be a value, ``"auto"`` is one.

    >>> from fiveshot.heads import NCM, UnbiasedLDA
    >>> is_auto(NCM(), "bias", "auto"), is_auto(UnbiasedLDA(), "offset", "auto"), is_auto(NCM(), "bias", 0.5)
    (True, False, False)
    """
    asked = isinstance(value, str) and value == "auto"
    return asked and (name in head.tried or is_number(parameter(head, name)))


def _value(head: FewShotHead, name: str) -> Any:
    value = getattr(head, name)
    return head.stands_for.get(name) if value is None else value


def _fields(head: FewShotHead) -> dict[str, str]:
    """Return for each field of a parameter that is a dataclass the name of that parameter."""
    found: dict[str, str] = {}
    for name in head.get_params(deep=False):
        value = _value(head, name)
        if dataclasses.is_dataclass(value):
            found |= {field.name: name for field in dataclasses.fields(value)}
    return {field: name for field, name in found.items() if field not in head.unused_fields}

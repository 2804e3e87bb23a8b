"""Parameters of a head by their short names: ``alpha`` is a field of ``calibration``, ``gamma`` one of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sklearn.base import clone

from fiveshot.errors import InputError
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.two_covariance import Prior

UNSET: Mapping[str, Any] = {"prior": Prior()}  # what a parameter that is None stands for


def parameter_names(head: FewShotHead) -> list[str]:
    """Return what :func:`with_parameters` can set: a head's own parameters, and the fields of their values.

    >>> from fiveshot.heads import make_head
    >>> sorted(set(parameter_names(make_head("teen"))) - set(parameter_names(make_head("ncm"))))
    ['alpha', 'beta', 'prototypes', 'similarity', 'tau']
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
            f"{type(head).__name__} as given has no parameter {name!r}; it has {', '.join(parameter_names(head))}"
        )
    return getattr(_value(head, fields[name]), name)


def with_parameters(head: FewShotHead, values: Mapping[str, Any]) -> FewShotHead:
    """Return an unfitted copy of the head with other values.

    >>> from fiveshot.heads import make_head
    >>> with_parameters(make_head("teen"), {"alpha": 0.5, "bias": 1.0}).calibration.alpha
    0.5
    """
    changed: FewShotHead = clone(head)
    for name, value in values.items():
        parameter(changed, name)  # refuses a name that it does not have
        if name in changed.get_params(deep=False):
            changed.set_params(**{name: value})
        else:
            owner = _fields(changed)[name]
            changed.set_params(**{owner: dataclasses.replace(_value(changed, owner), **{name: value})})
    return changed


def _value(head: FewShotHead, name: str) -> Any:
    value = getattr(head, name)
    return UNSET.get(name) if value is None else value


def _fields(head: FewShotHead) -> dict[str, str]:
    """Return for each field of a parameter that is a dataclass the name of that parameter."""
    found: dict[str, str] = {}
    for name in head.get_params(deep=False):
        value = _value(head, name)
        if dataclasses.is_dataclass(value):
            found |= {field.name: name for field in dataclasses.fields(value)}
    return found

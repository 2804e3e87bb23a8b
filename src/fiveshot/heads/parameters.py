"""Parameters of a head by their short names: ``alpha`` is a field of ``calibration``, ``gamma`` one of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fiveshot.core.lda import Prior
from fiveshot.errors import InputError, is_number
from fiveshot.heads.estimator import clone
from fiveshot.heads.head import FewShotHead

UNSET: Mapping[str, Any] = {"prior": Prior()}  # what a parameter that is None stands for


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
    own = changed.get_params(deep=False)
    changed.set_params(**{name: value for name, value in values.items() if name in own})
    for name in (name for name in values if name not in own):  # fields of what may just have been set
        parameter(changed, name)  # refuses one that it does not have
        owner = _fields(changed)[name]
        changed.set_params(**{owner: dataclasses.replace(_value(changed, owner), **{name: values[name]})})
    return changed


def try_parameters(head: FewShotHead) -> None:
    """Refuse values that the head will not take: a few numbers are learned with them, in place of the real ones.

    >>> from fiveshot.heads import make_head
    >>> try_parameters(make_head("ncm", bias=-1.0))
    Traceback (most recent call last):
    fiveshot.errors.InputError: bias must be finite and not negative, got -1.0; 1 removes the expected bias, 0 none
    """
    smaller = {"n_projections": 8, "n_random": 0}
    own = clone(head).get_params(deep=False)
    tiny = {name: value for name, value in smaller.items() if is_number(own.get(name)) and own[name] > value}
    X = np.arange(24.0).reshape(6, 4) % 5
    with_parameters(head, tiny).fit(X, [0, 0, 0, 1, 1, 1]).partial_fit(X[:2], [2, 2]).predict_proba(X)


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
    return {field: name for field, name in found.items() if field not in head.unused_fields}

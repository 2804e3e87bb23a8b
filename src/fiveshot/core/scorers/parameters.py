"""The parameters of a scorer by name: its own, and the fields of parameters that are dataclasses.

A field is named with its owner (``calibration__alpha``) or, if that is unique, alone (``alpha``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fiveshot.core.calibration import Calibration
from fiveshot.core.draws import Sampling
from fiveshot.core.lda import Prior
from fiveshot.errors import InputError

if TYPE_CHECKING:
    from fiveshot.core.scorers.scorer import Scorer

AnyScorer = TypeVar("AnyScorer", bound="Scorer")
VALUES: dict[str, Any] = {"Calibration": Calibration, "Prior": Prior, "Sampling": Sampling}


def method_name(scorer: Scorer) -> str:
    """Return the name of a scorer's method for messages.

    >>> from fiveshot.core.scorers import FeCAMScorer
    >>> method_name(FeCAMScorer())
    'FeCAM'
    """
    return type(scorer).__name__.removesuffix("Scorer")


def own_parameters(scorer: Scorer) -> dict[str, Any]:
    """Return the parameters of the constructor.

    >>> from fiveshot.core.scorers import FeCAMScorer
    >>> own_parameters(FeCAMScorer(10.0))["gamma"]
    10.0
    """
    return {field.name: getattr(scorer, field.name) for field in dataclasses.fields(scorer)}  # type: ignore[arg-type]


def parameter_names(scorer: Scorer) -> list[str]:
    """Return the names that :func:`with_parameters` can set: own parameters and the fields of their values.

    >>> from fiveshot.core.scorers import make_scorer
    >>> sorted(set(parameter_names(make_scorer("teen"))) - set(parameter_names(make_scorer("ncm"))))
    ['alpha', 'prototypes', 'similarity', 'tau']
    """
    own = own_parameters(scorer)
    return sorted({*own, *field_owners(own, type(scorer))})


def parameter(scorer: Scorer, name: str) -> Any:
    """Return one parameter by its short name.

    >>> from fiveshot.core.scorers import make_scorer
    >>> parameter(make_scorer("c-fecam"), "alpha"), parameter(make_scorer("c-fecam"), "gamma")
    (0.9, 100.0)
    """
    own = own_parameters(scorer)
    if name in own:
        return own[name]
    owners = field_owners(own, type(scorer))
    if name not in owners:
        raise InputError(
            f"{method_name(scorer)} as given has no parameter {name!r}",
            hint=f"it has {', '.join(parameter_names(scorer))}",
            code="unknown_name",
        )
    return getattr(_value(own, owners[name], type(scorer)), name)


def with_parameters(scorer: AnyScorer, values: Mapping[str, Any]) -> AnyScorer:
    """Return an unlearned copy of the scorer with changed parameters.

    >>> from fiveshot.core.scorers import make_scorer
    >>> with_parameters(make_scorer("teen"), {"alpha": 0.5, "bias": 1.0}).calibration.alpha
    0.5
    """
    own = own_parameters(scorer)
    return type(scorer)(**changed_parameters(own, values, type(scorer), str(scorer)))


def check_parameters(scorer: Scorer) -> None:
    """Raise an error for parameters that the class does not allow.

    >>> from fiveshot.core.scorers import make_scorer
    >>> check_parameters(make_scorer("ncm", bias=-1.0))
    Traceback (most recent call last):
    fiveshot.errors.InputError: bias must be finite and not negative, got -1.0; 1 removes ...
    """
    own = own_parameters(scorer)
    for kind in reversed(type(scorer).__mro__):
        for name, allowed in vars(kind).get("ranges", {}).items():
            if name in own:
                allowed.check(name, own[name])


def field_parameters(own: Mapping[str, Any], kind: type[Scorer]) -> dict[str, Any]:
    """Return the fields of parameters that are dataclasses, as ``name__field``."""
    return {
        f"{name}__{field}": getattr(value, field)
        for name, value in own.items()
        for field in _field_names(value, kind)
    }


def field_owners(own: Mapping[str, Any], kind: type[Scorer]) -> dict[str, str]:
    """Return the name of the parameter for each field of a parameter that is a dataclass."""
    return {field: name for name in own for field in _field_names(_value(own, name, kind), kind)}


def changed_parameters(
    own: Mapping[str, Any], changes: Mapping[str, Any], kind: type[Scorer], owner: str
) -> dict[str, Any]:
    """Return the parameters after changes, which are named ``name``, ``name__field`` or ``field``.

    ``owner`` is the name of their owner for errors.
    """
    changed = {name: changes.get(name, value) for name, value in own.items()}
    fields: dict[str, dict[str, Any]] = {}
    owners = field_owners(changed, kind)  # fields of the new values
    for key, value in changes.items():
        if key in own:
            continue
        name, nested, rest = key.partition("__")
        where, field = (name, rest) if nested else (owners.get(name, ""), name)
        if where not in own:
            known = sorted({*own, *owners})
            raise InputError(
                f"Invalid parameter {name!r} for {owner}. Valid parameters are: {known!r}.", code="unknown_name"
            )
        fields.setdefault(where, {})[field] = value
    for name, values in fields.items():
        changed[name] = _with_fields(name, _value(changed, name, kind), values, kind, owner)
    return changed


def _with_fields(name: str, value: Any, changes: Mapping[str, Any], kind: type[Scorer], owner: str) -> Any:
    known = _field_names(value, kind)
    wrong = sorted(changes.keys() - set(known))
    if wrong:
        raise InputError(
            f"Invalid parameter {wrong[0]!r} for {name}={value!r} of {owner}. Valid parameters are: {known!r}.",
            hint="" if known else f"give {name} a value first",
            code="unknown_name",
        )
    return dataclasses.replace(value, **changes)


def _value(own: Mapping[str, Any], name: str, kind: type[Scorer]) -> Any:
    return kind.stands_for.get(name) if own[name] is None else own[name]


def _field_names(value: Any, kind: type[Scorer]) -> list[str]:
    """Return the fields of a dataclass that the scorer reads; empty for other values."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return []
    return [field.name for field in dataclasses.fields(value) if field.name not in kind.unused_fields]


def plain_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON values.

    >>> plain_parameters({"lambdas": (1.0, 10.0), "prior": None})
    {'lambdas': [1.0, 10.0], 'prior': None}
    """
    return {key: _plain(value) for key, value in values.items()}


def read_parameters(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Reverse :func:`plain_parameters`; arrays and lists become tuples.

    >>> read_parameters({"lambdas": [1.0, 10.0], "prior": None})
    {'lambdas': (1.0, 10.0), 'prior': None}
    """
    return {key: _read(value) for key, value in plain.items()}


def _plain(value: Any) -> Any:
    if type(value).__name__ in VALUES:
        fields = dataclasses.asdict(value).items()
        return {"type": type(value).__name__, **{key: _plain(item) for key, item in fields}}
    if type(value).__module__ == "torch":  # a device
        return str(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        fields = dict(value)
        return VALUES[fields.pop("type")](**fields)
    return tuple(value) if isinstance(value, list) else value

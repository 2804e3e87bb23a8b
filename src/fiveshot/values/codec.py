"""One JSON for every value: what ``--json`` prints, HTTP carries, lines and columns hold, and the client reads.

Dataclasses become objects and tuples become lists. An object has an entry for each field, and for each property
that the class names in ``DERIVED``. A field with ``metadata={"json": False}`` stays out of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from fiveshot.errors import InputError

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")
MOST_TOLD = 3  # problems that an error names


def to_json(value: Any) -> Any:
    """Return a value as JSON has it: objects, lists, texts, numbers, true, false and null.

    Parameters
    ----------
    value : dataclass, mapping, sequence or plain value
        The value, and whatever is in it.

    Returns
    -------
    dict, list, str, int, float, bool or None
        What ``json.dumps`` writes.

    Examples
    --------
    >>> from fiveshot.values import Neighbor
    >>> to_json([Neighbor("p17", "owl", 0.93)])
    [{'id': 'p17', 'label': 'owl', 'likeness': 0.93, 'name': None}]
    """
    return _converter().unstructure(value)


def from_json(kind: type[T], values: Any) -> T:
    """Return the value that JSON describes; entries that this release does not know are passed over.

    Parameters
    ----------
    kind : type
        The dataclass that is wanted.
    values : dict
        What ``json.loads`` gave.

    Returns
    -------
    object
        The value.

    Raises
    ------
    InputError
        If an entry is missing, or not of its type.

    Examples
    --------
    >>> from fiveshot.values import Neighbor
    >>> from_json(Neighbor, {"id": "p17", "label": "owl", "likeness": 0.93, "new": True})
    Neighbor(id='p17', label='owl', likeness=0.93, name=None)
    >>> from_json(Neighbor, {"id": "p17", "likeness": "much"})
    Traceback (most recent call last):
    fiveshot.errors.InputError: a Neighbor cannot be read: 'label' is missing; 'likeness' is 'much', not float
    """
    return read_value(_converter(), kind, values)


def read_value(converter: Converter, kind: type[T], values: Any) -> T:
    """Return what a converter makes of plain values, or say in a sentence what is wrong with them."""
    from cattrs import BaseValidationError, transform_error

    try:
        return converter.structure(values, kind)
    except (BaseValidationError, TypeError, ValueError) as error:
        problems = transform_error(error, path="", format_exception=_problem)
        told = [_sentence(problem) for problem in problems[:MOST_TOLD]]
        raise InputError(f"a {kind.__name__} cannot be read: {'; '.join(told)}", code="bad_value") from error


def _problem(error: BaseException, _: object) -> str:
    from cattrs import ForbiddenExtraKeysError

    if isinstance(error, ForbiddenExtraKeysError):
        return f"has unknown entries ({', '.join(sorted(error.extra_fields))})"
    return "is missing" if isinstance(error, KeyError) else str(error)


def _sentence(problem: str) -> str:
    """Return a problem with the name of its entry first; ``transform_error`` has it last."""
    reason, _, place = problem.rpartition(" @ ")
    return f"{place.lstrip('.')!r} {reason}" if place else f"it {reason}"


def make_converter(*, forbid_extra_keys: bool = False) -> Converter:
    """Return a converter that is strict about types: a text is not a number, and True is not 1."""
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    converter = Converter(unstruct_collection_overrides={tuple: list}, forbid_extra_keys=forbid_extra_keys)

    def hidden(kind: type) -> dict[str, Any]:
        return {one.name: override(omit=True) for one in fields(kind) if one.metadata.get("json") is False}

    def writer(kind: type) -> Callable[[Any], dict[str, Any]]:
        plain: Callable[[Any], dict[str, Any]] = make_dict_unstructure_fn(kind, converter, **hidden(kind))
        derived: tuple[str, ...] = getattr(kind, "DERIVED", ())
        if not derived:
            return plain
        return lambda value: plain(value) | {name: getattr(value, name) for name in derived}

    def reader(kind: type) -> Callable[[Any, Any], Any]:
        plain: Callable[[Any, Any], Any] = make_dict_structure_fn(kind, converter, **hidden(kind))

        def structure(values: Any, wanted: Any) -> Any:
            if not isinstance(values, dict):
                raise TypeError(f"is {values!r:.80}, not an object")
            return plain(values, wanted)

        return structure

    converter.register_unstructure_hook_factory(is_dataclass, writer)
    converter.register_structure_hook_factory(is_dataclass, reader)
    for kind in (str, int, bool, float):
        converter.register_structure_hook(kind, _exactly)
    return converter


def _exactly(value: Any, kind: type) -> Any:
    if kind is float and type(value) is int:
        return float(value)  # JSON has one kind of number
    if type(value) is not kind:
        raise TypeError(f"is {value!r:.80}, not {kind.__name__}")
    return value


@cache
def _converter() -> Converter:
    return make_converter()  # on first use: cattrs takes 50 ms to import

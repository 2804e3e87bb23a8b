"""What was typed becomes values, without pydantic.

Typer imports pydantic from release 0.29 on to turn words into numbers and paths, which takes longer than all else
that a short command does. The few types that our options have are converted here; whatever does not fit is left to
Typer, which then says what is wrong. Releases that do it otherwise are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

SIMPLE = (str, int, float, Path)


class Conversion:
    """Takes the place of Typer's own conversion for one parameter."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter, as Typer would."""
        described = self._parameter.type_descriptor
        info = described.parameter_info
        limited = info.min is not None or info.max is not None or info.parser is not None
        try:
            if value is None or not limited:
                return converted(value, described.annotation)
        except (TypeError, ValueError):
            pass
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


def converted(value: Any, annotation: Any) -> Any:
    """Return a typed word, or several, as what the annotation says.

    >>> converted("3", int), converted(("a", "b"), list[Path]), converted("cpu", Literal["cpu", "cuda"])
    (3, [PosixPath('a'), PosixPath('b')], 'cpu')
    """
    if value is None:
        return None if get_origin(annotation) is not list else ()
    if get_origin(annotation) is list:
        (item,) = get_args(annotation)
        return [converted(one, item) for one in value]
    if get_origin(annotation) is Literal and value in get_args(annotation):
        return value
    if annotation in SIMPLE and isinstance(value, str | annotation):
        return annotation(value)
    raise ValueError(f"{value!r} is left to Typer")


def converted_plainly(parameters: Any) -> Any:
    """Return parameters that are converted here, where this release of Typer lets us."""
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", parameter) is None:
            parameter._runtime_param = Conversion(parameter)
    return parameters

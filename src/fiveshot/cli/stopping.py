"""What is said when a command is stopped with Ctrl-C: what has become of its work, and how to go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

KEPT = "what was finished is kept, and the same command goes on from there"


class Stopped(Exception):  # noqa: N818  # an interrupt is no error
    """A command was stopped; the text says what has become of its work."""


def when_stopped(text: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Make a command say this when it is stopped.

    >>> @when_stopped("half of the table is laid")
    ... def lay_the_table():
    ...     raise KeyboardInterrupt
    >>> lay_the_table()
    Traceback (most recent call last):
    fiveshot.cli.stopping.Stopped: half of the table is laid
    """

    def decorate(command: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(command)
        def run(*arguments: Given.args, **options: Given.kwargs) -> Result:
            try:
                return command(*arguments, **options)
            except KeyboardInterrupt:
                raise Stopped(text) from None

        return run

    return decorate

"""The one way to a terminal: names of files and classes come from anywhere, and must not command it.

What people read is made readable, in a pipe too: it ends in a pager, a log or another terminal. Programs get names
as they are with ``--json``, which writes them as JSON does.
"""

from __future__ import annotations

import json

import typer


def echo(text: object, *, err: bool = False) -> None:
    """Print a line on standard output, or on standard error."""
    typer.echo(printable(str(text)), err=err)


def echo_json(value: object) -> None:
    """Print a value for programs, who get every name exactly; JSON in ASCII commands no terminal."""
    typer.echo(json.dumps(value, indent=1).replace("\x7f", "\\u007f"))  # the one control code it lets through


def printable(text: str) -> str:
    """Return text that every terminal can take: odd bytes of file names are shown, control codes are not sent.

    >>> printable("a\\x1b[31m\\udcff.jpg")
    'a\\\\x1b[31m\\\\udcff.jpg'
    """
    return "".join(
        character if character.isprintable() or character in "\n " else ascii(character)[1:-1]
        for character in text
    )

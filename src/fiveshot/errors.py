"""Errors for users: the problem, a hint what to do, and a code for programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, ClassVar, TypeGuard


class FiveshotError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback.

    Parameters
    ----------
    message : str
        What is wrong, with the value that was given.
    hint : str, optional
        What to do or to type instead.
    code : str, optional
        A short word for programs. Each kind of error has its own default.

    Examples
    --------
    >>> error = FiveshotError("no such file: owl.jpg", hint="check the name", code="no_file")
    >>> str(error), error.message, error.hint, error.code
    ('no such file: owl.jpg; check the name', 'no such file: owl.jpg', 'check the name', 'no_file')
    """

    default_code: ClassVar[str] = "error"

    def __init__(self, message: str = "", *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code: str = code or self.default_code

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values: code, message and hint."""
        return {"code": self.code, "message": self.message, "hint": self.hint}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.message, dict(self.__dict__))


class InputError(FiveshotError, ValueError):
    """Data or an option of the caller cannot be used; also a ``ValueError``.

    >>> from fiveshot.backbones import Readout
    >>> try:
    ...     Readout(tokens="clas")
    ... except InputError as error:
    ...     print(error)
    no token readout 'clas'; did you mean 'cls'? choose from cls, cls+mean, mean, own
    """

    default_code = "bad_input"


class StorageError(FiveshotError, OSError):
    """A file cannot be read or written; also an ``OSError``.

    >>> from fiveshot.storage import atomic_path
    >>> try:
    ...     with atomic_path("no/such/folder/note.txt") as path:
    ...         path.touch()
    ... except StorageError as error:
    ...     print(error)
    cannot write no/such/folder/note.txt: the folder no/such/folder does not exist; create it first
    """

    default_code = "storage"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, for messages.

    >>> counted(1, "photo"), counted(2, "base class"), counted(1200, "epoch")
    ('1 photo', '2 base classes', '1,200 epochs')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def command(*words: object) -> str:
    """Return a fiveshot command as users type it, quoted for a shell.

    >>> from pathlib import Path
    >>> command("learn", Path("my model"), "NAME", "PHOTOS")
    "fiveshot learn 'my model' NAME PHOTOS"
    >>> command("show", Path("-x"))
    'fiveshot show ./-x'
    """
    plain = [f"./{one}" if isinstance(one, PurePath) and str(one).startswith("-") else str(one) for one in words]
    return shlex.join(["fiveshot", *plain])


def some_of(names: Sequence[str], shown: int = 5) -> str:
    """Return the first names in one line, and how many more there are.

    >>> some_of(["owl", "wren", "kite"], 2), some_of(["owl", "wren"])
    ('owl, wren and 1 more', 'owl, wren')
    """
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest:,} more" if rest > 0 else "")


def one_line(value: object, most: int = 500) -> str:
    """Return untrusted text for a log: one line, not too long, without terminal codes.

    >>> one_line("7\\nno error: \\x1b[31m")
    '7\\\\nno error: \\\\x1b[31m'
    """
    text = str(value)
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text[:most])
    return shown if len(text) <= most else f"{shown}..."


def is_number(value: object, *, whole: bool = False) -> TypeGuard[float]:
    """Return whether a value is a number; True and False are not.

    >>> is_number(0.5), is_number("0.5"), is_number(True), is_number(2.0, whole=True)
    (True, False, False, False)
    """
    return isinstance(value, Integral if whole else Real) and not isinstance(value, bool)


def unknown_name(kind: str, name: str, choices: Iterable[str], *, elsewhere: str = "") -> InputError:
    """Return the error for a ``name`` that is not among the ``choices`` of a ``kind``, suggesting the nearest.

    ``elsewhere`` is an additional hint. It is given only if no choice is similar.

    >>> print(unknown_name("head", "ranpak", ["ncm", "ranpac"]))
    no head 'ranpak'; did you mean 'ranpac'? choose from ncm, ranpac
    """
    known = sorted(choices)
    near = get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    hint = f"choose from {', '.join(known)}"
    if near:
        hint = f"did you mean {near[0]!r}? {hint}"
    elif elsewhere:
        hint = f"{hint}, {elsewhere}"
    return InputError(f"no {kind} {name!r}", hint=hint, code="unknown_name")


def _rebuilt(kind: type[FiveshotError], message: str, state: dict[str, Any]) -> FiveshotError:
    """Rebuild a pickled error with its hint and code, for other processes."""
    error = kind.__new__(kind, message)
    error.args = (message,)
    error.__dict__.update(state)
    return error

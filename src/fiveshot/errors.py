"""The errors a user can cause: each names the value, what is allowed, and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TypeGuard


class FiveshotError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback.

    >>> from fiveshot.features import load_features
    >>> try:
    ...     load_features("nowhere.npz")
    ... except FiveshotError as error:
    ...     print(error)
    no such file: nowhere.npz
    """


class InputError(FiveshotError, ValueError):
    """The data or an option given by the caller cannot be used; a ``ValueError`` too.

    >>> from fiveshot.backbones import Readout
    >>> try:
    ...     Readout(tokens="clas")
    ... except InputError as error:
    ...     print(error)
    no token readout 'clas'; did you mean 'cls'? choose from cls, cls+mean, mean
    """


class StorageError(FiveshotError, OSError):
    """A file cannot be read or written as asked; an ``OSError`` too.

    >>> from fiveshot.storage import atomic_path
    >>> try:
    ...     with atomic_path("no/such/folder/note.txt") as path:
    ...         path.touch()
    ... except StorageError as error:
    ...     print(error)
    cannot write no/such/folder/note.txt: the folder no/such/folder does not exist; create it first
    """


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, as messages need it.

    >>> counted(1, "photo"), counted(2, "base class"), counted(1200, "epoch")
    ('1 photo', '2 base classes', '1,200 epochs')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def is_number(value: object, *, whole: bool = False) -> TypeGuard[float]:
    """Tell whether a value can be compared and computed with; True and False are no numbers.

    >>> is_number(0.5), is_number("0.5"), is_number(True), is_number(2.0, whole=True)
    (True, False, False, False)
    """
    return isinstance(value, Integral if whole else Real) and not isinstance(value, bool)


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> InputError:
    """Return the error for a ``name`` that is not among the ``choices`` of a ``kind``, suggesting the nearest.

    >>> print(unknown_name("head", "ranpak", ["ncm", "ranpac"]))
    no head 'ranpak'; did you mean 'ranpac'? choose from ncm, ranpac
    """
    known = sorted(choices)
    near = get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return InputError(f"no {kind} {name!r}{hint} choose from {', '.join(known)}")

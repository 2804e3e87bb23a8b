"""The errors a user can cause: each names the value, what is allowed, and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class FiveshotError(Exception):
    """Base of all errors raised on purpose; the command line prints them without a traceback."""


class InputError(FiveshotError, ValueError):
    """The data or an option given by the caller cannot be used."""


class StorageError(FiveshotError, OSError):
    """A file cannot be read or written as asked."""


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> InputError:
    """Return the error for a name that is not among the choices, suggesting the nearest one.

    >>> print(unknown_name("head", "ranpak", ["ncm", "ranpac"]))
    no head 'ranpak'; did you mean 'ranpac'? choose from ncm, ranpac
    """
    known = sorted(choices)
    near = get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return InputError(f"no {kind} {name!r}{hint} choose from {', '.join(known)}")

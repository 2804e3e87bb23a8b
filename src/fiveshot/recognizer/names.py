"""Names of classes: any text a person can read, in one normal form."""

from __future__ import annotations

import unicodedata

from fiveshot.errors import InputError

MAX_LENGTH = 200  # characters; names are stored as text and never used in paths

_REFUSED = {
    "Cc": "a control character",
    "Cs": "a character that is not valid Unicode",
    "Zl": "a line break",
    "Zp": "a line break",
}
_INVISIBLE = frozenset({"Cf", "Mn", "Me", "Zs"})  # joiners, marks and spaces show nothing by themselves


def check_name(text: str) -> str:
    """Return a class name in normal form (NFC, no space around it), or say why it cannot be one.

    >>> check_name("  Bald eagle ")
    'Bald eagle'
    >>> check_name("")
    Traceback (most recent call last):
    fiveshot.errors.InputError: a class name is empty; ...
    """
    if not isinstance(text, str):
        raise InputError(f"a class name must be text, got {text!r} ({type(text).__name__}); use str({text!r})")
    name = unicodedata.normalize("NFC", text).strip()
    if len(name) > MAX_LENGTH:
        raise InputError(
            f"a class name has {len(name):,} characters ({name[:30]!r}...); the limit is {MAX_LENGTH}: shorten it"
        )
    kinds = [unicodedata.category(character) for character in name]
    for character, kind in zip(name, kinds, strict=True):
        if kind in _REFUSED:
            raise InputError(
                f"the class name {name!r} holds {_REFUSED[kind]} (U+{ord(character):04X}); leave it out"
            )
    if all(kind in _INVISIBLE for kind in kinds):
        raise InputError(f"a class name is empty; give 1 to {MAX_LENGTH} visible characters")
    return name

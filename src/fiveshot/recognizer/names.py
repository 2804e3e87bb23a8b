"""Names of classes: any text a person can read, in one normal form."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

from fiveshot.errors import InputError

MAX_LENGTH = 200  # characters; names are stored as text and never used in paths
ALIKE = 0.8  # two names this similar or more may be the same name, misspelled
NONE = "none of these"
"""Stands in the place of a class name for photos that show no class."""
_ANSWERS = frozenset({"unknown", "none", NONE})  # answers that are not classes

_REFUSED = {
    "Cc": "a control character",
    "Cs": "a character that is not valid Unicode",
    "Zl": "a line break",
    "Zp": "a line break",
}
_TURNING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))  # embeddings and overrides
_INVISIBLE = frozenset({"Cf", "Mn", "Me", "Zs"})  # joiners, marks and spaces are invisible on their own


def check_name(text: str) -> str:
    """Return the name of a known or new class in normal form; refuse a name that cannot be used.

    A slash separates a group from a class. No part of a name may be ``.`` or ``..``, as in a path.

    >>> check_name("  Bald eagle ")
    'Bald eagle'
    >>> check_name("None of  these")
    Traceback (most recent call last):
    fiveshot.errors.InputError: a class cannot be called 'None of  these': ...
    """
    name = known_name(text)
    for part in re.split(r"[/\\]", name):
        if _visible(part) in (".", ".."):
            raise _refused(f"the class name {name!r} has a part that is {_visible(part)!r}", "remove that part")
    return name


def known_name(text: str) -> str:
    """Return the normal form of the name of a stored class; earlier releases allowed more names.

    >>> known_name(" ../owl")
    '../owl'
    """
    name = normal_name(text)
    if _plain(name) in _ANSWERS:
        raise InputError(
            f"a class cannot be called {name!r}: this name stands for photos that show no class",
            hint="choose another name; to learn photos that show no class, use learn --none or correct",
            code="reserved_name",
        )
    return name


def target_name(text: str) -> str:
    """Return the name that photos can move to: a class, or ``none of these`` in any spelling.

    >>> target_name("None of these"), target_name(" owl")
    ('none of these', 'owl')
    """
    name = normal_name(text)
    return NONE if _plain(name) in (NONE, "none") else check_name(name)


def stored_name(text: str) -> str:
    """Return the name that photos may be stored under: a class, or ``none of these`` in any spelling.

    >>> stored_name("None of these"), stored_name(" ../owl")
    ('none of these', '../owl')
    """
    name = normal_name(text)
    return NONE if _plain(name) in (NONE, "none") else known_name(name)


def similar_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, with or without its group.

    Names that differ only in a number are different on purpose.

    >>> similar_name("wrn", ["owl", "wren"]), similar_name("Owl", ["bird/owl"]), similar_name("cup 2", ["cup 1"])
    ('wren', 'bird/owl', None)
    """
    folded = name.casefold()
    by_folded = {one.casefold(): one for one in known if one != name and _digits(one) == _digits(name)}
    in_group = [one for one in by_folded if one.endswith(f"/{folded}")]
    near = in_group or get_close_matches(folded, by_folded, 1, ALIKE)
    return by_folded[near[0]] if near else None


def _digits(name: str) -> list[str]:
    return re.findall(r"\d+", name)


def _visible(part: str) -> str:
    return "".join(character for character in part if unicodedata.category(character) not in _INVISIBLE)


def _plain(name: str) -> str:
    return " ".join(re.split(r"[\s_-]+", name.casefold()))


def normal_name(text: str) -> str:
    """Return a name in normal form: NFC, without spaces around it. It need not be the name of a class.

    >>> normal_name("")
    Traceback (most recent call last):
    fiveshot.errors.InputError: a class name is empty; ...
    """
    if not isinstance(text, str):
        raise _refused(f"a class name must be text, got {text!r} ({type(text).__name__})", f"use str({text!r})")
    name = unicodedata.normalize("NFC", text).strip()
    if len(name) > MAX_LENGTH:
        raise _refused(
            f"a class name has {len(name):,} characters ({name[:30]!r}...)",
            f"the limit is {MAX_LENGTH}: shorten it",
        )
    kinds = [unicodedata.category(character) for character in name]
    for character, kind in zip(name, kinds, strict=True):
        wrong = "a mark that changes the direction of the text" if character in _TURNING else _REFUSED.get(kind)
        if wrong:
            raise _refused(f"the class name {name!r} holds {wrong} (U+{ord(character):04X})", "leave it out")
    if all(kind in _INVISIBLE for kind in kinds):
        raise _refused("a class name is empty", f"give 1 to {MAX_LENGTH} visible characters")
    return name


def _refused(message: str, hint: str) -> InputError:
    return InputError(message, hint=hint, code="bad_name")

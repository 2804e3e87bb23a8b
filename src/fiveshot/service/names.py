"""Class names in requests."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path

from fiveshot.errors import InputError
from fiveshot.recognizer.names import check_name
from fiveshot.service.errors import ApiError
from fiveshot.service.outside import SLASH


def checked_name(text: str) -> str:
    """Return a class name in normal form, or the answer that says why it is none.

    >>> checked_name(" owl ")
    'owl'
    """
    try:
        name = check_name(text)
    except InputError as error:
        message, _, hint = str(error).partition("; ")
        raise ApiError(422, "bad_name", message, hint or "choose another name") from error
    if name in (".", ".."):  # browsers take these out of a path, also when they are encoded
        raise ApiError(422, "bad_name", f"a class called {name!r} has no address here", "choose another name")
    return name


async def path_name(
    name: Annotated[str, Path(description="Name of the class, percent-encoded.", examples=["barn owl"])],
) -> str:
    """Return the class name of a path."""
    return checked_name(name.replace(SLASH, "/"))


PathName = Annotated[str, Depends(path_name)]

"""The Hugging Face hub: names of repositories, and its errors as sentences with a way out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fiveshot import __version__
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra

HUB = "hf://"
LIBRARY = {"library_name": "fiveshot", "library_version": __version__}  # what downloads are told to come from
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def repository_name(text: str) -> str:
    """Return OWNER/NAME of a repository; refuse what cannot be one.

    >>> repository_name("hf://me/birds")
    'me/birds'
    """
    name = text.removeprefix(HUB)
    if not _REPOSITORY.fullmatch(name) or ".." in name or "--" in name:
        raise InputError(
            f"{text!r} is not a repository on the hub", hint="write OWNER/NAME, or a folder as ./FOLDER"
        )
    return name


@contextmanager
def hub_errors(shown: object, *, lacking: str, hint: str) -> Iterator[None]:
    """Turn errors of the hub's client into errors with a hint.

    ``lacking`` says what a repository without the wanted file means, and ``hint`` what to do then.
    """
    try:
        yield
    except Exception as error:
        found = _explained(error, lacking, hint)
        if found is None:
            raise
        what, way_out, code = found
        raise StorageError(f"{shown}: {what}", hint=way_out, code=code) from error


def _explained(error: Exception, lacking: str, hint: str) -> tuple[str, str, str] | None:
    """Return a message, a hint and a code for an error of the hub's client; None for other errors."""
    errors = import_extra("huggingface_hub.errors", extra="hub")
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, errors.HfHubHTTPError):
        return _explained(error.__cause__, lacking, hint)  # it only says that the file is not in the cache either
    if isinstance(error, errors.GatedRepoError):
        return "its owner must grant you access", "ask for access on its page", "not_allowed"
    if isinstance(error, errors.RepositoryNotFoundError | errors.RevisionNotFoundError):
        way_out = "check the name and the revision; a private one needs a token: hf auth login"
        return "there is no such repository, or you may not see it", way_out, "not_found"
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return lacking, hint, "not_found"
    if isinstance(error, errors.HfHubHTTPError):
        status = getattr(error.response, "status_code", 0)
        if status == 404:
            return "the hub does not know it", "check the name and the revision", "not_found"
        if status in (401, 403):
            way_out = "log in with a token that allows it: hf auth login, or set HF_TOKEN"
            return "the hub does not allow it", way_out, "not_allowed"
        return f"the hub answers {status}", "try again later", "hub_failed"
    offline = isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled | OSError)
    if offline or type(error).__module__.startswith(("httpx", "requests")):  # depends on the version of the client
        way_out = "check the connection; an address other than huggingface.co is set with HF_ENDPOINT"
        return "the hub cannot be reached", way_out, "no_connection"
    if isinstance(error, json.JSONDecodeError | KeyError | TypeError):  # such as the login page of a network
        return "what answers is not the hub", "check the connection, and HF_ENDPOINT if it is set", "hub_failed"
    # The reason for a failed upload is the cause of its error.
    return _explained(error.__cause__, lacking, hint) if isinstance(error.__cause__, Exception) else None

"""Answers that a client may keep: sent again only when they have changed."""

from __future__ import annotations

from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response


def tagged(request: Request, data: bytes, kind: str, control: str) -> Response:
    """Return data with its tag, or 304 to a client that has it."""
    tag = f'"{sha256(data).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": control, "Content-Type": kind}
    if has(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers)


def has(header: str, tag: str) -> bool:
    """Tell whether ``If-None-Match`` names a tag; a proxy that compresses makes it a weak one.

    >>> has('"a", W/"b"', '"b"'), has("*", '"b"'), has('"a"', '"b"')
    (True, True, False)
    """
    return any(one.strip().removeprefix("W/") in ("*", tag) for one in header.split(","))

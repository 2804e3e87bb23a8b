"""Answer a request whose body nobody wants."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from fiveshot.service.errors import ApiError

PATIENCE = 5.0  # seconds
MOST = 256 * 1024 * 1024  # bytes


async def refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an error in place of an answer, and end the connection.

    A client that is still sending would see a broken connection instead of the answer, so its body is read
    for a moment and thrown away; one that waits to be told to send is not told.
    """
    if Headers(scope=scope).get("expect", "").lower() != "100-continue":
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await _throw_away(receive)
    error.headers.setdefault("Connection", "close")
    await error.response()(scope, receive, send)


async def _throw_away(receive: Receive) -> None:
    seen = 0
    while seen <= MOST:
        message = await receive()
        seen += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return

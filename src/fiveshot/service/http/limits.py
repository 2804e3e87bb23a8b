"""How much of a body is taken, how long it may take, and how much all of them may hold in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import ContextVar

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fiveshot.service.http.errors import ApiError, busy, refuse, too_large
from fiveshot.service.http.gate import STUDIO, client_network
from fiveshot.service.settings import MIB, RequestLimits

PHOTO_PATHS = ("/v1/predict", "/v1/correct", "/v1/negatives", *STUDIO)  # and all that end in /photos
CLIENT: ContextVar[str] = ContextVar("client", default="")
"""Who asks: an address, or a network."""


class Share:
    """Room that clients share: each may hold as much as is left free, so that nobody can take all of it.

    One that takes what it can gets half, two get a third each, and so on; as much is left for the next.

    >>> room = Share(100)
    >>> room.take("a", 50), room.take("a", 1), room.take("b", 25), room.take("c", 12), room.take("b", 1)
    (True, False, True, True, False)
    """

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0
        self._of: Counter[str] = Counter()

    def take(self, client: str, amount: int) -> bool:
        """Take room for a client, if there is enough."""
        if self._of[client] + amount > self.most - self.held:
            return False
        self._of[client] += amount
        self.held += amount
        return True

    def give_back(self, client: str, amount: int) -> None:
        """Let others have it."""
        self.held -= amount
        self._of[client] -= amount
        if not self._of[client]:
            del self._of[client]


class BodyLimits:
    """Reserves room for a body before it is read; a request that does not say how long it is needs the most."""

    def __init__(self, app: ASGIApp, limits: RequestLimits) -> None:
        self._app, self._limits = app, limits
        self._bytes, self._requests = Share(limits.held_bytes), Share(limits.waiting)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request with its body, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        photos, client = takes_photos(scope), client_network(scope["client"][0] if scope.get("client") else "")
        CLIENT.set(client)
        try:
            room = self._room(Headers(scope=scope), photos)
            self._take(client, room, photos)
        except ApiError as error:
            await refuse(error, scope, receive, send)
            return
        try:
            await self._app(scope, _Watched(receive, room, self._limits), send)
        finally:
            self._bytes.give_back(client, room)
            self._requests.give_back(client, int(photos))

    def _take(self, client: str, room: int, photos: bool) -> None:
        if not self._bytes.take(client, room):
            raise busy("many requests are in work already")
        if not self._requests.take(client, int(photos)):
            self._bytes.give_back(client, room)
            raise busy("many requests with photos are in work already")

    def _room(self, headers: Headers, photos: bool) -> int:
        limits = self._limits
        most = limits.body_bytes if photos else limits.plain_bytes
        length = headers.get("content-length")
        if length is not None and "transfer-encoding" in headers:  # two servers may read it in two ways
            raise ApiError(400, "malformed", "the body has a length and is chunked", "send one of the two headers")
        if length is None:
            room = most if "transfer-encoding" in headers else 0
        elif not (length.isascii() and length.isdigit()):
            raise ApiError(400, "malformed", f"a length of {length[:30]!r} is no number", "leave it out")
        else:
            room = int(length)
        if room > most:
            raise too_large(
                f"the request has {_size(room)}, the limit is {_size(most)}", "send fewer photos at once"
            )
        return room


def takes_photos(scope: Scope) -> bool:
    """Tell whether a request may bring photos."""
    path = str(scope["path"]).rstrip("/")  # one slash too many is told as such, not as a size
    return str(scope["method"]) == "POST" and (path in PHOTO_PATHS or path.endswith("/photos"))


def _size(count: int) -> str:
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count:,} bytes"


class _Watched:
    """Gives the pieces of a body as they come, within the limits."""

    def __init__(self, receive: Receive, room: int, limits: RequestLimits) -> None:
        self._receive, self._room, self._limits = receive, room, limits
        self._seen = 0
        self._complete = False
        self._until = asyncio.get_running_loop().time() + limits.body_seconds

    async def __call__(self) -> Message:
        if self._complete:  # what follows is the end of the connection, for which nobody is pressed
            return await self._receive()
        left = self._until - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(left, self._limits.pause_seconds)):
                message = await self._receive()
        except TimeoutError as error:
            raise ApiError(
                408,
                "too_slow",
                "the request took too long to arrive",
                "send it again",
                headers={"Connection": "close"},
            ) from error
        self._seen += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._seen > self._room:
            raise too_large(f"the request is longer than {_size(self._room)}", "send fewer photos at once")
        return message

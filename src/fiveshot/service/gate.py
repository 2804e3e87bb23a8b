"""Who may ask: the right host, no foreign page, a token where there is one, and not too often."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from fiveshot.service.errors import ApiError
from fiveshot.service.refusal import refuse
from fiveshot.service.settings import Settings, is_loopback

SAFE = ("GET", "HEAD", "OPTIONS")
OPEN = ("/v1/health", "/v1/ready", "/v1/openapi.json")  # for anybody: they tell nothing about the classes
CLIENTS = 10_000  # whose rates are remembered


class Gate:
    """Refuses a request before any of its body is read into memory."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._rate = Rate(settings.limits.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except ApiError as error:
            await refuse(error, scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        if scope["method"] not in SAFE:
            check_origin(headers)
        path = scope["path"]
        if path in OPEN:
            return
        client = scope.get("client")
        self._rate.check(client[0] if client else "")
        if self._settings.token is not None and (path.startswith("/v1/") or path == "/metrics"):
            check_token(headers, self._settings.token)

    def _check_host(self, headers: Headers) -> None:
        """A page that lets its own name point here must not get in: without a token only we are called so."""
        host = headers.get("host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self._settings.token is None and not is_loopback(name):
            raise ApiError(421, "wrong_host", f"this is not {host[:100]!r}", "use http://127.0.0.1 or localhost")


def check_origin(headers: Headers) -> None:
    """Refuse changes that a page of another site asks for (CSRF)."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    same = origin is None or origin.partition("://")[2] == headers.get("host")
    if not same or site not in (None, "same-origin", "none"):
        raise ApiError(
            403,
            "foreign_page",
            "a page of another site asked for this",
            "use the service's own page, or no browser",
        )


def check_token(headers: Headers, token: str) -> None:
    """Refuse a request without the token; how far a wrong one is right cannot be told from the time it takes."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    equal = hmac.compare_digest(sha256(given.strip().encode()).digest(), sha256(token.encode()).digest())
    if kind.lower() != "bearer" or not equal:
        raise ApiError(
            401,
            "no_token" if not given else "wrong_token",
            "this service wants a token" if not given else "this is not the token",
            "send the header: Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )


class Rate:
    """A bucket for each client: it fills at a constant rate, and every request takes one out."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(1.0, 2 * rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is in it, and since when

    def check(self, client: str) -> None:
        """Count a request of a client, or refuse it."""
        now = time.monotonic()
        left, since = self._buckets.pop(client, (self._most, now))
        left = min(self._most, left + (now - since) * self._rate)
        self._buckets[client] = (max(left - 1, 0), now)
        while len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = max(1, round((1 - left) / self._rate))
            raise ApiError(
                429,
                "too_often",
                f"more than {self._rate:g} requests a second",
                f"wait {wait} s",
                headers={"Retry-After": str(wait)},
            )

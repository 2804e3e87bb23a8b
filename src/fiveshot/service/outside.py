"""The outermost layer: security headers on every answer, counters, and class names in paths."""

from __future__ import annotations

import logging
import time
from secrets import token_hex
from urllib.parse import unquote_to_bytes

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fiveshot.service.errors import ApiError
from fiveshot.service.metrics import Metrics

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
SLASH = "\0"  # stands for a slash within a name while a path is split at the others; no name can hold it
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
log = logging.getLogger("fiveshot.service")


class Outside:
    """Wraps everything else, so that no answer leaves without headers and without being counted.

    What is answered before there is a request (``GuardedProtocol``) has the same headers and is not counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, answered = time.perf_counter(), 500, False
        # HEAD is GET whose body the server leaves out.
        inner = dict(scope) | {"method": "GET"} if scope["method"] == "HEAD" else scope

        async def send_with_headers(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            try:
                inner["path"] = split_path(scope.get("raw_path") or scope["path"].encode())
            except ApiError as error:
                await error.response()(scope, receive, send_with_headers)
                return
            await self._app(inner, receive, send_with_headers)
        except Exception:
            number = token_hex(4)
            log.error("request %s has failed: %s %s", number, scope["method"], route_of(inner))
            if not answered:
                await failed(number).response()(scope, receive, send_with_headers)
            raise  # to the log
        finally:
            route = route_of(inner)
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - began)


def route_of(scope: Scope) -> str:
    """Return the route that a request took, which holds no name of a class."""
    return getattr(scope.get("route"), "path", "none")


def failed(number: str) -> ApiError:
    """Return the answer to a request that met an unexpected error; the log has the rest under its number."""
    return ApiError(500, "failed", "the service has failed", f"see {number} in the service's log")


def split_path(raw: bytes) -> str:
    """Return a path whose parts are decoded one by one, so that ``%2F`` belongs to a name.

    >>> split_path(b"/v1/classes/a%2Fb/photos")
    '/v1/classes/a\\x00b/photos'
    """
    try:
        parts = [unquote_to_bytes(part).decode("utf-8") for part in raw.partition(b"?")[0].split(b"/")]
    except UnicodeDecodeError as error:
        raise ApiError(
            400, "bad_path", "the path is not UTF-8", "encode names as encodeURIComponent does"
        ) from error
    if any(SLASH in part for part in parts):
        raise ApiError(400, "bad_path", "the path holds a zero byte", "leave it out")
    return "/".join(part.replace("/", SLASH) for part in parts)

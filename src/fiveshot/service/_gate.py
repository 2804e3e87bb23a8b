"""Checks before every route: headers and counters, access, and limits on bodies."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import time
from base64 import b64decode
from collections import OrderedDict, defaultdict
from contextvars import ContextVar
from hashlib import sha256
from secrets import token_hex
from typing import Any
from urllib.parse import unquote_to_bytes

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fiveshot.service._errors import ApiError, busy, refuse, too_large
from fiveshot.service.settings import MIB, RequestLimits, Settings, is_loopback

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
INNER_SLASH = "\0"  # replaces a slash within a name while a path is split at other slashes; no name can contain it
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SAFE = ("GET", "HEAD", "OPTIONS")
OPEN = ("/v1/health", "/v1/ready", "/v1/openapi.json")  # no token needed: they say nothing about the classes
STUDIO = ("/setup", "/predict", "/train", "/webhook", "/versions")  # called by Label Studio, like /health
GUARDED = ("/metrics", *STUDIO)  # and everything that begins with /v1/
RECOGNIZING = ("/v1/predict", "/predict", "/setup")  # sent by POST, though they change nothing
CLIENTS = 10_000  # clients whose rates are remembered
log = logging.getLogger("fiveshot.service")


class HeadersAndCounters:
    """Wraps everything else, so that every reply has the headers and is counted.

    The ``Guard`` of a connection may answer before there is a request. Its replies have the same headers and are
    not counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, answered = time.perf_counter(), 500, False
        # HEAD is GET, and the server leaves out the body.
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
            log.error("request %s failed: %s %s", number, scope["method"], route_of(inner))
            if not answered:
                await failed(number).response()(scope, receive, send_with_headers)
            raise  # to the log
        finally:
            route = route_of(inner)
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - began)


def route_of(scope: Scope) -> str:
    """Return the route of a request, without the name of a class."""
    return getattr(scope.get("route"), "path", "none")


def failed(number: str) -> ApiError:
    """Return the reply for an unexpected error. The log has the details under the number of the request."""
    hint = f"see {number} in the service's log"
    # The server closes the connection afterwards, so clients must not send another request on it.
    return ApiError(500, "failed", "the service failed", hint, headers={"Connection": "close"})


def split_path(raw: bytes) -> str:
    """Return a path whose parts are decoded separately, so that ``%2F`` belongs to a name.

    >>> split_path(b"/v1/classes/a%2Fb/photos")
    '/v1/classes/a\\x00b/photos'
    """
    try:
        parts = [unquote_to_bytes(part).decode("utf-8") for part in raw.partition(b"?")[0].split(b"/")]
    except UnicodeDecodeError as error:
        raise ApiError(
            400, "bad_path", "the path is not UTF-8", "encode names as encodeURIComponent does"
        ) from error
    if any(INNER_SLASH in part for part in parts):
        raise ApiError(400, "bad_path", "the path contains a zero byte", "leave it out")
    return "/".join(part.replace("/", INNER_SLASH) for part in parts)


class AccessControl:
    """Refuses a request before its body is read, or reserves memory for the body.

    A request without a length gets the maximum.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings, limits = app, settings, settings.limits
        self._rate = Rate(limits.rate)
        self._bytes, self._requests = SharedCapacity(limits.held_bytes), SharedCapacity(limits.waiting)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        photos, client = takes_photos(scope), client_network(scope["client"][0] if scope.get("client") else "")
        CURRENT_CLIENT.set(client)
        try:
            self._check(scope, client)
            room = self._room(Headers(scope=scope), photos)
            self._take(client, room, photos)
        except ApiError as error:
            await refuse(error, scope, receive, send)
            return
        try:
            await self._app(scope, _LimitedBody(receive, room, self._settings.limits), send)
        finally:
            self._bytes.give_back(client, room)
            self._requests.give_back(client, int(photos))

    def _check(self, scope: Scope, client: str) -> None:
        headers = Headers(scope=scope)
        self._check_host(headers)
        if scope["method"] not in SAFE:
            check_origin(headers)
        path = scope["path"]
        if path in OPEN:
            return
        self._rate.check(client)
        if self._settings.token is not None and (path.startswith("/v1/") or path in GUARDED):
            check_token(headers, self._settings.token, basic=path in STUDIO)
        if self._settings.read_only and changes_model(scope["method"], path):
            raise ApiError(
                403,
                "read_only",
                "the model is served read-only, so it cannot be changed here",
                "change it with the fiveshot command, or serve it without --read-only",
            )

    def _check_host(self, headers: Headers) -> None:
        """Refuse foreign host names without a token: a page may let its own name point here (DNS rebinding)."""
        host = headers.get("host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self._settings.token is None and not is_loopback(name):
            raise ApiError(421, "wrong_host", f"this is not {host[:100]!r}", "use http://127.0.0.1 or localhost")

    def _take(self, client: str, room: int, photos: bool) -> None:
        if not self._bytes.take(client, room):
            raise busy("many requests are in progress already")
        if not self._requests.take(client, int(photos)):
            self._bytes.give_back(client, room)
            raise busy("many requests with photos are in progress already")

    def _room(self, headers: Headers, photos: bool) -> int:
        limits = self._settings.limits
        most = limits.body_bytes if photos else limits.plain_bytes
        length = headers.get("content-length")
        if length is not None and "transfer-encoding" in headers:  # two servers may interpret it differently
            raise ApiError(400, "malformed", "the body has a length and is chunked", "send one of the two headers")
        if length is None:
            room = most if "transfer-encoding" in headers else 0
        elif not (length.isascii() and length.isdigit()):
            raise ApiError(400, "malformed", f"a length of {length[:30]!r} is not a number", "leave it out")
        else:
            room = int(length)
        if room > most:
            raise too_large(
                f"the request has {_size(room)}, the limit is {_size(most)}", "send fewer photos at once"
            )
        return room


def changes_model(method: str, path: str) -> bool:
    """Tell whether a request may change the model: all but looking, recognizing, and sorting without learning.

    >>> changes_model("POST", "/v1/predict"), changes_model("POST", "/v1/sort/7/photos")
    (False, False)
    >>> changes_model("POST", "/v1/undo"), changes_model("POST", "/v1/sort/7/learn")
    (True, True)
    """
    if method in SAFE or path in RECOGNIZING:
        return False
    sorts = path == "/v1/sort" or path.startswith("/v1/sort/")
    return not sorts or path.endswith("/learn")


def check_origin(headers: Headers) -> None:
    """Refuse changes that a page of another site requests (CSRF)."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    same = origin is None or origin.partition("://")[2] == headers.get("host")
    if not same or site not in (None, "same-origin", "none"):
        raise ApiError(
            403,
            "foreign_page",
            "a page of another site made this request",
            "use the page of the service, or a program instead of a browser",
        )


def check_token(headers: Headers, token: str, *, basic: bool = False) -> None:
    """Refuse a request without the token. The comparison takes the same time for every wrong token.

    With ``basic``, the token may also be the password of any user, as Label Studio sends it.
    """
    kind, _, given = headers.get("authorization", "").partition(" ")
    if basic and kind.lower() == "basic":
        kind, given = "bearer", _password(given)
    equal = hmac.compare_digest(sha256(given.strip().encode()).digest(), sha256(token.encode()).digest())
    if kind.lower() != "bearer" or not equal:
        raise ApiError(
            401,
            "no_token" if not given else "wrong_token",
            "this service needs a token" if not given else "the token is wrong",
            "send the header: Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )


def _password(given: str) -> str:
    """Return the password of ``user:password`` in base64, or an empty text."""
    try:
        return b64decode(given.strip(), validate=True).decode("utf-8").partition(":")[2]
    except ValueError:
        return ""


def client_network(address: str) -> str:
    """Return what is counted as one client: an IPv4 address, or the network of an IPv6 address.

    >>> client_network("192.0.2.7"), client_network("2001:db8::7"), client_network("")
    ('192.0.2.7', '2001:db8::/64', '')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else str(found)


class Rate:
    """A token bucket for each client: it fills at a constant rate, and every request takes one token."""

    def __init__(self, rate: float) -> None:
        self._rate, self._most = rate, max(1.0, 2 * rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, time of the last update

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


PHOTO_PATHS = ("/v1/predict", "/v1/correct", "/v1/negatives", *STUDIO)  # and all paths that end in /photos
CURRENT_CLIENT: ContextVar[str] = ContextVar("client", default="")
"""A client: an address or a network."""


class SharedCapacity:
    """Capacity that clients share: a client may hold at most as much as stays free, so no client can take
    everything.

    One greedy client gets half, two get a third each, and so on; the same amount stays free for the next.

    >>> room = SharedCapacity(100)
    >>> room.take("a", 50), room.take("a", 1), room.take("b", 25), room.take("c", 12), room.take("b", 1)
    (True, False, True, True, False)
    """

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0
        self._of: defaultdict[str, int] = defaultdict(int)

    def take(self, client: str, amount: int) -> bool:
        """Reserve capacity for a client, if there is enough."""
        if self._of[client] + amount > self.most - self.held:
            return False
        self._of[client] += amount
        self.held += amount
        return True

    def give_back(self, client: str, amount: int) -> None:
        """Release capacity."""
        self.held -= amount
        self._of[client] -= amount
        if not self._of[client]:
            del self._of[client]


def takes_photos(scope: Scope) -> bool:
    """Return whether a request may contain photos."""
    path = str(scope["path"]).rstrip("/")  # a trailing slash gives its own error, not one about the size
    return str(scope["method"]) == "POST" and (path in PHOTO_PATHS or path.endswith("/photos"))


def _size(count: int) -> str:
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count:,} bytes"


class _LimitedBody:
    """Passes on the chunks of a body and enforces the limits."""

    def __init__(self, receive: Receive, room: int, limits: RequestLimits) -> None:
        self._receive, self._room, self._limits = receive, room, limits
        self._seen = 0
        self._complete = False
        self._until = asyncio.get_running_loop().time() + limits.body_seconds

    async def __call__(self) -> Message:
        if self._complete:  # only the end of the connection follows, without a time limit
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


PHOTOS_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters of one service. Each service has its own registry, so several can run in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: Any = {"namespace": "fiveshot", "registry": self.registry}
        whole = "Time from a request's headers to the end of its answer."
        self.requests = Counter("requests", "Requests answered.", ["method", "route", "status"], **own)
        self.seconds = Histogram("request_seconds", whole, ["route"], buckets=SECONDS_BUCKETS, **own)
        self.batches = Histogram("batch_photos", "Photos in a forward pass.", buckets=PHOTOS_BUCKETS, **own)
        self.forward = Histogram("forward_seconds", "Duration of a forward pass.", buckets=SECONDS_BUCKETS, **own)
        self.photos = Counter("photos", "Photos learned or predicted.", ["use"], **own)
        self.pending = Gauge("pending_photos", "Photos in progress.", **own)
        self.classes = Gauge("classes", "Classes in the model.", **own)
        self.state = Gauge("state", "Changes of the model so far.", **own)

    def text(self) -> bytes:
        """Return everything in Prometheus's text format."""
        text: bytes = generate_latest(self.registry)
        return text

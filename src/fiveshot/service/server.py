"""Run the application until it is stopped, with time limits for connections.

uvicorn speaks HTTP. Two layers around it use only its public interface. A :class:`Guard` is between each
connection and uvicorn's protocol, and sees the bytes in both directions. :class:`ReportingApp` is between uvicorn
and the application, and reports the progress of a request to the guard.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fiveshot.service._errors import ApiError, busy
from fiveshot.service._gate import HEADERS, client_network
from fiveshot.service.settings import RequestLimits, Settings, is_loopback

HEADER_BYTES = 32 * 1024
GUARD = "guard"  # key of the connection's guard in the state of a request
MALFORMED = b"HTTP/1.1 400 "  # how uvicorn's own answer to invalid HTTP begins


class Guard(asyncio.Protocol):
    """A connection with a deadline in every state; the number of connections is limited.

    At any time a connection has one or more reasons to stay open: it waits for headers, for an answer, for the
    client to read, and so on. Each reason has its own limit, counted from when it began, so that no client can
    extend it by sending or reading a byte now and then. When the first limit is reached, the service closes the
    connection.

    Parameters
    ----------
    limits : RequestLimits
        How long each reason lasts, and how many connections there may be.
    addresses : Counter
        How many connections each address has, counted here for all guards of a server.
    protocol : callable
        Returns uvicorn's protocol, which speaks HTTP.
    app_state : dict
        What uvicorn gives to every request.
    **given : Any
        What else uvicorn gives to its protocol.
    """

    def __init__(
        self,
        *,
        limits: RequestLimits,
        addresses: Counter[str],
        protocol: Callable[..., asyncio.Protocol],
        app_state: dict[str, Any],
        **given: Any,
    ) -> None:
        self._limits, self._addresses = limits, addresses
        self._inner = protocol(app_state={**app_state, GUARD: self}, **given)
        self._until: dict[str, float] = {}  # when each reason to stay open ends
        self._timer: asyncio.TimerHandle | None = None
        self._unread = False  # the client reads more slowly than the service writes
        self._headers = True  # waiting for the beginning of a request
        self._requests, self._answers = 0, 0
        self._rest = False  # the last request is answered, but its body was not read to the end
        self._started = False  # the application has begun to answer
        self.announced: int | None = None  # status of the answer that the application is about to write

    # Called by asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it if there are too many."""
        transport.set_write_buffer_limits(high=0)  # writing is paused exactly while unsent bytes are waiting
        self._loop, self._transport = asyncio.get_running_loop(), transport
        self._old_at = self._loop.time() + self._limits.connection_seconds
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if peer else ""
        self._address = client_network(host)
        self._taken = self._has_room(host)
        if self._taken:
            self._addresses[self._address] += 1
            self._inner.connection_made(_Outgoing(transport, self))
            self.watch()
        else:
            self.end(busy("there are too many connections"))

    def _has_room(self, host: str) -> bool:
        limits, most = self._limits, self._limits.connections
        kept = min(limits.loopback_connections, most // 2)  # reserved for clients on this machine
        near = is_loopback(host)
        free = (most if near else most - kept) - self._addresses.total()
        # An address may have as many connections as stay free: two greedy addresses get a third each.
        own = self._addresses[self._address]
        return free > 0 and own < min(limits.address_connections, max(free, kept if near else 0))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._taken:
            self._addresses[self._address] -= 1
            if not self._addresses[self._address]:
                del self._addresses[self._address]
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive a chunk of a request."""
        if self._taken and not self._transport.is_closing():
            self._headers = self._headers or self._requests == self._answers
            self._inner.data_received(data)
            self.watch()

    def eof_received(self) -> bool | None:
        """Note that the client sends nothing more."""
        return self._inner.eof_received() if self._taken else None

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than the service writes."""
        self._unread = True
        self._inner.pause_writing()
        self.watch()

    def resume_writing(self) -> None:
        """Note that the client has read everything."""
        self._unread = False
        self._inner.resume_writing()
        self.watch()

    # Called by the application.

    @property
    def is_old(self) -> bool:
        """Whether the connection should close after the next answer."""
        return self._loop.time() > self._old_at

    def begin_request(self) -> None:
        """Note that the headers of a request were received."""
        self._requests += 1
        self._headers = self._rest = self._started = False
        self.watch()

    def begin_answer(self, status: int) -> None:
        """Note that an answer is about to be written."""
        self._started, self.announced = True, status

    def end_answer(self, *, rest: bool) -> None:
        """Note that a request is answered; the rest of its body may still arrive."""
        self._answers += 1
        self._rest = rest
        self.watch()

    # Closing the connection.

    def _reasons(self) -> dict[str, float]:
        """Return the present reasons to keep the connection open, with the seconds that each may last."""
        limits, found = self._limits, {}
        if self._unread:
            found["unread"] = limits.read_seconds
        if self._transport.is_closing():
            found["closing"] = limits.linger_seconds
        elif self._answers < self._requests:
            found[f"answer {self._requests}"] = limits.answer_seconds
        elif self._rest:
            found[f"rest {self._requests}"] = limits.linger_seconds
        elif self._headers:
            found["headers"] = limits.header_seconds
        else:
            found[f"idle {self._requests}"] = limits.idle_seconds
        return found

    def watch(self) -> None:
        """Set the timer to the first deadline; unchanged reasons keep their deadlines."""
        now = self._loop.time()
        self._until = {why: self._until.get(why, now + limit) for why, limit in self._reasons().items()}
        first = min(self._until.values())
        if self._timer is not None:
            if self._timer.when() == first and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(first, self._hang_up)

    def _hang_up(self) -> None:
        """Close a connection after its deadline; with an answer, if the client can still read one."""
        why = min(self._until, key=self._until.__getitem__)
        if why == "headers":
            self.end(ApiError(408, "too_slow", "the request took too long to arrive", "send it again"))
        elif why.startswith("answer") and not self._started:
            hint = "the request may still succeed: check before you send it again"
            self.end(ApiError(504, "no_answer", "the answer took too long", hint))
        else:
            self._transport.abort()  # close() would wait until everything is sent

    def end(self, error: ApiError) -> None:
        """Answer without the application, and close the connection."""
        if self._transport.is_closing():
            return
        body = json.dumps(error.as_dict()).encode()
        headers = HEADERS | {
            "Cache-Control": "no-store",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **error.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._transport.write(f"HTTP/1.1 {error.status} \r\n{lines}\r\n".encode() + body)
        self._transport.close()
        self.watch()


class _Outgoing(asyncio.Transport):
    """The connection that uvicorn writes to. uvicorn's own answer to invalid HTTP is replaced by ours."""

    def __init__(self, transport: asyncio.Transport, guard: Guard) -> None:
        super().__init__()
        self._transport, self._guard = transport, guard

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        if self._transport.is_closing():
            return
        announced, self._guard.announced = self._guard.announced, None
        if bytes(data[: len(MALFORMED)]) == MALFORMED and announced != 400:  # not an answer of the application
            hint = "send one Host and one length, and percent-encode names in the address: %20 for a space"
            self._guard.end(ApiError(400, "malformed", "this is not a valid HTTP request", hint))
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after everything is sent."""
        self._transport.close()
        self._guard.watch()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the connection is closing."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known about the connection."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Stop reading for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue reading."""
        self._transport.resume_reading()


class ReportingApp:
    """Reports to the guard of a connection when a request begins and when it is answered.

    Parameters
    ----------
    app : ASGI application
        What answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guard: Guard = scope["state"][GUARD]
        headers = Headers(scope=scope)
        rest = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"

        async def reported_receive() -> Message:
            nonlocal rest
            message = await receive()
            rest = rest and bool(message.get("more_body", False))
            return message

        async def reported_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                guard.begin_answer(message["status"])
                if guard.is_old:
                    MutableHeaders(scope=message)["Connection"] = "close"
            last = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)
            if last:
                guard.end_answer(rest=rest)

        guard.begin_request()
        await self._app(scope, reported_receive, reported_send)


def make_server(app: FastAPI, settings: Settings, **given: Any) -> uvicorn.Server:
    """Return a server for the application. Its ``run`` and ``serve`` need the socket of ``settings.listen``."""
    # A loaded configuration has the protocol class that "h11" names; the guard wraps its objects.
    plain = uvicorn.Config(app, http="h11", ws="none", log_config=None)
    plain.load()
    guard: Any = partial(Guard, limits=settings.limits, addresses=Counter(), protocol=plain.http_protocol_class)
    config = uvicorn.Config(
        ReportingApp(app),
        http=guard,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=ceil(settings.limits.idle_seconds) + 1,
        timeout_graceful_shutdown=settings.drain,
        h11_max_incomplete_event_size=HEADER_BYTES,
        **given,
    )
    return uvicorn.Server(config)

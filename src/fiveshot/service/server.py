"""Run the application until it is told to end, on connections that cannot be held open at will."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from math import ceil
from typing import Any, ClassVar

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from fiveshot.service._errors import ApiError, busy
from fiveshot.service._gate import HEADERS, client_network
from fiveshot.service.settings import RequestLimits, Settings, is_loopback

HEADER_BYTES = 32 * 1024


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 on connections that have a deadline in every state, and whose number is limited.

    At any time a connection has one or more reasons to stay open: it waits for headers, for an answer, for the
    client to read, and so on. Each reason has its own limit, counted from when it began, so that no client can
    extend it by sending or reading a byte now and then. When the first limit is reached, the service hangs up.
    """

    limits = RequestLimits()
    addresses: ClassVar[Counter[str]] = Counter()  # connections of each; every server has its own counter

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or say that there are too many."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused exactly while bytes are not sent
        self._until: dict[str, float] = {}  # when each reason to stay open ends
        self._timer: asyncio.TimerHandle | None = None
        self._requests = 0
        self._old_at = self.loop.time() + self.limits.connection_seconds
        self._address = client_network(self.client[0] if self.client else "")
        self._taken = self._has_room()
        if self._taken:
            self.addresses[self._address] += 1
            self._watch()
        else:
            self._end(busy("there are too many connections"))

    def _has_room(self) -> bool:
        limits, most = self.limits, self.limits.connections
        kept = min(limits.loopback_connections, most // 2)  # clients on this machine still get in
        near = self.client is not None and is_loopback(self.client[0])
        free = (most if near else most - kept) - self.addresses.total()
        # An address may have as many as it leaves to others: two that take what they can have a third each.
        own = self.addresses[self._address]
        return free > 0 and own < min(limits.address_connections, max(free, kept if near else 0))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._taken:
            self.addresses[self._address] -= 1
            if not self.addresses[self._address]:
                del self.addresses[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        """Begin to answer requests; the last answer on an old connection says that it is the last."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._requests += 1
            if self.loop.time() > self._old_at:
                self.cycle.default_headers = [*self.cycle.default_headers, (b"connection", b"close")]

    def on_response_complete(self) -> None:
        """Go on after an answer."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as it is answered."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Note that the client has read everything."""
        super().resume_writing()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        hint = "send one Host and one length, and percent-encode names in the address: %20 for a space"
        self._end(ApiError(400, "malformed", "this is not a valid HTTP request", hint))

    def _reasons(self) -> dict[str, float]:
        """Return why the connection stays open just now, with the seconds that each reason may last."""
        limits, found = self.limits, {}
        if self.flow.write_paused:
            found["unread"] = limits.read_seconds
        if self.transport.is_closing():
            found["closing"] = limits.linger_seconds
        elif self.cycle is not None and not self.cycle.response_complete:
            found[f"answer {self._requests}"] = limits.answer_seconds
        elif self.conn.their_state is h11.SEND_BODY:  # answered, and the body is still to come
            found["rest"] = limits.linger_seconds
        elif self.cycle is None or self.conn.trailing_data[0]:
            found["headers"] = limits.header_seconds
        else:
            found["idle"] = limits.idle_seconds
        return found

    def _watch(self) -> None:
        """Set the timer to the first deadline; reasons that have not changed keep theirs."""
        now = self.loop.time()
        self._until = {why: self._until.get(why, now + limit) for why, limit in self._reasons().items()}
        first = min(self._until.values())
        if self._timer is not None:
            if self._timer.when() == first and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(first, self._hang_up)

    def _hang_up(self) -> None:
        """End a connection whose time is over; with an answer, if that can still be read."""
        why = min(self._until, key=self._until.__getitem__)
        if why == "headers":
            self._end(ApiError(408, "too_slow", "the request took too long to arrive", "send it again"))
        elif why.startswith("answer") and not self.cycle.response_started:
            hint = "it may still be done: look before you send it again"
            self._end(ApiError(504, "no_answer", "the answer took too long", hint))
        else:
            self.transport.abort()  # closing would wait until everything is sent

    def _end(self, error: ApiError) -> None:
        """Answer outside of the application, and close the connection."""
        if self.transport.is_closing():
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
        self.transport.write(f"HTTP/1.1 {error.status} \r\n{lines}\r\n".encode() + body)
        self.transport.close()
        self._watch()


def make_server(app: FastAPI, settings: Settings, **given: Any) -> uvicorn.Server:
    """Return a server for the application; ``run`` and ``serve`` take the socket of ``settings.listen``."""
    protocol = type("Protocol", (GuardedProtocol,), {"limits": settings.limits, "addresses": Counter()})
    config = uvicorn.Config(
        app,
        http=protocol,
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

"""Run the application until it is told to end."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from fiveshot.errors import InputError
from fiveshot.service.http.errors import ApiError, busy
from fiveshot.service.http.gate import HEADERS
from fiveshot.service.settings import RequestLimits, Settings

HEADER_BYTES = 32 * 1024
KEEP_ALIVE = 20  # seconds that an idle connection stays open


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 that does not wait forever for headers, and takes a limited number of connections."""

    limits = RequestLimits()
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or say that there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._end(busy("there are too many connections"))
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a piece of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._stop_watching()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        hint = "send one Host and one length, and percent-encode names in the address: %20 for a space"
        self._end(ApiError(400, "malformed", "this is not a valid HTTP request", hint))

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.header_seconds, self._too_slow)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._end(ApiError(408, "too_slow", "the request took too long to arrive", "send it again"))

    def _end(self, error: ApiError) -> None:
        """Answer outside of the application, and hang up."""
        self._stop_watching()
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


def make_server(app: FastAPI, settings: Settings, **given: Any) -> uvicorn.Server:
    """Return a server for the application; ``run`` and ``serve`` take the socket of ``listen``."""
    protocol = type("Protocol", (GuardedProtocol,), {"limits": settings.limits})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=settings.drain,
        h11_max_incomplete_event_size=HEADER_BYTES,
        **given,
    )
    return uvicorn.Server(config)


def listen(settings: Settings) -> socket.socket:
    """Open the port; a port that is taken and a host that is not this machine are errors."""
    host = settings.host.strip("[]")
    try:
        found = socket.getaddrinfo(host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(found[0][4][:2], family=found[0][0], backlog=256)
    except (OSError, UnicodeError) as error:  # the latter: a name that no host can have
        reason = (isinstance(error, OSError) and error.strerror) or error
        wrong_host = isinstance(error, socket.gaierror | UnicodeError) or error.errno == errno.EADDRNOTAVAIL
        hint = (
            "choose an address of this machine with --host, such as 127.0.0.1"
            if wrong_host
            else "choose another with --port, or --port 0 for any that is free"
        )
        raise InputError(f"cannot listen on {settings.host}:{settings.port} ({reason})", hint=hint) from error


def address(sock: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

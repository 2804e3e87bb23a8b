"""Small servers of HTTP on this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any


class Quiet:
    """A handler of requests that keeps no log; to be named before the handler of the standard library."""

    def say(self: Any, body: bytes, status: int = 200, **headers: str) -> None:
        """Send an answer; an underscore in the name of a header is a hyphen."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def listening(handler: Callable[..., Any]) -> Iterator[str]:
    """Serve on a free port in a thread; yield host and port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()

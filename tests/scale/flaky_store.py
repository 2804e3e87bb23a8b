"""Files behind a web server that hangs up in the middle, and the fsspec driver that reads them."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import fsspec
from fsspec.spec import AbstractBufferedFile
from local_server import Quiet, listening

BLOCK = 4096


@dataclass
class Store:
    """What is served, and how many of the next requests for a file are cut off, from some byte on."""

    files: dict[str, bytes]
    url: str = ""
    broken: dict[str, int] = field(default_factory=dict)
    broken_from: int = 0
    requests: list[str] = field(default_factory=list)


class Handler(Quiet, BaseHTTPRequestHandler):
    store: Store

    def do_HEAD(self) -> None:
        self._answer(send=False)

    def do_GET(self) -> None:
        self._answer(send=True)

    def _answer(self, *, send: bool) -> None:
        name = self.path.removeprefix("/")
        content = self.store.files.get(name)
        if content is None:
            self.send_error(404)
            return
        start, _, end = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        body = content[int(start) : int(end) + 1 if end else None]
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not send:
            return
        self.store.requests.append(name)
        if self.store.broken.get(name) and int(start) >= self.store.broken_from:
            self.store.broken[name] -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Store]:
    """Serve files on this machine."""
    store = Store(files)
    handler = type("Handler", (Handler,), {"store": store})
    with listening(handler) as address:
        store.url = f"flaky://{address}"
        yield store


class FlakyFileSystem(fsspec.AbstractFileSystem):
    """Reads by ranges, without repeating failed reads."""

    protocol = "flaky"

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        with _response(path, method="HEAD") as response:
            return {"name": path, "size": int(response.headers["Content-Length"]), "type": "file"}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> AbstractBufferedFile:
        return FlakyFile(self, path, mode, block_size=BLOCK)


class FlakyFile(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        with _response(self.path, Range=f"bytes={start}-{end - 1}") as response:
            return response.read()


def _response(path: str, method: str = "GET", **headers: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(urllib.request.Request(f"http://{path}", headers=headers, method=method))
    except urllib.error.HTTPError as error:
        error.close()
        raise FileNotFoundError(path) from None


fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)

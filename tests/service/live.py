"""The service on a real socket, in a thread, with a client for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from tiny import parts

from fiveshot.recognizer import Recognizer
from fiveshot.service import RequestLimits, Settings, create_app
from fiveshot.service.server import make_server
from fiveshot.service.settings import address, listen


@dataclass(frozen=True)
class Live:
    url: str
    client: httpx.Client
    app: Any
    server: Any

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def learn(self, name: str, count: int = 3, first: int = 0, **headers: str) -> httpx.Response:
        where = f"/v1/classes/{quote(name, safe='')}/photos"
        return self.client.post(where, files=parts(name, count, first), headers=headers)

    def predict(self, name: str, number: int = 50, **params: int) -> httpx.Response:
        return self.client.post("/v1/predict", files=parts(name, 1, number), params=params)

    def names(self) -> list[str]:
        return [entry["name"] for entry in self.client.get("/v1/classes?limit=500").json()["classes"]]


@contextmanager
def live(path: Path, **given: Any) -> Iterator[Live]:
    """Serve the model in a folder on a free port of this machine."""
    with running(lambda: Recognizer.open(path, device="cpu", runtime="torch"), **given) as service:
        yield service


@contextmanager
def running(
    open_model: Callable[[], Recognizer],
    *,
    limits: RequestLimits | None = None,
    ready: bool = True,
    studio: Any = None,
    **given: Any,
) -> Iterator[Live]:
    """Serve a model on a free port of this machine, and wait until it is loaded unless told otherwise."""
    settings = Settings(**({"port": 0, "latency": 0.002, "limits": limits or RequestLimits(rate=10_000)} | given))
    app = create_app(open_model, settings, studio)
    with listen(settings) as sock:
        server = make_server(app, settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        url = address(sock)
        headers = {"Authorization": f"Bearer {settings.token}"} if settings.token else {}
        with httpx.Client(base_url=url, timeout=30, headers=headers, verify=False, trust_env=False) as client:
            if ready:
                wait_until_ready(client)
            yield Live(url, client, app, server)
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def wait_until_ready(client: httpx.Client, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if client.get("/v1/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.01)
    raise AssertionError("the service did not become ready")

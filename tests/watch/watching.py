"""What tests of watching share: pictures, watching in a thread, and a broker."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fiveshot.recognizer import Recognizer
from fiveshot.watch.sources import Source
from fiveshot.watch.watching import Report, Watching, watch

MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
needs_broker = pytest.mark.skipif(
    MOSQUITTO is None, reason="mosquitto is not installed (apt-get install mosquitto)"
)
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")  # a key that openssl makes in no time
COLORS = {"red": (220, 30, 30), "blue": (30, 30, 220)}


def draw(name: str, number: int = 0) -> Image.Image:
    """Return a noisy picture of a color."""
    noise = np.random.default_rng([number, len(name)]).integers(-25, 25, (48, 64, 3)) + np.array(COLORS[name])
    return Image.fromarray(noise.clip(0, 255).astype(np.uint8))


def jpeg(name: str, number: int = 0) -> bytes:
    buffer = io.BytesIO()
    draw(name, number).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until something is so, or fail."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "it did not come to be so"
        time.sleep(0.02)


@dataclass
class Watched:
    """What a watch in a thread has told so far."""

    seen: list[Report] = field(default_factory=list)
    notices: list[tuple[str, str, str]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    @property
    def labels(self) -> list[str | None]:
        return [one.prediction.label for one in self.seen]

    def events(self, about: str) -> list[str]:
        return [event for event, of, _ in self.notices if of == about]


@contextmanager
def watching(recognizer: Recognizer, source: Source, how: Watching = Watching()) -> Iterator[Watched]:  # noqa: B008
    """Watch in a thread until the block ends; an error of the thread fails the test."""
    watched, stop = Watched(), threading.Event()

    def run() -> None:
        try:
            watch(
                recognizer,
                source,
                how,
                stop=stop,
                on_report=watched.seen.append,
                on_notice=lambda notice: watched.notices.append((notice.event, notice.about, notice.message)),
            )
        except BaseException as error:
            watched.errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield watched
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert watched.errors == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass
class Broker:
    """A mosquitto of our own, which can be stopped and started again on the same port."""

    folder: Path
    lines: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = self.folder / "mosquitto.conf"
        text = (f"listener {self.port} 127.0.0.1", "persistence false", *(self.lines or ("allow_anonymous true",)))
        settings.write_text("\n".join(text) + "\n")
        self.process = subprocess.Popen(
            [str(MOSQUITTO), "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self._answers)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


@contextmanager
def broker(folder: Path, *lines: str) -> Iterator[Broker]:
    running = Broker(folder, lines)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@contextmanager
def subscriber(port: int, login: tuple[str, str] | None = None) -> Iterator[list[tuple[str, str, bool]]]:
    """Collect what a broker hands out: topic, text, and whether it was kept for us."""
    import paho.mqtt.client as mqtt

    messages: list[tuple[str, str, bool]] = []
    ready = threading.Event()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    if login is not None:
        client.username_pw_set(*login)
    client.on_connect = lambda one, *_: one.subscribe("#", qos=1)
    client.on_subscribe = lambda *_: ready.set()
    client.on_message = lambda _, __, one: messages.append((one.topic, one.payload.decode(), bool(one.retain)))
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert ready.wait(60)
        yield messages
    finally:
        client.disconnect()
        client.loop_stop()

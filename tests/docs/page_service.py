"""``fiveshot serve`` as a page starts it: a process that runs while the rest of the page is followed."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import httpx
from shell import Invocation
from warm import WarmPython

PORT = "8765"  # where it listens unless told otherwise
PATIENCE = 60  # seconds until it is ready
SECONDS = 600  # after which it counts as forgotten
INTERRUPTED = 130


class PageService:
    """A service on a free port; the one that the page says is kept, to be replaced in what follows."""

    def __init__(
        self, invocation: Invocation, folder: Path, environment: dict[str, str], python: WarmPython, said: Path
    ) -> None:
        given = re.search(r"--port[ =](\d+)", " ".join(invocation.words))
        self.shown_port = given[1] if given else PORT
        moved = replace(invocation, words=(*invocation.words, "--port", "0"))  # the last one counts
        self._python, self._said = python, said
        self._number: int | None = python.start(moved, folder, environment, said, said, SECONDS)
        self.port = self._wait()

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return self._said.read_text()

    def _wait(self) -> str:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = re.search(r"http://\S+:(\d+)", self.said)
            if found and self._ready(found[1]):
                return found[1]
            if "error: " in self.said:
                break
            time.sleep(0.05)
        self.kill()
        raise AssertionError(f"the service did not become ready: {self.said}")

    @staticmethod
    def _ready(port: str) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/v1/ready", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def interrupt(self) -> None:
        """Press Ctrl-C, and see that it ends well."""
        status = self._end(signal.SIGINT)
        assert status == INTERRUPTED, f"the service ended with {status}: {self.said}"
        assert "Traceback" not in self.said

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self._end(signal.SIGKILL)

    def _end(self, by: signal.Signals) -> int | None:
        if self._number is None:
            return None
        number, self._number = self._number, None
        os.kill(number, by)
        return self._python.wait_for(number)

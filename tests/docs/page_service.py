"""``fiveshot serve`` as a page starts it: a process that runs while the rest of the page is followed."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import httpx

PORT = "8765"  # where it listens unless told otherwise
PATIENCE = 60  # seconds until it is ready
ENDING = 60  # seconds until it has ended
INTERRUPTED = 130


class PageService:
    """A service on a free port; the one that the page says is kept, to be replaced in what follows."""

    def __init__(self, words: tuple[str, ...], folder: Path, environment: dict[str, str], said: Path) -> None:
        given = re.search(r"--port[ =](\d+)", " ".join(words))
        self.shown_port = given[1] if given else PORT
        self._said = said
        with said.open("w") as told:
            self._process = subprocess.Popen(
                [*words, "--port", "0"],  # the last one counts
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
            )
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
            if self._process.poll() is not None:
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
        self._process.send_signal(signal.SIGINT)
        status = self._process.wait(ENDING)
        assert status == INTERRUPTED, f"the service ended with {status}: {self.said}"
        assert "Traceback" not in self.said

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self._process.kill()
        self._process.wait()

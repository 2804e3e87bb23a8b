"""A real browser for tests: Chromium, headless, spoken to through two pipes in its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chromium import PROGRAM

# The protocol is read from descriptor 3 and written to 4: put the pipes there, then become the browser.
LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 100, False)
os.dup2(int(sys.argv[2]), 101, False)
os.dup2(100, 3)
os.dup2(101, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 60


class Browser:
    """One page. What it asks the network for, and what it complains about, is collected."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.out, self.into = to_browser, from_browser
        self.session: str | None = None
        self.count = 0
        self.unread = b""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (reply := self._next()).get("id") != self.count:
            self._note(reply)
        assert "error" not in reply, reply
        return reply["result"]

    def open(self, page: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.loaded = False
        self.call("Page.navigate", url=page.as_uri())
        while not self.loaded:
            self._note(self._next())

    def evaluate(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def press(self, key: str, code: int) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def screenshot(self, *, whole: bool = False) -> bytes:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.into], [], [], PATIENCE)
            assert ready, f"the browser said nothing for {PATIENCE} seconds"
            part = os.read(self.into, 1 << 20)
            assert part, "the browser ended"
            self.unread += part
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Page.loadEventFired":
            self.loaded = True


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start Chromium with its own profile folder, and end it again."""
    assert PROGRAM
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            LAUNCH,
            str(their_in),
            str(their_out),
            PROGRAM,
            *options,
            f"--user-data-dir={profile}",
        ],
        pass_fds=(their_in, their_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_in)
    os.close(their_out)
    try:
        yield Browser(our_out, our_in)
    finally:
        process.terminate()
        process.wait(timeout=20)
        os.close(our_out)
        os.close(our_in)

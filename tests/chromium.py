"""Debian's Chromium, driven by Playwright; a test that wants a page asks for the fixture ``page``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WHOLE = shutil.which("chromium") or shutil.which("chromium-browser")
# The one without windows takes a quarter of the time, but has no camera.
PROGRAM = WHOLE and (shutil.which("chromium-headless-shell") or WHOLE)
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--use-fake-device-for-media-stream"]


@contextmanager
def chromium(*options: str) -> Iterator[Any]:
    """Start the browser without a proxy."""
    from playwright.sync_api import sync_playwright

    os.environ.setdefault("NO_PROXY", "127.0.0.1,localhost")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=[*OPTIONS, *options])
        try:
            yield browser
        finally:
            browser.close()


def with_camera(browser: Any) -> Any:
    """Start the whole browser beside one that was started; to be closed."""
    return browser.browser_type.launch(executable_path=WHOLE, args=OPTIONS)


class Watched:
    """A page whose complaints and requests are collected."""

    def __init__(self, browser: Any, **given: Any) -> None:
        self.context = browser.new_context(**({"viewport": {"width": 1200, "height": 900}} | given))
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", self._note)

    def close(self) -> None:
        """Close the page as soon as the routes that a test has set have answered."""
        self.page.unroute_all(behavior="wait")
        self.context.close()

    def _note(self, message: Any) -> None:
        # That an answer was an error is expected in tests of errors; the page says it in words.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

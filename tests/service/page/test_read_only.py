"""The page of a model that must not be changed: photos can be tried, and nothing can be taught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import Watched
from hands import until
from live import live, running
from tiny import encoded, picture

from fiveshot.recognizer import Recognizer

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize("screen", [{}, {"color_scheme": "dark"}, PHONE])
def test_only_trying(open_page: Callable[..., Watched], fresh_path: Path, screen: dict[str, Any]) -> None:
    with live(fresh_path) as service:
        for name in ("red", "green"):
            state = service.learn(name, 5).json()["state"]

    def looking() -> Recognizer:
        return Recognizer.open(fresh_path, device="cpu", runtime="torch", readonly=True)

    with running(looking, read_only=True) as service:
        page = open_page(service.url, **screen).page
        until(page, "document.getElementById('summary').textContent === '2 classes'")
        assert (page.title(), page.locator("nav").is_visible()) == ("Try · fiveshot", False)
        photo = {"name": "red.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture("red", 30))}
        page.set_input_files("#pick-try", [photo])
        answer = page.locator(".answer", has_text="red.jpg")
        answer.wait_for()
        wanted = service.predict("red", 30).json()["predictions"][0]
        assert (wanted["label"] or "Unknown") in answer.locator(".label").inner_text()
        said = [one.inner_text() for one in page.locator("main button").all() if one.is_visible()]
        assert not {"Learn", "Right", "No, it is …", "It is …", "None of these"} & set(said)
        assert "Why?" in said
        assert not [
            one for one in page.locator(".pick, #undo, #strictness, #view-teach").all() if one.is_visible()
        ]
        answer.locator("button", has_text="Why?").click()
        answer.locator(".why figure").first.wait_for()
        for key in "rn0":
            answer.locator("button").first.press(key)
        assert not page.locator("dialog[open]").count()
        page = open_page(service.url + "#teach", **screen).page  # as an old bookmark has it
        page.locator("#view-try").wait_for()
        assert not page.locator("#view-teach").is_visible()
        assert service.client.get("/v1/model").json()["state"] == state

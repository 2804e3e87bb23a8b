"""Parts of photos on the page: a rectangle by mouse, finger and keys, in Teach and in Try."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chromium import Watched
from hands import answers, until
from live import Live
from PIL import Image
from tiny import encoded, picture


def halves() -> dict[str, Any]:
    """Return a photo that is red on the left and green on the right."""
    both = Image.new("RGB", (400, 200))
    both.paste(picture("red", 60).resize((200, 200)), (0, 0))
    both.paste(picture("green", 60).resize((200, 200)), (200, 0))
    return {"name": "both.jpg", "mimeType": "image/jpeg", "buffer": encoded(both)}


def open_frame(page: Any) -> tuple[float, float, float, float]:
    """Ask for a part of the photo that is enlarged; return where the picture is."""
    page.click("#viewer-ways button")
    until(page, "document.querySelector('#frame-area img')?.naturalWidth > 0")
    area = page.locator("#frame-area").bounding_box()
    return area["x"], area["y"], area["width"], area["height"]


def box_of(page: Any) -> list[float]:
    style = page.evaluate(
        "['left', 'top', 'width', 'height'].map(s => document.getElementById('frame-box').style[s])"
    )
    return [float(value.rstrip("%")) / 100 for value in style]


def test_a_part_is_tried_by_mouse_and_keys(open_page: Callable[..., Watched], service: Live) -> None:
    for name in ("red", "green"):
        service.learn(name)
    page = open_page(service.url + "#try").page
    until(page, "document.getElementById('summary').textContent === '2 classes'")
    page.set_input_files("#pick-try", [halves()])
    answers(page, 1)
    page.click("#answers .open")
    x, y, width, height = open_frame(page)
    page.mouse.move(x + 0.55 * width, y + 0.1 * height)
    page.mouse.down()
    page.mouse.move(x + 0.8 * width, y + 0.5 * height)
    page.mouse.move(x + 0.95 * width, y + 0.9 * height)
    page.mouse.up()
    assert box_of(page) == pytest.approx([0.55, 0.1, 0.4, 0.8], abs=0.02)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowDown")
    assert box_of(page) == pytest.approx([0.53, 0.1, 0.4, 0.82], abs=0.02)
    with page.expect_response("**/v1/predict*") as asked:
        page.click("#frame-use")
    (one,) = asked.value.json()["predictions"]
    assert one["box"] == pytest.approx([0.53, 0.1, 0.4, 0.82], abs=0.02)
    assert one["candidates"][0]["label"] == "green"
    page.locator("#answers .part", has_text="a part of it").wait_for()
    page.click("#answers .open")
    page.click("#viewer-ways button:has-text('Use the whole photo')")
    until(page, "!document.querySelector('#answers .part')")


def test_a_part_is_taught_by_finger(open_page: Callable[..., Watched], service: Live) -> None:
    watched = open_page(service.url + "#teach", has_touch=True)
    page = watched.page
    page.set_input_files("#pick-teach", [halves()])
    page.click("#chosen .open")
    x, y, width, height = open_frame(page)
    touch = page.context.new_cdp_session(page)
    points = [(0.05, 0.1), (0.2, 0.4), (0.45, 0.9)]
    for kind, (right, down) in zip(("touchStart", "touchMove", "touchMove"), points, strict=True):
        at = {"x": x + right * width, "y": y + down * height}
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [at]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert box_of(page) == pytest.approx([0.05, 0.1, 0.4, 0.8], abs=0.02)
    page.keyboard.press("Enter")
    page.locator("#chosen .part").wait_for()
    page.fill("#name", "red half")
    page.click("#learn")
    page.locator("#teach-result .good").get_by_text("red half").wait_for()
    small = service.client.get("/v1/classes/red%20half/photos/0").content
    with Image.open(io.BytesIO(small)) as kept:
        assert kept.width == pytest.approx(kept.height, abs=4)  # 160 x 160 pixels of a photo of 400 x 200
        shown = np.asarray(kept.convert("RGB")).mean(axis=(0, 1))
    red, green = (np.asarray(picture(name, 60)).mean(axis=(0, 1)) for name in ("red", "green"))
    assert np.abs(shown - red).sum() < np.abs(shown - green).sum() / 3

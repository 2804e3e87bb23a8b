"""Try: every photo is answered, by name, and put right by whoever looks."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import Watched
from hands import answers, until
from live import Live
from tiny import encoded, picture


def test_try_keeps_every_photo(open_page: Callable[..., Watched], service: Live, tmp_path: Path) -> None:
    """More photos than a request may have are all answered, by name, and can be taken along."""
    for name in ("red", "green"):
        service.learn(name)
    page = open_page(service.url + "#try").page
    photos = [
        {"name": f"{name} {n:02d}.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture(name, n))}
        for name in ("red", "green")
        for n in range(30)
    ]
    photos.insert(9, {"name": 'bro"ken, one.jpg', "mimeType": "image/jpeg", "buffer": b"no photo"})
    until(page, "document.getElementById('summary').textContent === '2 classes'")
    page.set_input_files("#pick-try", photos)
    said = answers(page, len(photos))
    assert page.locator("#answers .file").all_text_contents() == [photo["name"] for photo in photos]
    page.locator("#try-count", has_text="61 photos, ").wait_for()
    assert not re.search(r"\b0 %", " ".join(said))
    page.click("#try-kinds button:has-text('Not usable')")
    until(page, "document.querySelectorAll('#answers .answer:not([hidden])').length === 1")
    with page.expect_download() as started:
        page.click("#try-csv")
    started.value.save_as(tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["photo"] for row in rows] == [photo["name"] for photo in photos]
    kept = service.client.post(
        "/v1/predict", files=[("photos", (one["name"], one["buffer"])) for one in photos[:9]]
    )
    for row, found in zip(rows, kept.json()["predictions"], strict=False):
        assert row["label"] == (found["label"] or "")
        assert float(row["probability"]) == pytest.approx(found["probability"])
    assert rows[9]["label"] == ""
    assert "not a photo" in rows[9]["error"]


def shown(page: Any, name: str, number: int = 30, count: int = 1) -> None:
    """Let the page say what photos show."""
    photos = [
        {"name": f"{name} {n}.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture(name, n))}
        for n in range(number, number + count)
    ]
    page.set_input_files("#pick-try", photos)
    page.locator(".answer", has_text=photos[-1]["name"]).wait_for()


def count(service: Live, name: str) -> int:
    return len(service.client.get(f"/v1/classes/{name}/photos").json()["photos"])


@pytest.fixture
def trying(open_page: Callable[..., Watched], service: Live) -> Any:
    """The view Try of a model that knows two colors."""
    for name in ("red", "green"):
        service.learn(name, 5)
    page = open_page(service.url + "#try").page
    until(page, "document.getElementById('summary').textContent === '2 classes'")
    return page


def test_right_no_and_none_of_these(trying: Any, service: Live) -> None:
    shown(trying, "red")
    row = trying.locator(".answer").first
    label = (row.locator(".label").text_content() or "").split()[0]
    other = {"red": "green", "green": "red"}[label]
    row.get_by_role("button", name="Right").click()
    trying.locator("#try-verdicts", has_text="1 of 1 you looked at are right").wait_for()
    assert count(service, label) == 5  # nothing is learned unless one says so
    row.get_by_role("button", name=f"Add to {label}").click()
    trying.locator("#notice", has_text=f"Learned 1 photo as “{label}”").wait_for()
    assert count(service, label) == 6
    trying.click("#notice-ways button:text-is('Undo')")
    row.get_by_role("button", name="No, it is …").click()
    trying.locator("#naming-list li").first.wait_for()
    assert trying.locator("#naming-list li").first.get_attribute("data-name") == other  # not what it is not
    trying.keyboard.press("Enter")
    trying.locator("#notice", has_text=f"Learned 1 photo as “{other}”").wait_for()
    row.get_by_text(f"Learned as {other}").wait_for()
    assert count(service, other) == 6
    trying.locator("#try-verdicts", has_text="0 of 1 you looked at are right").wait_for()
    trying.click("#undo")
    row.get_by_role("button", name="None of these").click()
    trying.locator("#notice", has_text="as none of these").wait_for()
    assert service.client.get("/v1/model").json()["negatives"] == 1
    trying.click("#try-again")  # the model has changed since
    trying.locator("#try-again").wait_for(state="hidden")
    trying.click("nav a[href='#teach']")
    trying.click("#negatives")
    trying.locator("#about-photos .pick").click()
    trying.click("#about-remove")
    trying.wait_for_selector("#about", state="hidden")
    assert service.client.get("/v1/model").json()["negatives"] == 0


def test_answers_are_put_right_by_keyboard(trying: Any, service: Live) -> None:
    shown(trying, "red", count=3)
    trying.focus(".answer .open")
    trying.keyboard.press("n")
    trying.wait_for_selector("#naming[open]")
    trying.keyboard.type("crimson")
    trying.locator("#naming-list li", has_text="new class").wait_for()
    trying.keyboard.press("Enter")
    trying.locator("#notice", has_text="Learned 1 photo as “crimson”").wait_for()
    assert "crimson" in service.names()
    trying.focus(".answer .open >> nth=1")
    trying.keyboard.press("Space")
    trying.keyboard.press("Shift+ArrowDown")
    assert trying.inner_text("#try-bar .count") == "2 photos selected"
    trying.click("#try-is")
    trying.locator("#naming-list li", has_text="crimson").click()
    trying.locator("#notice", has_text="Learned 2 photos as “crimson”").wait_for()
    assert count(service, "crimson") == 3
    trying.keyboard.press("Control+z")
    trying.locator("#notice", has_text="Took back").wait_for()
    assert count(service, "crimson") == 1


def test_why_shows_the_nearest_learned_photos(trying: Any, service: Live) -> None:
    shown(trying, "red")
    trying.click(".answer .verdict button:text-is('Why?')")
    near = trying.locator(".why figure")
    near.nth(2).wait_for()
    said = service.client.post(
        "/v1/predict?why=3", files=[("photos", ("a.jpg", encoded(picture("red", 30))))]
    ).json()["predictions"][0]["why"]
    for place, one in enumerate(said):
        assert one["label"] in near.nth(place).inner_text()
    trying.click(".answer .verdict button:text-is('Why?')")
    assert near.count() == 0


def test_the_slider_tells_what_it_costs(trying: Any, service: Live) -> None:
    before = service.client.get("/v1/model").json()["false_rejection"]
    trying.click("#strictness summary")
    trying.locator("#rate-note", has_text="of 10 learned photos").wait_for()
    trying.focus("#rate")
    trying.keyboard.press("ArrowRight")
    trying.keyboard.press("ArrowRight")
    trying.locator("#notice", has_text="may be called unknown from now on").wait_for()
    now = service.client.get("/v1/rejection").json()
    assert now["rate"] > before
    said = f"{now['rejected']} of {now['photos']} learned photos"
    trying.locator("#rate-note", has_text=said).wait_for()
    trying.click("#notice-ways button:text-is('Undo')")  # both steps were one change
    until(trying, "document.getElementById('notice-text').textContent.startsWith('Took back')")
    assert service.client.get("/v1/model").json()["false_rejection"] == before

"""Sightings under Sort's roof: what a watch was not sure of gets a name from somebody, and can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Watched
from hands import until, visit
from live import Live, live
from watcher import Keep, shots, watching

from fiveshot.recognizer import Recognizer, sighting_picture

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture
def birds(fresh_path: Path) -> Iterator[Live]:
    """A service that knows three classes of five photos."""
    with live(fresh_path) as running:
        for name in ("red", "green", "blue"):
            running.learn(name, 5)
        yield running


@pytest.fixture
def keep(birds: Live, fresh_path: Path) -> Iterator[Keep]:
    with watching(fresh_path) as kept:
        yield kept


def shown(page: Any) -> list[tuple[str, list[str]]]:
    """Return each group with the ids of its photos."""
    script = """all => all.map(one => [one.querySelector('h3').textContent,
        Array.from(one.querySelectorAll('[data-key]'), item => item.dataset.key)])"""
    return [tuple(one) for one in page.eval_on_selector_all("#sightings .group", script)]


def left(page: Any, count: int) -> None:
    """Wait until so many photos are without a name."""
    until(page, f"document.getElementById('sightings-text').textContent.startsWith('{count} photo')")
    until(page, f"document.querySelectorAll('#sightings [data-key]').length === {count}")


def on_disk(service: Live) -> list[str]:
    return [one["id"] for one in service.client.get("/v1/sightings").json()["sightings"]]


def photos_of(service: Live) -> dict[str, int]:
    return {one["name"]: one["photos"] for one in service.client.get("/v1/classes").json()["classes"]}


def test_the_page_says_how_to_get_them(open_page: Callable[..., Watched], birds: Live) -> None:
    page = open_page(birds.url + "#sort").page
    assert "fiveshot watch MODEL PLACE --keep unsure" in page.inner_text("#sightings-none")
    assert not page.locator("#sightings-count").is_visible()
    assert page.title() == "Sort · fiveshot"


@pytest.mark.parametrize("screen", [{}, PHONE])
def test_groups_are_confirmed_named_and_dismissed(
    open_page: Callable[..., Watched], birds: Live, keep: Keep, screen: dict[str, Any]
) -> None:
    keep(*shots("gold", 1, 2, 3), *shots("red", 7, 8), *shots("gold", 4))
    page = open_page(birds.url, **screen).page
    until(page, "document.getElementById('sightings-count').textContent === '6'")
    visit(page, "sort")
    left(page, 6)
    assert shown(page) == [("Unknown 4 photos", ["s6", "s3", "s2", "s1"]), ("red 2 photos", ["s5", "s4"])]
    until(page, "[...document.querySelectorAll('#sightings img')].every(i => i.naturalWidth)")
    page.get_by_role("button", name="Right: red").click()
    page.locator("#notice", has_text="Learned 2 photos as “red”").wait_for()
    left(page, 4)
    assert photos_of(birds) == {"red": 7, "green": 5, "blue": 5}
    page.click("#notice-ways button:text-is('Undo')")
    left(page, 6)
    assert photos_of(birds)["red"] == 5
    for id in ("s3", "s6"):
        page.locator(f"[data-key={id}] .pick").click()
    assert page.inner_text("#sightings-bar .count") == "2 photos selected"
    page.click("#sightings-is")
    page.locator("#naming-photos img").nth(1).wait_for()
    page.fill("#naming-name", "gold")
    page.locator("#naming-list li", has_text="new class").wait_for()
    page.keyboard.press("Enter")
    page.locator("#notice", has_text="Learned 2 photos as “gold”").wait_for()
    left(page, 4)
    assert photos_of(birds)["gold"] == 2
    assert not page.locator("#sightings-bar").is_visible()
    assert on_disk(birds) == ["s5", "s4", "s2", "s1"]
    group = page.locator("#sightings .group", has=page.locator("[data-key=s1]"))
    group.get_by_role("button", name="Dismiss").click()
    page.locator("#notice", has_text="Dismissed").wait_for()
    until(page, "!document.querySelector('[data-key=s1]')")
    assert "s1" not in on_disk(birds)
    page.click("#notice-ways button:text-is('Undo')")
    page.locator("#notice", has_text="Undone: dismissing photos.").wait_for()
    left(page, 4)


def test_dismissed_ones_can_be_erased_for_good(
    open_page: Callable[..., Watched], birds: Live, keep: Keep, fresh_path: Path
) -> None:
    keep(*shots("gold", 1), *shots("red", 7))
    with Recognizer.open(fresh_path, readonly=True) as model:
        kept = sighting_picture(model, "s1", kept=True)
    assert kept is not None
    files = [fresh_path / "classes.sqlite", fresh_path / "classes.sqlite-wal"]

    def is_on_disk() -> bool:
        return any(kept[-200:-150] in file.read_bytes() for file in files if file.exists())

    page = open_page(birds.url + "#sort").page
    left(page, 2)
    page.locator("[data-key=s1] .open").press("d")
    page.locator("#notice", has_text="Dismissed 1 photo").wait_for()
    left(page, 1)
    assert is_on_disk()
    page.click("#notice-ways button:text-is('Erase for good')")
    page.click("#notice-ways button:text-is('Really? This cannot be undone')")
    page.locator("#notice", has_text="1 photo erased, for good.").wait_for()
    assert not is_on_disk()
    left(page, 1)


def test_they_are_gone_through_with_the_keyboard(
    open_page: Callable[..., Watched], birds: Live, keep: Keep
) -> None:
    keep(*shots("gold", 1, 2), *shots("red", 7, 8), *shots("green", 7))
    page = open_page(birds.url + "#sort").page
    left(page, 5)
    assert shown(page)[0] == ("green 1 photo", ["s5"])
    page.locator("[data-key=s5] .open").press("r")
    left(page, 4)
    until(page, "document.activeElement.closest('[data-key]')?.dataset.key === 's4'")  # the next one
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("d")  # both that are selected
    page.locator("#notice", has_text="Dismissed 2 photos").wait_for()
    left(page, 2)
    until(page, "document.activeElement.closest('[data-key]')?.dataset.key === 's2'")
    page.keyboard.press("r")
    page.locator("#sightings-messages .bad", has_text="suggests no class").wait_for()
    page.keyboard.press("0")
    page.locator("#notice", has_text="Learned 1 photo as none of these").wait_for()
    left(page, 1)
    page.locator("[data-key=s1] .open").press("n")
    page.locator("#naming-list li", has_text="blue").click()
    page.locator("#sightings-none").wait_for()
    assert photos_of(birds) == {"red": 5, "green": 6, "blue": 6}
    for count in range(1, 5):
        page.keyboard.press("Control+z")
        until(page, f"document.getElementById('sightings-count').textContent === '{[1, 2, 4, 5][count - 1]}'")
    left(page, 5)
    assert photos_of(birds) == {"red": 5, "green": 5, "blue": 5}


def test_what_somebody_else_did_meanwhile_is_said(
    open_page: Callable[..., Watched], birds: Live, keep: Keep
) -> None:
    keep(*shots("red", 7, 8))
    page = open_page(birds.url + "#sort").page
    left(page, 2)
    birds.client.post("/v1/sightings/dismiss", json={"ids": ["s1"]}).raise_for_status()
    page.get_by_role("button", name="Right: red").click()
    page.locator("#sightings-messages .bad").wait_for()
    left(page, 1)
    assert photos_of(birds)["red"] == 5
    keep(*shots("red", 9))
    visit(page, "teach")
    visit(page, "sort")
    left(page, 2)
    assert page.inner_text("#sightings-count") == "2"


def test_many_are_shown_a_part_at_a_time(open_page: Callable[..., Watched], birds: Live, keep: Keep) -> None:
    keep(*shots("red", *range(10, 20)), *shots("gold", *range(200)))
    page = open_page(birds.url + "#sort").page
    until(page, "!document.getElementById('sightings-more').hidden")
    assert "210 photos without a name" in page.inner_text("#sightings-text")
    first = page.locator("#sightings .group").first
    assert first.locator("[data-key]").count() == 24
    size = len(birds.client.get("/v1/sightings").json()["groups"][0]["ids"])
    first.get_by_role("button", name="Show all").click()
    until(page, f"document.querySelectorAll('#sightings .group:first-child [data-key]').length === {size}")
    page.click("#sightings-more")
    page.locator("#sightings-more").wait_for(state="hidden")
    every = birds.client.get("/v1/sightings?limit=1000").json()["groups"]
    until(page, f"document.querySelectorAll('#sightings .group').length === {len(every)}")
    until(page, f"document.querySelectorAll('#sightings .group:first-child [data-key]').length === {size}")

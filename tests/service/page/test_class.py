"""One class: its photos enlarged, chosen, moved and removed, with a mouse, the keyboard and a finger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chromium import Watched
from hands import until
from live import Live

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


def ids(service: Live, name: str) -> list[str]:
    return [one["id"] for one in service.client.get(f"/v1/classes/{name}/photos").json()["photos"]]


def open_class(page: Any, name: str, photos: int) -> None:
    page.click(f".card[data-name={name}]")
    page.locator("#about-photos li").nth(photos - 1).wait_for()


@pytest.fixture
def birds(service: Live) -> Live:
    service.learn("owl", 5)
    service.learn("wren", 3)
    return service


def test_photos_are_moved_and_removed_and_it_is_taken_back(open_page: Callable[..., Watched], birds: Live) -> None:
    owls, wrens = ids(birds, "owl"), ids(birds, "wren")
    watched = open_page(birds.url)
    page = watched.page
    open_class(page, "owl", 5)
    page.locator("#about-photos .pick").nth(1).click()
    page.locator("#about-photos .pick").nth(3).click(modifiers=["Shift"])
    assert page.inner_text("#about-bar .count") == "3 photos selected"
    page.click("#about-move")
    page.fill("#naming-name", "wre")
    page.locator("#naming-list li", has_text="new class").wait_for()  # the list is of what was typed
    page.keyboard.press("Enter")
    page.locator("#notice", has_text="Moved 3 photos to “wren”").wait_for()
    until(page, "document.querySelectorAll('#about-photos li').length === 2")  # it stays open
    assert ids(birds, "owl") == [owls[0], owls[4]]
    assert set(ids(birds, "wren")) == {*wrens, *owls[1:4]}
    page.click("#notice-ways button:text-is('Undo')")
    until(page, "document.querySelectorAll('#about-photos li').length === 5")
    assert ids(birds, "owl") == owls
    page.locator("#about-photos .open").first.click()  # enlarged, it has the same ways
    page.locator("#viewer-title", has_text=owls[0]).wait_for()
    page.keyboard.press("ArrowRight")
    page.locator("#viewer-title", has_text=owls[1]).wait_for()
    page.click("#viewer-ways button:text-is('Remove')")
    page.locator("#notice", has_text="Removed 1 photo of “owl”").wait_for()
    assert owls[1] not in ids(birds, "owl")
    page.click("#notice-ways button:text-is('Erase for good')")
    page.click("#notice-ways button:text-is('Really? This cannot be undone')")
    page.locator("#notice", has_text="1 photo erased, for good").wait_for()
    assert birds.client.get(f"/v1/photos/{owls[1]}").status_code == 404
    assert watched.complaints == []


def test_what_stands_under_a_photo_can_be_read_on_a_phone(open_page: Callable[..., Watched], birds: Live) -> None:
    page = open_page(birds.url, **PHONE).page
    open_class(page, "owl", 5)
    notes = page.locator("#about-photos p")
    named = page.locator("#about-photos .pick + p").all_inner_texts()
    assert named == ids(birds, "owl")
    assert "owl-3.jpg" in notes.all_inner_texts()  # and what the file is called
    fits = "all => all.every(one => one.scrollWidth <= one.clientWidth && one.scrollHeight <= one.clientHeight)"
    assert notes.evaluate_all(fits)


def test_the_last_photos_of_a_class_stay(open_page: Callable[..., Watched], birds: Live) -> None:
    page = open_page(birds.url).page
    open_class(page, "wren", 3)
    page.focus("#about-photos .open")
    page.keyboard.press("Control+a")
    page.click("#about-remove")
    page.locator("#about-error .bad").wait_for()
    assert len(ids(birds, "wren")) == 3


def test_photos_are_chosen_by_keyboard(open_page: Callable[..., Watched], birds: Live) -> None:
    page = open_page(birds.url).page
    open_class(page, "owl", 5)
    page.focus("#about-photos .open")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert page.inner_text("#about-bar .count") == "3 photos selected"
    page.keyboard.press("Escape")  # lets them go, and leaves the dialog open
    assert not page.is_visible("#about-bar")
    assert page.is_visible("#about")
    page.keyboard.press("End")
    page.keyboard.press("Space")
    page.focus("#about-move")
    page.keyboard.press("Enter")
    page.wait_for_selector("#naming[open]")
    page.keyboard.type("a new one")
    page.locator("#naming-list li", has_text="new class").wait_for()
    page.keyboard.press("Enter")
    page.locator("#notice", has_text="Moved 1 photo to “a new one”").wait_for()
    assert birds.names() == ["a new one", "owl", "wren"]


def test_photos_are_chosen_with_a_finger(open_page: Callable[..., Watched], birds: Live) -> None:
    page = open_page(birds.url, **PHONE).page
    open_class(page, "owl", 5)
    first = page.locator("#about-photos .open").first
    box = first.bounding_box()
    touch = page.context.new_cdp_session(page)
    where = [{"x": box["x"] + 50, "y": box["y"] + 50}]
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": where})
    page.locator("#about-bar", has_text="1 photo selected").wait_for()  # held for a moment
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.locator("#about-photos .open").nth(2).tap()  # from now on a tap is enough
    assert page.inner_text("#about-bar .count") == "2 photos selected"
    assert not page.is_visible("#viewer")
    page.locator("#about-bar .none").tap()
    page.locator("#about-photos .open").nth(2).tap()
    page.wait_for_selector("#viewer[open]")


def test_a_class_that_somebody_else_forgets_is_not_shown(open_page: Callable[..., Watched], birds: Live) -> None:
    page = open_page(birds.url).page
    page.wait_for_selector(".card")
    birds.client.delete("/v1/classes/owl")
    page.click(".card[data-name=owl]")
    page.wait_for_selector("#about", state="hidden")
    assert birds.names() == ["wren"]


def test_a_name_that_is_taken_offers_to_join(open_page: Callable[..., Watched], birds: Live) -> None:
    watched = open_page(birds.url)
    page = watched.page
    open_class(page, "owl", 5)
    page.fill("#new-name", "wren")
    page.locator("#new-name").press("Enter")
    page.locator("#about-error .bad", has_text="there is a class 'wren' already").wait_for()
    page.click("#about-error button:text-is('Join it with “wren”')")
    page.locator("#notice", has_text="Joined “owl” with “wren”").wait_for()
    assert not page.is_visible("#about")
    assert len(ids(birds, "wren")) == 8
    page.click("#notice-ways button:text-is('Undo')")
    page.locator("#notice", has_text="Undone:").wait_for()
    assert (len(ids(birds, "owl")), len(ids(birds, "wren"))) == (5, 3)

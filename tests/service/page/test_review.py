"""Review: what was found, side by side, and what is done about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chromium import Watched
from hands import until
from live import Live
from tiny import parts


@pytest.fixture
def mixed_up(service: Live) -> Live:
    """Two classes, a photo of the one among those of the other, and a photo that is there twice."""
    service.learn("red", 6)
    wrong = parts("red", 1, 40)
    files = [*parts("green", 6), *wrong]
    service.client.post("/v1/classes/green/photos", files=files).raise_for_status()
    return service


def photos(service: Live, name: str) -> int:
    return len(service.client.get(f"/v1/classes/{name}/photos").json()["photos"])


def test_findings_are_followed_and_taken_back(open_page: Callable[..., Watched], mixed_up: Live) -> None:
    found = mixed_up.client.get("/v1/review").json()["suggestions"]
    wrong = next(one for one in found if one["kind"] == "mixed-up")
    watched = open_page(mixed_up.url + "#review")
    page = watched.page
    item = page.locator(f"[data-key='mixed-up:{wrong['photo']}']")
    item.wait_for()
    assert page.locator("#findings .finding").count() == len(found)
    until(page, "[...document.querySelector('.finding').querySelectorAll('img')].every(i => i.naturalWidth)")
    assert wrong["photo"] in item.locator("figcaption").first.inner_text()
    assert item.locator(".open").count() == 2  # beside the photo of the other class that is most like it
    item.get_by_role("button", name="Move to red").click()
    page.locator("#notice", has_text=f"Moved {wrong['photo']} to “red”").wait_for()
    assert (photos(mixed_up, "red"), photos(mixed_up, "green")) == (7, 6)
    item.wait_for(state="detached")
    page.click("#notice-ways button:text-is('Undo')")
    item.wait_for()
    assert (photos(mixed_up, "red"), photos(mixed_up, "green")) == (6, 7)
    item.get_by_role("button", name="Keep").click()  # not suggested again
    item.wait_for(state="detached")
    page.reload()
    page.locator("#enough-rows tr").first.wait_for()
    assert item.count() == 0
    page.keyboard.press("Control+z")
    page.locator("#notice", has_text="Undone:").wait_for()
    item.wait_for()
    assert watched.complaints == []


def test_several_findings_at_once(open_page: Callable[..., Watched], mixed_up: Live) -> None:
    page = open_page(mixed_up.url + "#review").page
    page.locator("#findings .pick").first.wait_for()
    page.focus("#findings .open")
    page.keyboard.press("Control+a")
    found = mixed_up.client.get("/v1/review").json()["suggestions"]
    assert page.inner_text("#review-bar .count").startswith(f"{len(found)} finding")
    before = mixed_up.client.get("/v1/model").json()["state"]
    page.click("#review-apply")
    page.locator("#notice-ways button:text-is('Undo')").wait_for()
    assert mixed_up.client.get("/v1/model").json()["state"] > before
    moved = {one["photo"] for one in found if one["kind"] == "mixed-up"}
    reds = {one["id"] for one in mixed_up.client.get("/v1/classes/red/photos").json()["photos"]}
    assert moved <= reds
    page.click("#notice-ways button:text-is('Undo')")
    page.locator("#notice", has_text="Undone:").wait_for()
    assert (photos(mixed_up, "red"), photos(mixed_up, "green")) == (6, 7)


def test_only_firm_suggestions_are_followed_at_once(open_page: Callable[..., Watched], mixed_up: Live) -> None:
    """The others are to be looked at one by one, as with --apply."""
    firm: set[str] = set()  # photos

    def answer(route: Any) -> None:
        found = route.fetch().json()
        for one in found["suggestions"]:
            one["firm"] = one["photo"] in firm
        route.fulfill(json=found)

    found = mixed_up.client.get("/v1/review").json()["suggestions"]
    wrong = next(one["photo"] for one in found if one["kind"] == "mixed-up")
    assert len({one["photo"] for one in found}) > 1
    page = open_page(mixed_up.url + "#teach").page
    page.route("**/v1/review", answer)
    state = mixed_up.client.get("/v1/model").json()["state"]
    for firm in (set(), {wrong}):
        page.goto(mixed_up.url + "#review")
        page.reload()
        page.locator("#findings .pick").first.wait_for()
        begin = {said.split(":")[0] for said in page.locator("#findings .grow > p").all_text_contents()}
        assert begin == ({"Firm", "Look at this"} if firm else {"Look at this"})
        page.focus("#findings .open")
        page.keyboard.press("Control+a")
        page.click("#review-apply")
        if not firm:
            page.locator("#review-messages", has_text="No suggestion that you selected is firm").wait_for()
            assert mixed_up.client.get("/v1/model").json()["state"] == state
    page.locator("#notice", has_text=f"Moved {wrong} to “red”.").wait_for()
    assert "left for you to decide" in page.inner_text("#notice-text")
    assert (photos(mixed_up, "red"), photos(mixed_up, "green")) == (7, 6)


def test_on_a_phone_no_column_is_cut_off(open_page: Callable[..., Watched], mixed_up: Live) -> None:
    page = open_page(mixed_up.url + "#review", viewport={"width": 390, "height": 844}).page
    page.locator("#enough-rows button").nth(1).wait_for()
    over = "[...document.querySelectorAll('#view-review .scroll')].map(one => one.scrollWidth - one.clientWidth)"
    assert page.evaluate(over) == [0]


def test_enough_says_which_class_wants_photos(open_page: Callable[..., Watched], mixed_up: Live) -> None:
    review = mixed_up.client.get("/v1/review").json()
    page = open_page(mixed_up.url + "#review").page
    page.locator("#enough-rows tr").nth(1).wait_for()
    heads = page.locator("#review-enough thead th").all_text_contents()
    assert heads[2:] == ["Recognized when left out", "Expected now", "1 more", "2 more", "5 more"]
    shares = page.locator("#enough-rows tr").first.locator("td.number").all_text_contents()[1:]
    assert (len(shares), all(share.endswith("%") for share in shares)) == (5, True)
    named = page.locator("#enough-rows th").all_text_contents()
    assert named == [one["name"] for one in review["classes"]]
    page.locator("#enough-rows button").first.click()
    until(page, "!document.getElementById('view-teach').hidden")
    assert page.input_value("#name") == named[0]


def test_nothing_to_review(open_page: Callable[..., Watched], service: Live) -> None:
    page = open_page(service.url + "#review").page
    page.locator("#review-note", has_text="knows no class yet").wait_for()
    assert page.locator("#review-findings:visible, #review-enough:visible").count() == 0


def test_classes_that_look_like_one_are_joined(open_page: Callable[..., Watched], service: Live) -> None:
    service.learn("red", 6)
    service.learn("blue", 5)
    service.client.post("/v1/classes/crimson/photos", files=parts("red", 6, 60)).raise_for_status()
    (pair,) = [one for one in service.client.get("/v1/review").json()["pairs"] if one["alike"]]
    assert pair["classes"] == ["crimson", "red"]
    watched = open_page(service.url + "#review")
    page = watched.page
    item = page.locator("#pairs .pair", has_text="told apart no better than by chance")
    item.get_by_role("button", name="Join them as red").click()
    page.locator("#notice", has_text="Joined “crimson” with “red”").wait_for()
    assert photos(service, "red") == 12
    item.wait_for(state="detached")
    page.click("#notice-ways button:text-is('Undo')")
    item.wait_for()
    assert (photos(service, "red"), photos(service, "crimson")) == (6, 6)
    assert watched.complaints == []

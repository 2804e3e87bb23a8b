"""Try: every photo is answered, by name, and put right by whoever looks."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import Watched
from hands import answers, files, until, visit
from live import Live
from tiny import encoded, picture

from fiveshot.service import RequestLimits


def test_try_keeps_every_photo(
    open_page: Callable[..., Watched], start: Callable[..., Live], tmp_path: Path
) -> None:
    """More photos than a request may have are all answered, by name, and can be taken along."""
    service = start(limits=RequestLimits(photos=5, rate=10_000))
    for name in ("red", "green"):
        service.learn(name)
    page = open_page(service.url + "#try").page
    photos = [
        {"name": f"{name} {n:02d}.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture(name, n))}
        for name in ("red", "green")
        for n in range(10)
    ]
    photos.insert(9, {"name": 'bro"ken, one.jpg', "mimeType": "image/jpeg", "buffer": b"no photo"})
    until(page, "document.getElementById('summary').textContent === '2 classes'")
    page.set_input_files("#pick-try", photos)
    said = answers(page, len(photos))
    assert page.locator("#answers .file").all_text_contents() == [photo["name"] for photo in photos]
    page.locator("#try-count", has_text="21 photos, ").wait_for()
    assert not re.search(r"\b0 %", " ".join(said))
    page.click("#try-kinds button:has-text('Not usable')")
    until(page, "document.querySelectorAll('#answers .answer:not([hidden])').length === 1")
    with page.expect_download() as started:
        page.click("#try-csv")
    started.value.save_as(tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["photo"] for row in rows] == [photo["name"] for photo in photos]
    kept = [
        found
        for part in (photos[:5], photos[5:9])
        for found in service.client.post(
            "/v1/predict", files=[("photos", (one["name"], one["buffer"])) for one in part]
        ).json()["predictions"]
    ]
    for row, found in zip(rows[:9], kept, strict=True):
        assert (row["label"], row["answer"]) == (found["label"] or "", found["answer"])
        assert [row["most_like"], row["runner_up_1"]] == [one["label"] for one in found["candidates"][:2]]
        assert float(row["probability"]) == pytest.approx(found["probability"])
    assert rows[9]["label"] == ""
    assert "not a photo" in rows[9]["error"]


def test_photos_that_come_before_the_model_is_loaded_are_asked_about(
    open_page: Callable[..., Watched], service: Live
) -> None:
    service.learn("red", 3)
    service.learn("green", 3)
    page = open_page(service.url + "#teach").page
    held: list[Any] = []
    page.route("**/v1/model", lambda route: held.append(route))
    page.goto(service.url + "#review")
    page.reload()
    until(page, "!document.getElementById('view-review').hidden")
    assert "no class" not in page.inner_text("#review-note")
    visit(page, "try")
    page.set_input_files("#pick-try", files("red", 1, 20))
    page.locator("#answers .answer").first.wait_for()
    assert held
    for one in held:
        one.continue_()


def shown(page: Any, name: str, number: int = 30, count: int = 1) -> None:
    """Let the page say what photos show."""
    photos = [
        {"name": f"{name} {n}.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture(name, n))}
        for n in range(number, number + count)
    ]
    page.set_input_files("#pick-try", photos)
    page.locator(".answer", has_text=photos[-1]["name"]).wait_for()


def test_it_is_said_while_nothing_can_be_unknown(open_page: Callable[..., Watched], service: Live) -> None:
    for name in ("red", "green"):
        service.learn(name)
    page = open_page(service.url + "#try").page
    until(page, "document.getElementById('summary').textContent === '2 classes'")
    shown(page, "red")
    said = re.compile(
        r"^Here nothing can be called unknown yet: 19 photos .* needed; the model has 6\. Until then other things"
    )
    page.locator("#try-never", has_text=said).wait_for()
    service.learn("blue", 8)
    service.learn("gray", 8)
    shown(page, "red", 31)  # which is answered by the model as it is now
    page.locator("#try-never").wait_for(state="hidden")


def test_a_single_class_has_no_percentage(open_page: Callable[..., Watched], service: Live) -> None:
    service.learn("red")
    page = open_page(service.url + "#try").page
    until(page, "document.getElementById('summary').textContent === '1 class'")
    shown(page, "green")
    assert page.locator(".answer .label").inner_text() == "red"
    assert page.locator(".answer .share").count() == 0
    page.locator("#try-never", has_text="nothing can be called unknown yet").wait_for()
    service.learn("green")
    shown(page, "green", 31)
    assert "%" in page.locator(".answer", has_text="green 31.jpg").locator(".label").inner_text()


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
    trying.locator("#try-verdicts", has_text="Right: 1 of 1 you looked at").wait_for()
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
    trying.locator("#try-verdicts", has_text="Right: 0 of 1 you looked at").wait_for()
    trying.click("#undo")
    row.get_by_role("button", name="None of these").click()
    trying.locator("#notice", has_text="as none of these").wait_for()
    assert service.client.get("/v1/model").json()["negatives"] == 1
    trying.click("#try-again")  # the model has changed since
    trying.locator("#try-again").wait_for(state="hidden")
    visit(trying, "teach")
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
    trying.locator("#notice", has_text="Undone:").wait_for()
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
        assert f"{one['label']} {one['id']} {one['name']}, " in near.nth(place).text_content()
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
    until(trying, "document.getElementById('notice-text').textContent.startsWith('Undone:')")
    assert service.client.get("/v1/model").json()["false_rejection"] == before


def names(page: Any) -> list[str]:
    return page.locator("#answers .file").all_text_contents()


def test_answers_that_were_cleared_come_back(trying: Any) -> None:
    shown(trying, "red", count=10)
    before = names(trying)
    assert len(before) == 10
    trying.click("#try-clear")
    trying.locator("#notice", has_text="Cleared 10 photos.").wait_for()
    until(trying, "document.querySelectorAll('#answers .answer').length === 0")
    trying.click("#notice-ways button:text-is('Undo')")
    until(trying, "document.querySelectorAll('#answers .answer').length === 10")
    assert names(trying) == before
    trying.click("#try-clear")
    shown(trying, "green")
    trying.keyboard.press("Control+z")
    until(trying, "document.querySelectorAll('#answers .answer').length === 11")
    assert names(trying) == [*before, "green 30.jpg"]


def test_no_answer_comes_after_all_were_cleared(trying: Any) -> None:
    held: list[Any] = []
    trying.route("**/v1/predict*", lambda route: held.append(route) if len(held) < 2 else route.continue_())
    photos = [
        {"name": f"red {n}.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture("red", n))} for n in range(20)
    ]
    trying.set_input_files("#pick-try", photos)
    for _ in range(300):
        if len(held) == 2:  # a part, and one ahead
            break
        trying.wait_for_timeout(30)
    held.sort(key=lambda route: b"red 0.jpg" not in route.request.post_data_buffer)  # they come in any order
    held[0].continue_()
    until(trying, "document.querySelectorAll('#answers .answer').length === 8")
    trying.click("#try-clear")
    with trying.expect_response("**/v1/predict*"):
        held[1].continue_()
    shown(trying, "green")
    assert names(trying) == ["green 30.jpg"]
    trying.click("#notice-ways button:text-is('Undo')")  # those without an answer are asked about again
    until(trying, "document.querySelectorAll('#answers .answer').length === 21")
    assert set(names(trying)) == {"green 30.jpg", *(one["name"] for one in photos)}


def test_rows_are_put_in_order_and_back(trying: Any) -> None:
    for name in ("red", "green", "blue"):
        shown(trying, name, count=4)
    given = names(trying)
    sure = (
        "all => all.map(one => parseFloat(one.querySelector('.label .share')?.textContent.match(/[0-9]+/) ?? 0))"
    )
    trying.select_option("#try-order", "doubtful")
    until(
        trying,
        f"((all) => ({sure})(all).every((one, n, those) => !n || those[n - 1] <= one))"
        "([...document.querySelectorAll('#answers .answer')])",
    )
    assert sorted(names(trying)) == sorted(given)
    trying.select_option("#try-order", "given")
    until(trying, f"document.querySelector('#answers .file').textContent === {given[0]!r}")
    until(trying, f"[...document.querySelectorAll('#answers .file')].at(-1).textContent === {given[-1]!r}")
    assert names(trying) == given


def test_what_answers_are_sifted_by_stays_while_more_come(trying: Any) -> None:
    shown(trying, "red", count=3)
    trying.click("#try-kinds button >> nth=1")
    chip = trying.evaluate_handle("document.querySelector('#try-kinds [aria-pressed=true]')")
    said = chip.inner_text()
    trying.set_input_files("#pick-try", files("green", 10))
    until(trying, "document.querySelector('#try-kinds button').textContent === 'All13'")
    assert chip.evaluate("one => one.isConnected && document.activeElement === one && one.ariaPressed === 'true'")
    assert chip.inner_text().split()[0] == said.split()[0]


def test_all_answers_at_once(trying: Any) -> None:
    shown(trying, "red", count=10)
    trying.focus(".answer .open")
    trying.keyboard.press("Control+a")
    trying.click("#try-right")
    known = trying.locator(".answer:not(:has(.label.unknown))").count()
    trying.locator("#try-verdicts", has_text=f"Right: {known} of {known} you looked at").wait_for()
    assert trying.locator(".answer .said").count() == known


@pytest.mark.parametrize("width", [390, 1200])
def test_a_message_does_not_cover_what_can_be_done(
    open_page: Callable[..., Watched], service: Live, width: int
) -> None:
    service.learn("red", 5)
    page = open_page(service.url + "#try", viewport={"width": width, "height": 800}).page
    until(page, "document.getElementById('summary').textContent === '1 class'")
    shown(page, "red", count=12)
    page.locator(".answer .verdict button:has-text('None of these')").first.click()
    page.locator("#notice", has_text="as none of these").wait_for()
    page.locator(".answer .pick").nth(1).click()
    page.locator("#try-bar").wait_for()
    page.wait_for_timeout(100)
    message, bar = page.locator("#notice").bounding_box(), page.locator("#try-bar").bounding_box()
    assert message["y"] + message["height"] <= bar["y"]
    page.click("#try-bar .none")
    until(page, "document.getElementById('notice').getBoundingClientRect().bottom > innerHeight - 40")


def test_the_name_under_the_pointer_can_be_read(trying: Any) -> None:
    shown(trying, "red")
    trying.click(".answer .verdict button:has-text('t is …')")
    first = trying.locator("#naming-list [aria-selected=true]")
    first.wait_for()
    ground = "one => getComputedStyle(one).backgroundColor"
    trying.mouse.move(0, 0)
    before = first.evaluate(ground)
    first.hover()
    assert first.evaluate(ground) == before
    assert first.evaluate("one => getComputedStyle(one).color") != before


def test_a_long_name_fits_on_a_phone(open_page: Callable[..., Watched], service: Live) -> None:
    name = "red_" + "winged_" * 12 + "blackbird"
    for label in (name, "green"):
        service.learn(label, 4)
    page = open_page(service.url + "#try", viewport={"width": 390, "height": 844}).page
    photos = [*files(name, 2, 20), *files("green", 1, 20), *files("strange", 2)]
    page.set_input_files("#pick-try", photos)
    answers(page, len(photos))
    heights = page.eval_on_selector_all("#try-kinds .chip", "all => all.map(one => one.offsetHeight)")
    assert set(heights) == {44}  # one line each
    script = "all => all.map(one => one.scrollWidth - one.clientWidth)"
    over = page.eval_on_selector_all("#answers .answer", script)
    assert over == [0] * len(photos)

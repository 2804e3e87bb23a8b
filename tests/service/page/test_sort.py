"""Sort: photos without labels become classes by names for groups, from nothing on."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chromium import Watched
from hands import until
from live import Live
from tiny import encoded, picture


def photos(*names: str, count: int = 6) -> list[dict[str, Any]]:
    return [
        {"name": f"{name} {n}.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture(name, n))}
        for name in names
        for n in range(count)
    ]


def left(page: Any) -> str:
    return page.inner_text("#sort-count")


def test_from_a_first_folder_to_classes(open_page: Callable[..., Watched], service: Live) -> None:
    """No class is known: groups get names, and then they are known."""
    watched = open_page(service.url + "#sort")
    page = watched.page
    bad = {"name": "broken.jpg", "mimeType": "image/jpeg", "buffer": b"no photo"}
    page.set_input_files("#pick-sort", [*photos("red"), bad, *photos("blue", count=16)])
    page.locator(".unknown-group").first.wait_for()
    until(page, "document.getElementById('sort-busy').hidden")
    assert left(page).startswith("22 of 23 photos (1 cannot be used): 0 in 0 known classes, 22 in ")
    assert "broken.jpg" in (page.text_content("#sort-bad") or "")
    until(page, "[...document.querySelectorAll('#groups .open img')].every(i => i.naturalWidth)")
    tiles = page.locator(".unknown-group").first.locator("li[data-key]")
    size = tiles.count()
    page.fill(".unknown-group input[type=text] >> nth=0", "first")
    page.keyboard.press("Enter")
    page.locator("#notice", has_text=f"Learned {size} photos as “first”").wait_for()
    assert service.names() == ["first"]
    count = f"{22 - size} of 23 photos ({size} are learned already, 1 cannot be used)"
    until(page, f"document.getElementById('sort-count').textContent.startsWith({count!r})")
    page.click("#notice-ways button:text-is('Undo')")
    page.locator("#notice", has_text="Undone:").wait_for()
    until(page, "document.getElementById('sort-count').textContent.startsWith('22 of 23 photos')")
    assert service.names() == []
    page.click("#sort-clear")
    page.locator("#sorted").wait_for(state="hidden")
    page.click("#notice-ways button:text-is('Undo')")
    page.locator(".unknown-group").first.wait_for()
    assert left(page).startswith("22 of 23 photos (1 cannot be used): ")
    page.click("#sort-clear")
    page.set_input_files("#pick-sort", photos("green", count=3))
    until(page, "document.getElementById('sort-count').textContent.startsWith('3 photos')")
    page.keyboard.press("Control+z")  # to those that have come since
    until(page, "document.getElementById('sort-count').textContent.startsWith('25 photos')")
    assert watched.complaints == []


def test_some_photos_of_groups_get_a_name_or_none(open_page: Callable[..., Watched], service: Live) -> None:
    service.learn("green", 5)
    page = open_page(service.url + "#sort").page
    page.set_input_files("#pick-sort", photos("red", "blue"))
    page.locator("#groups .group").first.wait_for()
    until(page, "document.getElementById('sort-busy').hidden")
    page.locator("#groups .pick").nth(0).click()
    page.locator("#groups .pick").nth(2).click(modifiers=["Shift"])
    assert page.inner_text("#sort-bar .count") == "3 photos selected"
    page.click("#sort-is")
    page.fill("#naming-name", "mine")
    page.locator("#naming-list li", has_text="new class").wait_for()
    page.keyboard.press("Enter")
    page.locator("#notice", has_text="Learned 3 photos as “mine”").wait_for()
    until(page, "document.getElementById('sort-count').textContent.startsWith('9 of 12 photos')")
    page.locator("#groups .pick").nth(0).click()
    page.click("#sort-none")
    page.locator("#notice", has_text="Learned 1 photo as none of these").wait_for()
    until(page, "document.getElementById('sort-count').textContent.startsWith('8 of 12 photos')")
    assert service.client.get("/v1/model").json()["negatives"] == 1
    page.click("#notice-ways button:text-is('Undo')")
    until(page, "document.getElementById('sort-count').textContent.startsWith('9 of 12 photos')")


def test_the_queue_asks_what_teaches_most(open_page: Callable[..., Watched], service: Live) -> None:
    page = open_page(service.url + "#sort").page
    page.set_input_files("#pick-sort", photos("red", "blue"))
    page.locator("#question:visible").wait_for()
    first = page.locator("#question-photo .open").first.get_attribute("aria-label")
    page.click("#question-ways button:text-is('Skip')")
    until(page, f"document.querySelector('#question-photo .open')?.ariaLabel !== {first!r}")
    page.click("#question-ways button:text-is('It is …')")
    page.fill("#naming-name", "asked")
    page.locator("#naming-list li", has_text="new class").wait_for()
    page.keyboard.press("Enter")
    page.locator("#notice", has_text="as “asked”").wait_for()
    assert service.names() == ["asked"]


def test_an_unsure_photo_is_marked(open_page: Callable[..., Watched], service: Live) -> None:
    service.learn("red", 5)
    service.learn("blue", 5)

    def answer(route: Any) -> None:
        found = route.fetch().json()
        for one in found["known"][:1]:
            one["between"] = ["red", "blue"]
            one["probability"] = 0.61
        route.fulfill(json=found)

    page = open_page(service.url + "#sort").page
    page.route("**/v1/sort/*", answer)
    page.set_input_files("#pick-sort", photos("red", count=9)[5:])  # the first five were learned
    page.locator("#groups .doubtful").wait_for()
    tile = page.locator("#groups .doubtful")
    assert (tile.count(), tile.locator("p").inner_text()) == (1, "61 %, unsure")
    assert (tile.get_attribute("title") or "").endswith(".jpg: unsure: red or blue")
    assert page.locator("#groups .share", has_text=", 1 unsure").count() == 1


def test_sorted_photos_are_taken_home(open_page: Callable[..., Watched], service: Live, tmp_path: Path) -> None:
    """A table and folders of the photos themselves: of classes, of groups, and of what was learned before."""
    service.learn("red", 5)
    page = open_page(service.url + "#sort").page
    given = [*photos("red", count=3), *photos("blue", count=4)]
    given.append(given[3] | {"name": "=copy of blue.jpg"})  # the same content again: it counts once
    given.append(given[5] | {"name": given[4]["name"], "buffer": encoded(picture("blue", 70))})
    page.set_input_files("#pick-sort", given)
    page.locator("#groups .group").first.wait_for()
    until(page, "document.getElementById('sort-busy').hidden")
    told = {}
    for kind in ("csv", "zip"):
        with page.expect_download() as started:
            page.click(f"#sort-{kind}")
        told[kind] = tmp_path / started.value.suggested_filename
        started.value.save_as(told[kind])
    with told["csv"].open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    with zipfile.ZipFile(told["zip"]) as archive:
        assert archive.testzip() is None
        found = {entry: archive.read(entry) for entry in archive.namelist()}
    assert sorted(found) == sorted(row["place"] for row in rows)
    learned = [row for row in rows if row["learned"] == "true"]
    assert {(row["class"], row["photo"]) for row in learned} == {("red", f"red {n}.jpg") for n in range(3)}
    assert left(page).startswith("5 of 9 photos (3 are learned already, 1 is here twice): ")
    assert sorted(found.values()) == sorted({one["buffer"] for one in given})
    assert all(entry.startswith(("red/", "_unknown/g")) for entry in found)
    assert (
        len({entry.rpartition("/")[2] for entry in found if "blue 1" in entry}) == 2
    )  # of two photos of one name

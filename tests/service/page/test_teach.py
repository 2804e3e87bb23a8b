"""Teach: folders, the camera, what is said, one class and its photos."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chromium import Watched
from hands import carry, files, teach, until, visit
from live import Live
from tiny import encoded, picture

from fiveshot.recognizer import Recognizer


def test_nothing_looks_ready_on_an_empty_model(open_page: Callable[..., Watched], service: Live) -> None:
    page = open_page(service.url).page
    page.locator("#none-yet").wait_for()
    assert page.locator("#undo:visible, #search:visible, #purge:visible").count() == 0
    assert page.get_attribute("#learn", "aria-disabled") == "true"
    assert page.inner_text("#summary") == ""  # and no file name of a backbone
    page.fill("#name", "red")
    assert page.get_attribute("#learn", "aria-disabled") == "true"
    page.set_input_files("#pick-teach", files("red", 2))
    until(page, "document.getElementById('learn').ariaDisabled === 'false'")
    assert page.inner_text("#learn") == "Learn from 2 photos"
    page.click("#learn")
    page.locator("#teach-result", has_text="Learned red from 2 photos.").wait_for()
    page.locator("#undo:visible").wait_for()
    teach(page, "red", files("red", 1, 7))
    page.locator("#teach-result", has_text="Added 1 photo to red: it has 3 photos now.").wait_for()
    page.locator("#undo[title='Undo adding to “red”']").wait_for()


def test_folders_are_learned_as_classes(open_page: Callable[..., Watched], service: Live, tmp_path: Path) -> None:
    for name in ("red", "green", "blue"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for one in files(name):
            (tmp_path / "all" / name / one["name"]).write_bytes(one["buffer"])
    (tmp_path / "all" / "blue" / "broken.jpg").write_bytes(b"no photo")
    (tmp_path / "all" / ".DS_Store").write_bytes(b"left by a system")
    page = open_page(service.url).page
    page.locator("#none-yet").wait_for()
    page.set_input_files("#folder-teach", tmp_path / "all")
    until(page, "document.querySelectorAll('#folders li').length === 3")
    assert not page.is_visible("#notice")
    assert page.inner_text("#learn") == "Learn 3 classes from 10 photos"
    page.get_by_label("in the folder green").fill("lime")
    page.click("#learn")
    page.locator("#teach-result .bad", has_text="broken.jpg").wait_for()
    assert "Learned 2 classes from 6 photos" in page.inner_text("#teach-result")
    assert service.names() == ["lime", "red"]
    assert page.locator("#folders input").evaluate_all("all => all.map(one => one.value)") == [
        "blue"
    ]  # still there to mend
    page.click("#notice-ways button:text-is('Undo')")
    page.locator("#notice", has_text="Undone: 2 changes").wait_for()
    assert service.names() == []
    assert page.inner_text("#teach-result") == ""  # it is not learned any more


def test_a_photo_that_cannot_be_used_is_left_out(open_page: Callable[..., Watched], service: Live) -> None:
    page = open_page(service.url).page
    page.locator("#none-yet").wait_for()
    page.fill("#name", "red")
    page.set_input_files(
        "#pick-teach", [*files("red"), {"name": "b.jpg", "mimeType": "image/jpeg", "buffer": b""}]
    )
    page.locator("#chosen .no-picture").wait_for()
    name = page.evaluate(
        """() => {
            const words = document.createRange();
            words.selectNodeContents(document.querySelector("#chosen .no-picture"));
            return words.getBoundingClientRect().top;
        }"""
    )
    leave = page.locator("#chosen li", has=page.locator(".no-picture")).locator(".remove").bounding_box()
    assert name >= leave["y"] + leave["height"]  # the button does not cover the name
    page.click("#learn")
    page.get_by_role("button", name="Leave it out and learn the rest").click()
    page.locator("#teach-result", has_text="Learned red from 3 photos.").wait_for()
    assert len(service.client.get("/v1/classes/red/photos").json()["photos"]) == 3


def test_what_was_left_out_comes_back(open_page: Callable[..., Watched], service: Live) -> None:
    page = open_page(service.url).page
    page.locator("#none-yet").wait_for()
    page.set_input_files("#pick-teach", files("red", 3))
    until(page, "document.querySelectorAll('#chosen li').length === 3")
    page.click("#chosen .remove >> nth=1")
    page.locator("#notice", has_text="Left out 1.jpg.").wait_for()
    assert page.locator("#chosen img").count() == 2
    page.click("#notice-ways button:text-is('Undo')")
    until(page, "document.querySelectorAll('#chosen li').length === 3")
    page.click("#clear")
    assert page.locator("#chosen li").count() == 0
    page.set_input_files("#pick-teach", files("red", 1, 7))
    until(page, "document.querySelectorAll('#chosen li').length === 1")
    page.keyboard.press("Control+z")
    until(page, "document.querySelectorAll('#chosen li').length === 4")
    named = page.locator("#chosen img").evaluate_all("all => all.map(one => one.alt)")
    assert named == ["0.jpg", "1.jpg", "2.jpg", "7.jpg"]
    page.locator("#undo").wait_for(state="hidden")  # nothing else was done


def test_a_dropped_folder_gives_its_name(open_page: Callable[..., Watched], service: Live) -> None:
    page = open_page(service.url).page
    page.locator("#none-yet").wait_for()
    page.evaluate(
        """(data) => {
            // A script cannot make what a browser gives for a folder: entries that answer as the real ones do.
            const made = (name) => new File([new Uint8Array(data)], name);
            const file = (name) => ({isFile: true, name, file: (done) => done(made(name))});
            const folder = (name, inner) => ({isDirectory: true, name, createReader: () => {
                const parts = [inner, []];
                return {readEntries: (done) => done(parts.shift())};
            }});
            const event = new Event('drop', {cancelable: true});
            const entry = folder('birds', [folder('owl', [file('1.jpg'), file('2.jpg')]), file('.hidden')]);
            event.dataTransfer = {items: [{webkitGetAsEntry: () => entry}], files: []};
            dispatchEvent(event);
        }""",
        list(encoded(picture("owl"))),
    )
    until(page, "document.querySelectorAll('#chosen li').length === 2")
    assert page.input_value("#name") == "owl"


def test_drop_paste_and_camera(open_page: Callable[..., Watched], service: Live) -> None:
    page = open_page(service.url, permissions=["camera"]).page
    page.locator("#none-yet").wait_for()
    for kind in ("drop", "paste"):
        carry(page, kind, [{"name": "x.jpg", "buffer": encoded(picture("red"))}])
    until(page, "document.querySelectorAll('#chosen li').length === 2")
    page.click("#teach-zone .camera")
    until(page, "document.getElementById('video').videoWidth > 0")
    page.click("#shoot")
    page.get_by_text("1 photo taken").wait_for()
    page.click("#camera .close")
    until(page, "document.getElementById('video').srcObject === null")
    until(page, "document.querySelectorAll('#chosen li').length === 3")
    page.fill("#name", "mixed")
    page.click("#learn")
    page.locator("#teach-result .good").wait_for()
    page.locator("#teach-result .warn").first.wait_for()  # two of the three are the same file


def test_no_camera_and_no_mouse(browser: Any, service: Live) -> None:
    """Where there is no camera no button offers one; where nothing can be dropped nothing says so."""
    phone = Watched(browser, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    try:
        phone.page.add_init_script("navigator.mediaDevices.enumerateDevices = async () => []")
        phone.page.goto(service.url)
        phone.page.locator("#none-yet").wait_for()
        assert phone.page.locator(".camera:visible").count() == 0
        for view in ("teach", "try", "sort"):
            visit(phone.page, view)
            assert not re.search("drop|paste", phone.page.inner_text("main"), re.IGNORECASE)
    finally:
        phone.close()


def test_forgetting_for_good_is_a_second_step(open_page: Callable[..., Watched], service: Live) -> None:
    service.learn("red")
    page = open_page(service.url).page
    page.click(".card[data-name=red]")
    page.click("#forget")
    page.click("#notice-ways button:text-is('Erase for good')")
    page.click("#notice-ways button:text-is('Really? This cannot be undone')")
    page.locator("#notice", has_text="erased, for good").wait_for()
    until(page, "document.getElementById('undo').hidden")
    assert service.client.post("/v1/undo").status_code == 409
    assert service.names() == []


def test_an_erasure_that_has_to_wait_is_not_said_to_be_done(
    open_page: Callable[..., Watched], service: Live, shared_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fiveshot.recognizer.store.folder.TIMEOUT", 0.2)
    service.learn("red")
    page = open_page(service.url).page
    with Recognizer.open(shared_path, readonly=True) as elsewhere, elsewhere.live.folder.reading() as connection:
        connection.execute("SELECT count(*) FROM classes").fetchone()
        page.locator(".card").click()
        page.click("#forget")
        page.click("#notice-ways button:text-is('Erase for good')")
        page.click("#notice-ways button:text-is('Really? This cannot be undone')")
        page.locator("#notice-text", has_text="another process is reading").wait_for()
    page.locator(".card").wait_for(state="detached")

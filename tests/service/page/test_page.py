"""The page in a real Chromium: taught and tried with a mouse, with the keyboard, on a phone, by hostile names."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Watched
from hands import answers, cards, carry, files, teach, until, visit
from live import Live, live, running
from served import served
from tiny import encoded, picture, tiny_model

from fiveshot.data import draw_samples
from fiveshot.recognizer import Recognizer

REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "cub200"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, tiny_file: Path) -> Iterator[Live]:
    """A service with 1,000 classes."""
    path = tiny_model(tmp_path_factory.mktemp("many") / "model", tiny_file)
    rng = np.random.default_rng(0)
    with Recognizer.open(path) as model:
        width = model.snapshot.contents.width
        small = encoded(picture("x"))
        with model.live.change() as change:
            from fiveshot.recognizer._learning import store_photos
            from fiveshot.recognizer.store.rows import PhotoRecord

            for number in range(1000):
                row = rng.normal(size=width).astype(np.float32)
                shot = PhotoRecord(f"{number:064x}", row, small)
                store_photos(change, f"class {number:04d}", (shot,))
            change.record("learn")
    with live(path) as service:
        yield service


def real_photographs(folder: Path) -> dict[str, tuple[list[Path], Path]]:
    """Return three photos to learn from and one to try, of two birds; drawn ones where there are no real ones."""
    if not (REAL / "train.tar").is_file():
        draw_samples(folder / "samples", seed=0)
        chosen = {
            name: sorted((folder / "samples" / "learn" / name).glob("*.jpg"))[:3] for name in ("fish", "tree")
        }
        return {name: (photos, folder / "samples" / "test" / name / "1.jpg") for name, photos in chosen.items()}
    import tarfile

    found: dict[str, list[Path]] = {"005.Crested_Auklet": [], "017.Cardinal": []}
    with tarfile.open(REAL / "train.tar") as archive:
        for member in archive:
            label = member.name.split("/")[1] if member.name.count("/") == 2 else ""
            if label in found and len(found[label]) < 4:
                content = archive.extractfile(member)
                assert content is not None
                photo = folder / Path(member.name).name
                photo.write_bytes(content.read())
                found[label].append(photo)
            if all(len(photos) == 4 for photos in found.values()):
                break
    return {label.split(".")[1].replace("_", " "): (photos[:3], photos[3]) for label, photos in found.items()}


def test_from_nothing_to_a_classifier_that_stays(open_page: Callable[..., Watched], tmp_path: Path) -> None:
    """Learn two classes from photographs, classify, forget, undo, reload, restart: all still there."""
    photographs = real_photographs(tmp_path)
    first, second = sorted(photographs)
    Recognizer.create(tmp_path / "model", device="cpu").close()  # the embedded network
    with served(tmp_path / "model") as (_, url):
        watched = open_page(url)
        page = watched.page
        page.get_by_text("None yet").wait_for()
        for name in (first, second):
            teach(page, name, photographs[name][0])
        until(page, "document.querySelectorAll('.card').length === 2")
        assert cards(page) == [first, second]
        until(page, "[...document.querySelectorAll('.card img')].filter(i => i.naturalWidth).length == 6")
        visit(page, "try")
        for name in (first, second):
            page.set_input_files("#pick-try", photographs[name][1])
            page.locator(".answer", has_text=photographs[name][1].name).locator(".label", has_text=name).wait_for()
        page.locator(
            "#try-never", has_text="so far only photos of completely different things are called unknown"
        ).wait_for()
        visit(page, "teach")
        page.click(f".card[data-name='{first}']")
        page.click("#forget")
        page.locator("#notice").get_by_text("Forgot").wait_for()
        until(page, "document.querySelectorAll('.card').length === 1")
        page.click("#notice-ways button:text-is('Undo')")
        until(page, "document.querySelectorAll('.card').length === 2")
        page.reload()
        until(page, "document.querySelectorAll('.card').length === 2")
        assert {url} == {re.match(r"(blob:)?(http://[^/]+)", one)[2] for one in watched.requests}
        assert watched.complaints == []
    with running(
        lambda: Recognizer.open(tmp_path / "model", device="cpu")
    ) as again:  # another server on the same folder
        page = open_page(again.url).page
        page.wait_for_selector(".card")
        assert cards(page) == [first, second]
        visit(page, "try")
        page.set_input_files("#pick-try", photographs[second][1])
        assert second in answers(page, 1)[0]


def test_undo_beside_a_message_takes_back_nothing_else(open_page: Callable[..., Watched], service: Live) -> None:
    service.learn("red")
    page = open_page(service.url).page
    page.click(".card[data-name=red]")
    page.click("#forget")
    page.locator("#notice").get_by_text("Forgot").wait_for()
    service.learn("green")  # by somebody else
    page.click("#notice-ways button:text-is('Undo')")
    page.locator("#notice.bad", has_text="The model was changed since").wait_for()
    assert service.names() == ["green"]
    page.click("#undo")  # the last change, whoever made it
    page.locator("#notice", has_text="Undone: learning “green”").wait_for()
    assert service.names() == []
    page.keyboard.press("Control+z")
    page.locator("#notice", has_text="Undone: forgetting “red”").wait_for()
    assert service.names() == ["red"]


def test_by_keyboard_alone(open_page: Callable[..., Watched], service: Live) -> None:
    service.learn("green")
    page = open_page(service.url).page
    choosers: list[Any] = []
    page.on(
        "filechooser", lambda chooser: choosers.append(chooser)
    )  # from the beginning: the browser has to be told to let us choose
    page.wait_for_selector(".card")
    until(page, "!document.getElementById('undo').hidden")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")  # into the view
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "name"
    page.keyboard.type("red")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "choose"
    page.keyboard.press("Enter")
    for _ in range(200):
        if choosers:
            break
        page.wait_for_timeout(30)
    choosers[0].set_files(files("red"))
    page.wait_for_selector("#chosen li")
    page.focus("#name")
    page.keyboard.press("Enter")
    page.locator("#teach-result .good").wait_for()
    until(page, "document.querySelectorAll('.card').length === 2")
    page.focus(".card[data-name=green]")
    page.keyboard.press("ArrowRight")
    until(page, "document.activeElement.dataset.name === 'red'")
    page.keyboard.press("Enter")
    page.wait_for_selector("#about[open]")
    page.focus("#new-name")
    page.keyboard.press("Control+a")
    page.keyboard.type("rouge")
    page.keyboard.press("Enter")
    page.wait_for_selector(".card[data-name=rouge]")
    page.focus(".card[data-name=rouge]")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.wait_for_selector("#about", state="hidden")
    assert page.evaluate("document.activeElement.dataset.name") == "rouge"


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "javascript:alert(1)",
    "{{7*7}} ${alert(1)} '\"`",
    "/etc/passwd?a=b#c%2F",
)


def test_hostile_names_are_only_text(open_page: Callable[..., Watched], service: Live) -> None:
    watched = open_page(service.url)
    page = watched.page
    page.on("dialog", lambda dialog: watched.complaints.append(dialog.message))
    for name in HOSTILE:
        photo = files(name, 2)
        photo[0]["name"] = "<img src=x onerror=alert(2)>.jpg"
        teach(page, name, photo)
    until(page, f"document.querySelectorAll('.card').length === {len(HOSTILE)}")
    assert set(cards(page)) == set(HOSTILE)
    assert set(page.locator(".card .title").all_inner_texts()) == set(HOSTILE)
    photo = files(HOSTILE[0], 1, 9)
    photo[0]["name"] = "<script>alert(3)</script>.jpg"
    visit(page, "try")
    page.set_input_files("#pick-try", photo)
    assert "<script>alert(3)</script>.jpg" in answers(page, 1)[0]
    visit(page, "teach")
    for name in HOSTILE:
        page.locator(".card .title", has_text=name).first.click()
        assert page.inner_text("#about-title") == name
        until(page, "[...document.querySelectorAll('#about-photos img')].every(i => i.naturalWidth)")
        page.click("#forget")
        page.locator("#notice").get_by_text(f"Forgot “{name}”").wait_for()
        page.click("#notice-ways button:text-is('Undo')")
        until(page, f"document.querySelectorAll('.card').length === {len(HOSTILE)}")
    page.fill("#search", HOSTILE[0])
    until(page, "document.querySelectorAll('.card').length === 1")
    assert page.evaluate("document.scripts.length") == 1
    assert watched.complaints == []


def test_the_policy_stops_scripts_that_got_in(open_page: Callable[..., Watched], service: Live) -> None:
    page = open_page(service.url).page
    page.evaluate("""() => { const s = document.createElement('script');
        try { s.textContent = 'window.hurt = 1'; } catch { } document.body.append(s); }""")
    page.evaluate(
        """() => { try { document.body.innerHTML += '<img src=x onerror="window.hurt = 1">'; } catch { } }"""
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.hurt") is None


def test_a_thousand_classes(open_page: Callable[..., Watched], many: Live) -> None:
    watched = open_page(many.url)
    page = watched.page
    page.wait_for_selector(".card")
    assert page.evaluate("document.querySelectorAll('.card').length") < 120
    slowest = page.evaluate("""async () => {
        const frames = [];
        let last = performance.now();
        const end = document.documentElement.scrollHeight - innerHeight;
        for (let step = 0; step <= 60; step++) {
            scrollTo(0, (end * step) / 60);
            await new Promise(requestAnimationFrame);
            const now = performance.now();
            frames.push(now - last);
            last = now;
        }
        return frames.sort((a, b) => a - b)[Math.floor(frames.length / 2)];
    }""")
    assert slowest < 50  # milliseconds of the median frame, without a graphics card on a busy machine
    page.wait_for_selector(".card[data-name='class 0999']")
    assert page.evaluate("document.querySelectorAll('.card').length") < 120
    page.focus(".card[data-name='class 0999']")
    page.keyboard.press("Home")
    until(page, "document.activeElement.dataset.name === 'class 0000'")
    page.keyboard.press("End")
    until(page, "document.activeElement.dataset.name === 'class 0999'")
    page.fill("#search", "0500")
    page.get_by_text("1 class with").wait_for()
    until(page, "document.querySelectorAll('.card').length === 1")
    assert cards(page) == ["class 0500"]
    assert watched.complaints == []


def test_on_a_phone_in_the_dark(open_page: Callable[..., Watched], many: Live) -> None:
    page = open_page(
        many.url,
        viewport={"width": 360, "height": 740},
        is_mobile=True,
        has_touch=True,
        color_scheme="dark",
    ).page
    page.wait_for_selector(".card")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", ground)[:3])) < 60
    small = page.eval_on_selector_all(
        "main button:not(.thumbs button), header button, main input",
        "all => all.filter(e => e.offsetHeight && e.offsetHeight < 44).map(e => e.id || e.textContent)",
    )
    assert small == []  # a finger needs 44 pixels


def test_errors_are_said_in_words_one_at_a_time(open_page: Callable[..., Watched], service: Live) -> None:
    page = open_page(service.url).page
    page.locator("#none-yet").wait_for()
    page.click("#learn", force=True)  # it looks unready, and says why
    page.get_by_text("Give the class a name").wait_for()
    page.fill("#name", "red")
    assert page.locator(".message.bad").count() == 0  # it is being mended
    page.click("#learn", force=True)
    page.get_by_text("Add photos of it").wait_for()
    carry(page, "drop", [{"name": "notes.txt.jpg", "buffer": b"no photo"}])
    page.click("#learn")
    page.locator("#teach-result .bad", has_text="notes.txt.jpg: ").wait_for()  # not "Notes.txt.jpg"
    carry(page, "drop", [{"name": "a.txt", "type": "text/plain", "buffer": b"a"}])
    page.locator("#notice.bad", has_text="1 file left out: only pictures can be used.").wait_for()
    assert page.locator(".bad:visible").count() == 1  # the old error does not stay beside the new one
    box, title = page.locator("#notice").bounding_box(), page.locator("header").bounding_box()
    assert box["y"] > title["y"] + title["height"]  # and the title can be read
    visit(page, "try")
    page.set_input_files("#pick-try", files("red", 1))
    page.locator("#try-messages .bad", has_text="knows no class yet").wait_for()
    service.learn("red")
    visit(page, "teach")
    page.fill("#name", "red")
    page.locator("#name-note", has_text="Known already").wait_for()


def test_long_names_can_be_read(open_page: Callable[..., Watched], service: Live) -> None:
    long = "a very long name of a class that nobody could want " * 3 + "end"
    service.learn(long)
    service.learn("red")
    page = open_page(service.url, viewport={"width": 360, "height": 740}).page
    page.locator(".card").first.click()
    assert page.inner_text("#about-title") == long
    page.keyboard.press("Escape")
    visit(page, "try")
    page.set_input_files("#pick-try", files(long, 1, 4))
    answers(page, 1)
    label = page.locator(".answer .label")
    assert long in label.inner_text()
    assert label.evaluate("e => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight + 1")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_token_is_asked_for_once(open_page: Callable[..., Watched], start: Callable[..., Live]) -> None:
    token = "a-token-of-some-length"
    service = start(token=token)
    service.learn("red")
    page = open_page(service.url).page
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    page.get_by_text("This token is wrong").wait_for()
    page.fill("#token", token)
    page.keyboard.press("Enter")
    page.wait_for_selector(".card[data-name=red]")
    until(page, "document.querySelector('.card img')?.naturalWidth > 0")
    page.reload()
    page.wait_for_selector(".card[data-name=red]")
    assert not page.is_visible("#ask-token")


def test_the_page_waits_for_the_model(open_page: Callable[..., Watched], fresh_path: Path) -> None:
    go_on = threading.Event()

    def opened() -> Recognizer:
        assert go_on.wait(60)
        return Recognizer.open(fresh_path, device="cpu", runtime="torch")

    with running(opened, ready=False) as service:
        try:
            watched = open_page(service.url)
            page = watched.page
            page.locator("#summary", has_text="The model is being loaded").wait_for()
            page.fill("#name", "red")
            page.set_input_files("#pick-teach", files("red"))
            page.click("#learn")  # waits with the page
            go_on.set()
            page.locator("#teach-result .good").get_by_text("red").wait_for()
            page.locator("#summary", has_text="1 class").wait_for()
            page.wait_for_selector(".card[data-name=red]")
            assert watched.complaints == []
        finally:
            go_on.set()

"""The page in a real Chromium: taught and tried with a mouse, with the keyboard, on a phone, by hostile names."""

from __future__ import annotations

import csv
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from chromium import PROGRAM, Watched, chromium
from live import Live, live, running
from served import served
from tiny import encoded, picture, tiny_model

from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.photos.samples import draw_samples

pytest.importorskip("playwright", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed")

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "cub200"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Watched]]:
    opened: list[Watched] = []

    def go(url: str, **given: Any) -> Watched:
        opened.append(Watched(browser, **given))
        opened[-1].page.goto(url)
        return opened[-1]

    yield go
    for watched in opened:
        watched.context.close()


@pytest.fixture(scope="module")
def shared(model_path: Path) -> Iterator[Live]:
    with live(model_path) as service:
        yield service


@pytest.fixture
def service(shared: Live) -> Live:
    """The module's one service, without any class."""
    for name in shared.names():
        shared.client.delete(f"/v1/classes/{quote(name, safe='')}?for_good=true").raise_for_status()
    return shared


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, tiny_file: Path) -> Iterator[Live]:
    """A service with 1,000 classes."""
    path = tiny_model(tmp_path_factory.mktemp("many") / "model", tiny_file)
    rng = np.random.default_rng(0)
    with Recognizer.open(path) as model:
        width = model.snapshot.contents.width
        small = encoded(picture("x"))
        with model._model.change() as change:
            from fiveshot.recognizer.learning import _store
            from fiveshot.recognizer.store.rows import PhotoRecord

            for number in range(1000):
                row = rng.normal(size=width).astype(np.float32)
                shot = PhotoRecord(f"{number:064x}", row, small)
                _store(change, f"class {number:04d}", (shot,))
            change.record("learn")
    with live(path) as service:
        yield service


def files(name: str, count: int = 3, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"name": f"{number}.jpg", "mimeType": "image/jpeg", "buffer": encoded(picture(name, number))}
        for number in range(first, first + count)
    ]


def teach(page: Any, name: str, photos: Any) -> None:
    page.fill("#name", name)
    page.set_input_files("#pick-teach", photos)
    page.click("#learn")
    page.locator("#teach-result .good").get_by_text(name).wait_for()


def answers(page: Any, count: int) -> list[str]:
    """Return what the rows of Try say, once there are so many."""
    page.locator("#answers .answer").nth(count - 1).wait_for()
    return page.locator("#answers .answer .grow").all_text_contents()


def carry(page: Any, kind: str, photos: list[dict[str, Any]], where: str = "body") -> None:
    """Drop or paste photos; Playwright has no way of its own."""
    page.evaluate(
        """([kind, photos, where]) => {
            const carried = new DataTransfer();
            for (const { name, buffer, type } of photos)
                carried.items.add(new File([new Uint8Array(buffer)], name, {type: type || 'image/jpeg'}));
            const event = kind === 'drop'
                ? new DragEvent('drop', {dataTransfer: carried, bubbles: true, cancelable: true})
                : new ClipboardEvent('paste', {clipboardData: carried, bubbles: true, cancelable: true});
            document.querySelector(where).dispatchEvent(event);
        }""",
        [kind, [one | {"buffer": list(one["buffer"])} for one in photos], where],
    )


def until(page: Any, script: str, seconds: float = 20) -> None:
    """Wait until an expression holds; Playwright's own way is stopped by the page's policy."""
    end = time.monotonic() + seconds
    while not page.evaluate(script):
        assert time.monotonic() < end, script
        page.wait_for_timeout(30)


def cards(page: Any) -> list[str]:
    return page.eval_on_selector_all(".card", "all => all.map(card => card.dataset.name)")


def real_photographs(folder: Path) -> dict[str, tuple[list[Path], Path]]:
    """Return five photos to learn from and one to try, of two birds; drawn ones where there are no real ones."""
    if not (REAL / "train.tar").is_file():
        draw_samples(folder / "samples", seed=0)
        chosen = {name: sorted((folder / "samples" / "learn" / name).glob("*.jpg")) for name in ("fish", "tree")}
        return {name: (photos, folder / "samples" / "test" / name / "1.jpg") for name, photos in chosen.items()}
    import tarfile

    found: dict[str, list[Path]] = {"005.Crested_Auklet": [], "017.Cardinal": []}
    with tarfile.open(REAL / "train.tar") as archive:
        for member in archive:
            label = member.name.split("/")[1] if member.name.count("/") == 2 else ""
            if label in found and len(found[label]) < 6:
                archive.extract(member, folder, filter="data")
                found[label].append(folder / member.name)
            if all(len(photos) == 6 for photos in found.values()):
                break
    return {label.split(".")[1].replace("_", " "): (photos[:5], photos[5]) for label, photos in found.items()}


def test_from_nothing_to_a_classifier_that_stays(open_page: Callable[..., Watched], tmp_path: Path) -> None:
    """Learn two classes from photographs, classify, forget, undo, reload, restart: all still there."""
    photographs = real_photographs(tmp_path)
    first, second = sorted(photographs)
    Recognizer.create(tmp_path / "model", device="cpu", runtime="torch").close()  # the embedded ViT
    with served(tmp_path / "model", "--runtime", "torch") as (_, url):
        watched = open_page(url)
        page = watched.page
        page.get_by_text("None yet").wait_for()
        for name in (first, second):
            teach(page, name, photographs[name][0])
        until(page, "document.querySelectorAll('.card').length === 2")
        assert cards(page) == [first, second]
        until(page, "[...document.querySelectorAll('.card img')].filter(i => i.naturalWidth).length == 6")
        page.click("nav a[href='#try']")
        for name in (first, second):
            page.set_input_files("#pick-try", photographs[name][1])
            page.locator(".answer", has_text=photographs[name][1].name).locator(".label", has_text=name).wait_for()
        page.click("nav a[href='#teach']")
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
    with live(tmp_path / "model") as again:  # another server on the same folder
        page = open_page(again.url).page
        page.wait_for_selector(".card")
        assert cards(page) == [first, second]
        page.click("nav a[href='#try']")
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
    page.locator("#notice", has_text="Took back learning “green”").wait_for()
    assert service.names() == []
    page.keyboard.press("Control+z")
    page.locator("#notice", has_text="Took back forgetting “red”").wait_for()
    assert service.names() == ["red"]


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
    open_page: Callable[..., Watched], service: Live, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fiveshot.recognizer.store.folder.TIMEOUT", 0.2)
    service.learn("red")
    page = open_page(service.url).page
    with Recognizer.open(model_path, readonly=True) as elsewhere, elsewhere._model.folder.reading() as connection:
        connection.execute("SELECT count(*) FROM classes").fetchone()
        page.locator(".card").click()
        page.click("#forget")
        page.click("#notice-ways button:text-is('Erase for good')")
        page.click("#notice-ways button:text-is('Really? This cannot be undone')")
        page.locator("#notice-text", has_text="another process is reading").wait_for()
    page.locator(".card").wait_for(state="detached")


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
    "../../etc/passwd?a=b#c%2F",
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
    page.click("nav a[href='#try']")
    page.set_input_files("#pick-try", photo)
    assert "<script>alert(3)</script>.jpg" in answers(page, 1)[0]
    page.click("nav a[href='#teach']")
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
    page.click("nav a[href='#try']")
    page.set_input_files("#pick-try", files("red", 1))
    page.locator("#try-messages .bad", has_text="knows no class yet").wait_for()
    service.learn("red")
    page.click("nav a[href='#teach']")
    page.fill("#name", "red")
    page.locator("#name-note", has_text="Known already").wait_for()


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
    page.locator("#notice", has_text="Took back 2 changes").wait_for()
    assert service.names() == []


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


def test_long_names_can_be_read(open_page: Callable[..., Watched], service: Live) -> None:
    long = "a very long name of a class that nobody could want " * 3 + "end"
    service.learn(long)
    service.learn("red")
    page = open_page(service.url, viewport={"width": 360, "height": 740}).page
    page.locator(".card").first.click()
    assert page.inner_text("#about-title") == long
    page.keyboard.press("Escape")
    page.click("nav a[href='#try']")
    page.set_input_files("#pick-try", files(long, 1, 4))
    answers(page, 1)
    label = page.locator(".answer .label")
    assert long in label.inner_text()
    assert label.evaluate("e => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight + 1")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


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
        assert not re.search("drop|paste", phone.page.inner_text("#teach-form"), re.IGNORECASE)
    finally:
        phone.context.close()


def test_a_token_is_asked_for_once(open_page: Callable[..., Watched], start: Callable[..., Live]) -> None:
    token = "a-token-of-some-length"
    service = start(token=token)
    service.learn("red")
    page = open_page(service.url).page
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    page.get_by_text("That was not the token").wait_for()
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

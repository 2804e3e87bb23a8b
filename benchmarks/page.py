"""Whether the page stays fluid: tasks of over 50 ms in Chromium, with 1,000 classes and 2,000 photos to sort.

A task is what the page does without a pause; for longer than 50 ms it is felt. Tasks are counted by the
time that passed and by the time the processor worked on them: on a machine with other work the first says little.
Of a task that the driver's message begins, only the events are the page's. The rest is the driver's own (it goes
through all elements to click one) or, where it hands over files, the browser's, which looks up the kind of
each. Pages of the browser itself, such as that of its address bar, do not count.

Teaches a model 1,000 classes of drawn photos, serves it, and goes through the four views as a person would. The
network is the smallest ViT with random weights: answers then come as fast as the page can ask, which is harder for
the page than a network that takes its time. The service runs at the lowest priority, so that what is timed is the
page.

    python benchmarks/page.py                             # printed as a table in Markdown
    python benchmarks/page.py --classes 100 --photos 200  # a minute
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fiveshot.recognizer import Recognizer

TINY = "test_vit.r160_in1k"
SHOTS = 3
LONG = 50.0  # milliseconds
DRIVER = "blink.mojom.DevToolsSession"  # whose messages are the driver's
SCROLL = """async () => {
    const step = innerHeight * 0.8;
    for (let top = 0; top < document.documentElement.scrollHeight; top += step) {
        scrollTo(0, top);
        await new Promise((resolve) => setTimeout(resolve, 30));
    }
    scrollTo(0, 0);
}"""


def draw(path: Path, rng: np.random.Generator, color: np.ndarray) -> None:
    coarse = np.clip(color + rng.normal(0, 25, (6, 8, 3)), 0, 255).astype(np.uint8)
    Image.fromarray(coarse).resize((640, 480), Image.Resampling.BICUBIC).save(path, quality=85)


def draw_things(folder: Path, rng: np.random.Generator, things: int, photos: int) -> dict[str, list[Path]]:
    """Draw so many photos of so many things, each in its own color."""
    found: dict[str, list[Path]] = {}
    for number in range(things):
        name = f"thing {number:04d}"
        (folder / name).mkdir(parents=True)
        color = rng.integers(0, 256, 3)
        found[name] = [folder / name / f"{name} {one}.jpg" for one in range(photos)]
        for path in found[name]:
            draw(path, rng, color)
    return found


def make_model(folder: Path, classes: dict[str, list[Path]]) -> Path:
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    save_file(timm.create_model(TINY).state_dict(), folder / "tiny.safetensors")
    path = folder / "model"
    with Recognizer.create(
        path, backbone=TINY, weights=folder / "tiny.safetensors", device="cpu", runtime="torch"
    ) as model:
        model.learn_many(classes)
    return path


@contextmanager
def served(model: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "fiveshot", "serve", str(model), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(
        ["nice", "-n", "19", *command, "--runtime", "torch", "--rate", "100000"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        process.terminate()
        process.wait(30)


def until(page: Any, script: str, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not page.evaluate(script):
        assert time.monotonic() < end, script
        page.wait_for_timeout(200)


def press(page: Any, selector: str) -> None:
    """Click where an element is; the driver's own way goes through all elements of the page first."""
    script = (
        "(one) => { const { x, y } = document.querySelector(one).getBoundingClientRect(); return [x + 9, y + 9]; }"
    )
    page.mouse.click(*page.evaluate(script, selector))


def steps(page: Any, url: str, photos: list[Path]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what a person does, one thing after the other."""
    n = len(photos)
    rows = "document.querySelectorAll('#answers .answer').length"

    def opened() -> None:
        page.goto(url)
        page.wait_for_selector(".card img")

    def searched() -> None:
        page.fill("#search", "7")
        page.wait_for_timeout(600)
        page.fill("#search", "")
        page.wait_for_timeout(600)

    def tried() -> None:
        press(page, "nav a[href='#try']")
        page.set_input_files("#pick-try", photos)
        until(page, f"{rows} === {n} && document.getElementById('try-progress').hidden")

    def sifted() -> None:
        page.evaluate("document.getElementById('try-order').value = 'doubtful'")
        page.evaluate("document.getElementById('try-order').dispatchEvent(new Event('change'))")
        page.wait_for_timeout(1000)
        press(page, "#try-kinds button:nth-child(2)")
        page.wait_for_timeout(500)
        press(page, "#try-kinds button:nth-child(1)")
        page.wait_for_timeout(500)

    def judged() -> None:
        page.evaluate("document.querySelector('#answers .answer:not([hidden]) .open').focus()")
        page.keyboard.press("Control+a")
        page.wait_for_timeout(500)
        press(page, "#try-right")
        until(page, "document.getElementById('try-verdicts').textContent.startsWith('Right: ')")
        page.keyboard.press("Escape")
        page.wait_for_timeout(500)

    def cleared() -> None:
        page.evaluate("scrollTo(0, 0)")
        press(page, "#try-clear")
        page.wait_for_timeout(1000)
        press(page, "#notice-ways button")
        until(page, f"{rows} === {n}")
        page.wait_for_timeout(500)

    def reviewed() -> None:
        press(page, "nav a[href='#review']")
        until(page, "document.getElementById('enough-rows').children.length > 0")
        page.wait_for_timeout(500)

    def sorted_out() -> None:
        press(page, "nav a[href='#sort']")
        page.set_input_files("#pick-sort", photos)
        until(page, "document.querySelectorAll('#groups .group').length > 0")
        page.wait_for_timeout(1000)

    def named() -> None:
        page.evaluate("document.querySelector('#groups .unknown-group input[type=text]').focus()")
        page.keyboard.type("named here")
        page.keyboard.press("Enter")
        page.locator("#notice", has_text="named here").wait_for()
        page.wait_for_timeout(2000)

    yield "open the page", opened
    yield "scroll through all classes", lambda: page.evaluate(SCROLL)
    yield "search them, twice", searched
    yield f"try {n:,} photos", tried
    yield "scroll through the answers", lambda: page.evaluate(SCROLL)
    yield "sift and order them", sifted
    yield "select all, call them right", judged
    yield "clear them, undo", cleared
    yield "review", reviewed
    yield "scroll through the review", lambda: page.evaluate(SCROLL)
    yield f"sort {n:,} photos", sorted_out
    yield "scroll through the groups", lambda: page.evaluate(SCROLL)
    yield "name a group", named


def measure(url: str, photos: list[Path]) -> Iterator[tuple[str, float, list[tuple[float, float]]]]:
    """Yield for each step its name, its seconds, and its tasks: milliseconds that passed, and of the processor."""
    from playwright.sync_api import sync_playwright

    os.environ.setdefault("NO_PROXY", "127.0.0.1,localhost")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.set_default_timeout(300_000)  # the machine may have other work
        for name, work in steps(page, url, photos):
            browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began
            yield name, seconds, tasks_of(json.loads(browser.stop_tracing())["traceEvents"], url)
        browser.close()


def tasks_of(events: list[dict[str, Any]], url: str) -> list[tuple[float, float]]:
    """Return the tasks of the page at an address: milliseconds that passed, and of the processor."""
    named = [one for one in events if one["name"] == "thread_name"]
    main = {(one["pid"], one["tid"]) for one in named if one["args"]["name"] == "CrRendererMain"}
    ours = {
        one["pid"] for one in events if str(one.get("args", {}).get("data", {}).get("url", "")).startswith(url)
    }
    timed = [one for one in events if (one["pid"], one.get("tid")) in main and one["pid"] in ours and "dur" in one]
    timed.sort(key=lambda one: (one["pid"], one["ts"], -one["dur"]))
    tasks: list[tuple[float, float]] = []
    inner: list[dict[str, Any]] = []  # what is in the task at hand, which is the first
    for one in timed:
        if inner and within(one, inner[0]):
            inner.append(one)
        elif one["name"].endswith("RunTask"):
            tasks += [time_of(inner)] if inner else []
            inner = [one]
    return [*tasks, time_of(inner)]


def within(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["pid"] == other["pid"] and one["ts"] < other["ts"] + other["dur"])


def time_of(inner: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the time of a task; of the driver's, that of the page's events in it."""
    counted = inner[:1]
    infos = (one["args"].get("chrome_mojo_event_info", {}) for one in inner if "args" in one)
    if any(info.get("mojo_interface_tag") == DRIVER for info in infos):
        counted = []
        for one in inner:
            is_event = one["name"] == "EventDispatch" and not one["args"]["data"]["type"].startswith(
                "__playwright"
            )
            if is_event and not (counted and within(one, counted[-1])):
                counted.append(one)
    return sum(one["dur"] for one in counted) / 1000, sum(one.get("tdur", one["dur"]) for one in counted) / 1000


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        classes = draw_things(folder / "learn", rng, given.classes, SHOTS)
        things = draw_things(folder / "try", rng, max(given.photos // 20, 1), 20)
        photos = [path for some in things.values() for path in some][: given.photos]
        print(f"{given.classes:,} classes of {SHOTS} photos, {len(photos):,} photos without labels\n")
        print("| step | seconds | tasks over 50 ms | longest, ms | over 50 ms of the processor | longest, ms |")
        print("|---|---|---|---|---|---|")
        with served(make_model(folder, classes)) as url:
            for name, seconds, tasks in measure(url, photos):
                cells = [name, f"{seconds:.1f}"]
                for times in (list(one) for one in zip(*tasks, strict=True)):
                    cells += [str(sum(time > LONG for time in times)), f"{max(times):.0f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

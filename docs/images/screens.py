"""Takes page.png and review.png beside this file: the page of ``fiveshot serve``, with drawn photos, in Chromium.

python docs/images/screens.py
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from garden import BIRDS, draw_garden
from PIL import Image
from playwright.sync_api import sync_playwright

from fiveshot import Recognizer

HERE = Path(__file__).parent
WIDTH, HEIGHT, GAP = 980, 640, 18
SHOWN = 1400  # pixels that the four views are wide in the end


def taught(folder: Path) -> dict[str, Path]:
    """Draw photos and teach a model five of each bird, and a blue tit as a bullfinch by mistake; return the rest."""
    draw_garden(folder / "garden", seed=0)
    photos = {name: sorted((folder / "garden" / name).iterdir()) for name in [*BIRDS, "cat"]}
    with Recognizer.create(folder / "birds") as model:
        for name in BIRDS:
            model.learn(name, photos[name][:5])
        model.learn("bullfinch", photos["blue tit"][5], add=True)
    first = {name: files[6] for name, files in photos.items()}
    return first | {f"{name} again": files[7] for name, files in photos.items()}


@contextmanager
def served(model: Path) -> Iterator[str]:
    """Serve a model; yield the address of its page."""
    command = [sys.executable, "-m", "fiveshot", "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as service:
        try:
            assert service.stdout is not None
            yield next(found[0] for line in service.stdout if (found := re.search(r"http://[\w.:]+", line)))
        finally:
            service.terminate()


def look(page: Any, rest: dict[str, Path]) -> Iterator[tuple[str, bytes]]:
    """Go through the four views; yield the name and the picture of each."""
    page.locator(".card").nth(len(BIRDS) - 1).wait_for()
    page.wait_for_timeout(500)
    yield "teach", page.screenshot()
    page.click("nav a[href='#try']")
    page.set_input_files("#pick-try", [rest[name] for name in ("robin", "cat", "blue tit", "wren again")])
    page.locator("#answers .answer").nth(3).wait_for()
    page.evaluate("document.querySelector('#answers').closest('.panel').scrollIntoView()")
    page.evaluate("scrollBy(0, -70)")
    page.wait_for_timeout(500)
    yield "try", page.screenshot()
    page.click("nav a[href='#review']")
    page.get_by_text("Perhaps in the wrong class").wait_for()
    page.wait_for_timeout(800)
    yield "review", page.screenshot()
    page.click("nav a[href='#sort']")
    page.set_input_files("#pick-sort", list(rest.values()))
    page.locator("#sort-count").wait_for()
    page.wait_for_timeout(1500)
    page.evaluate("scrollTo(0, document.querySelector('#view-sort .panel:nth-of-type(2)').offsetTop - 70)")
    page.wait_for_timeout(500)
    yield "sort", page.screenshot()


def main() -> None:
    """Take the pictures; few colors make small files."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        rest = taught(Path(folder))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with served(Path(folder) / "birds") as address:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.set_default_timeout(300_000)  # a busy machine
            page.goto(address)
            taken = {name: Image.open(io.BytesIO(data)).convert("RGB") for name, data in look(page, rest)}
        whole = Image.new("RGB", (2 * WIDTH + GAP, 2 * HEIGHT + GAP), "#c9cdd6")
        for number, picture in enumerate(taken.values()):
            whole.paste(picture, (number % 2 * (WIDTH + GAP), number // 2 * (HEIGHT + GAP)))
        whole = whole.resize((SHOWN, SHOWN * whole.height // whole.width), Image.Resampling.LANCZOS)
        whole.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=4).save(HERE / "page.png", optimize=True)
        taken["review"].quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=4).save(
            HERE / "review.png", optimize=True
        )
        browser.close()


if __name__ == "__main__":
    main()

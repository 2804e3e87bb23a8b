"""The site that ``make docs`` has built, opened from the disk as a reader without a network would."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "build" / "site"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.pages
def test_the_search_works_from_a_disk() -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    if not (SITE / "index.html").is_file():
        pytest.skip("the site is not built; make docs builds it before it runs this test")
    asked: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((SITE / "index.html").as_uri())
        page.fill("input.md-search__input", "none of these")
        found = page.locator(".md-search-result__item > a")
        found.first.wait_for()
        assert any("how-to/unknown.html" in link.get_attribute("href") for link in found.all())
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []

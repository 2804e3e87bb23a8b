from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from chromium import PROGRAM, Watched, chromium, with_camera
from live import Live, live

pytest.importorskip("playwright", reason="playwright is not installed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if PROGRAM is None:
        here = Path(__file__).parent
        for item in items:
            if item.path.is_relative_to(here):
                item.add_marker(pytest.mark.skip(reason="chromium is not installed"))


@pytest.fixture(scope="module")  # while it is there, no other can be started, and nothing that has an event loop
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Watched]]:
    with ExitStack() as opened:

        def go(url: str, **given: Any) -> Watched:
            seeing = "camera" in given.get("permissions", ())
            watched = Watched(opened.enter_context(with_camera(browser)) if seeing else browser, **given)
            opened.callback(watched.close)
            watched.page.goto(url)
            return watched

        yield go


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory: pytest.TempPathFactory, new_path: Path) -> Path:
    return shutil.copytree(new_path, tmp_path_factory.mktemp("shared") / "model")


@pytest.fixture(scope="module")
def shared(shared_path: Path) -> Iterator[Live]:
    with live(shared_path) as service:
        yield service


@pytest.fixture
def service(shared: Live) -> Live:
    """The one service of a module, without any class."""
    for name in shared.names():
        shared.client.delete(f"/v1/classes/{quote(name, safe='')}?for_good=true").raise_for_status()
    return shared

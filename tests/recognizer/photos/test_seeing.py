"""The order of work when photos are looked at: decoded first, then the network, and what can be done meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fiveshot.backbones import load_embedder
from fiveshot.data import Box
from fiveshot.data.photo import reduced
from fiveshot.errors import InputError
from fiveshot.recognizer.photos import embedding
from fiveshot.recognizer.photos.inputs import gather_photos

EMBEDDER = load_embedder()


class Watched:
    """An embedder that counts what its network is given."""

    preprocessing = EMBEDDER.preprocessing
    batch_size = 2

    def __init__(self) -> None:
        self.rows: list[int] = []

    def features(self, pixels: np.ndarray) -> np.ndarray:
        self.rows.append(len(pixels))
        return np.zeros((len(pixels), 4), np.float32)


@pytest.fixture
def photos(tmp_path: Path) -> list[str]:
    for number in range(7):
        Image.new("RGB", (40, 30), (30 * number, 90, 10)).save(tmp_path / f"{number}.png")
    return [str(tmp_path / f"{number}.png") for number in range(7)]


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "default_workers", lambda: 2)


def see(photos: list[str], **options: Any) -> tuple[Watched, Any]:
    watched = Watched()
    return watched, embedding.see_photos(watched, gather_photos(photos), **options)


def test_the_thread_that_asks_works_meanwhile(photos: list[str]) -> None:
    called: list[str] = []
    watched, seen = see(photos, meanwhile=lambda: called.append("derived"))
    assert [Path(photo.name).name for photo in seen] == [f"{number}.png" for number in range(7)]
    assert (sorted(watched.rows), called) == ([1, 2, 2, 2], ["derived"])


@pytest.mark.parametrize("bad", [0, 1, 3])
def test_the_network_is_not_loaded_for_photos_that_are_refused(photos: list[str], bad: int) -> None:
    Path(photos[bad]).write_text("not a photo")
    watched, called = Watched(), list[str]()
    with pytest.raises(InputError, match="1 of 4 photos"):
        embedding.see_photos(watched, gather_photos(photos[:4]), meanwhile=lambda: called.append("derived"))
    assert (watched.rows, called) == ([], [])


def test_an_error_in_one_thread_keeps_nobody_waiting(photos: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def reduced(same: Any, parts: Any) -> Any:
        raise RuntimeError("no decoder")

    monkeypatch.setattr(embedding, "reduced", reduced)
    with pytest.raises(RuntimeError, match="no decoder"):
        see(photos)


def test_an_error_meanwhile_keeps_nobody_waiting(photos: list[str]) -> None:
    def fail() -> None:
        raise ArithmeticError("not positive definite")

    with pytest.raises(ArithmeticError, match="not positive definite"):
        see(photos, meanwhile=fail)


def test_a_photo_with_many_boxes_is_decoded_once_for_each_thread(
    photos: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def noted(same: Any, parts: Any) -> Any:
        found = reduced(same, parts)
        made.extend(found)
        return found

    monkeypatch.setattr(embedding, "reduced", noted)
    (photo,) = gather_photos(photos[:1])
    regions = [replace(photo, box=Box(number % 20, number % 10, 9, 8)) for number in range(100)]
    seen = [one for found in embedding.look_through(Watched(), regions) for one in found]
    assert [one.box for one in seen] == [one.box for one in regions]
    assert len({one.decode_seconds for one in made} - {0.0}) <= 2  # of a picture that was held, it is 0

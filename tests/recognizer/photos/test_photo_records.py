"""Photos as they are stored: in order, with what is kept of them; bad photos are listed or told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fiveshot.backbones import load_embedder
from fiveshot.data import BadImage
from fiveshot.errors import InputError
from fiveshot.features import Keep, seeing
from fiveshot.recognizer.photos.embedding import photo_records, records_or_bad, stream_records
from fiveshot.recognizer.photos.inputs import gather_photos

EMBEDDER = load_embedder()


class Watched:
    """An embedder that counts what its network is given."""

    preprocessing = EMBEDDER.preprocessing
    batch_size = 2
    width = 4

    def __init__(self) -> None:
        self.rows: list[int] = []

    def streams(self, workers: int) -> int:
        return workers

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
    monkeypatch.setattr(seeing, "default_workers", lambda: 2)


def test_photos_come_in_order_in_small_batches(photos: list[str]) -> None:
    watched, done = Watched(), list[tuple[int, int]]()
    seen = photo_records(
        watched, gather_photos(photos), Keep(original="file"), progress=lambda *now: done.append(now)
    )
    assert [Path(one.name).name for one in seen] == [f"{number}.png" for number in range(7)]
    assert [one.original for one in seen] == [Path(photo).read_bytes() for photo in photos]
    assert sorted(watched.rows) == [1, 2, 2, 2]
    assert done == [(2, 7), (4, 7), (6, 7), (7, 7)]


def test_all_bad_photos_are_in_one_error(photos: list[str]) -> None:
    for bad in (0, 5, 6):
        Path(photos[bad]).write_text("not a photo")
    with pytest.raises(InputError, match=r"3 of 7 photos cannot be used:(?s:.*)0\.png(?s:.*)5\.png(?s:.*)6\.png"):
        photo_records(Watched(), gather_photos(photos))


def test_the_network_is_not_loaded_where_all_photos_are_bad(photos: list[str]) -> None:
    for photo in photos:
        Path(photo).write_text("not a photo")
    watched = Watched()
    with pytest.raises(InputError, match="7 of 7 photos"):
        photo_records(watched, gather_photos(photos))
    assert watched.rows == []


def test_bad_photos_are_told_and_the_others_are_seen(photos: list[str]) -> None:
    Path(photos[3]).write_text("not a photo")
    told: list[BadImage] = []
    seen = photo_records(Watched(), gather_photos(photos), on_bad=told.extend)
    assert [one.name for one in told] == [photos[3]]
    assert [one.name for one in seen] == [*photos[:3], *photos[4:]]
    both = records_or_bad(Watched(), gather_photos(photos))
    assert [one.name for one in both] == photos
    assert isinstance(both[3], BadImage)


def test_a_stream_tells_of_bad_photos_as_they_come(photos: list[str]) -> None:
    Path(photos[3]).write_text("not a photo")
    told: list[Any] = []
    seen = stream_records(Watched(), iter(gather_photos(photos)), told.extend)
    assert [one.name for some in seen for one in some] == [*photos[:3], *photos[4:]]
    assert [one.name for one in told] == [photos[3]]
    with pytest.raises(InputError, match=r"1 of 2 photos cannot be used:\n  .*3\.png"):
        list(stream_records(Watched(), gather_photos(photos)))

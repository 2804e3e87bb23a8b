"""A watch with its own connection to a model that is served: it keeps photos as sightings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tiny import photo

from fiveshot.data import BytesSource, Photo
from fiveshot.recognizer import Recognizer, keep_sighting, recognize_photos
from fiveshot.values import SightingLimits

Keep = Callable[..., list[str]]


def shots(name: str, *numbers: int) -> list[tuple[str, bytes]]:
    return [(f"{name}-{number}.jpg", photo(name, number)) for number in numbers]


@contextmanager
def watching(path: Path) -> Iterator[Keep]:
    """Open a model as a watch does; what is yielded keeps photos and returns their ids."""
    with Recognizer.open(path, device="cpu", runtime="torch") as watcher:

        def kept(*photos: tuple[str, bytes], limits: SightingLimits | None = None) -> list[str]:
            given = [Photo(BytesSource(data, name)) for name, data in photos]
            seen = recognize_photos(watcher, given, top=3, sure=None, keep=True)
            about = {"seen": "2026-05-01T10:00:00.000Z", "source": "http://camera/a.jpg"}
            return [keep_sighting(watcher, one, limits or SightingLimits(), **about) for one in seen]

        yield kept

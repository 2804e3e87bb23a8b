"""Keeps sightings of a model without a backbone: run, and at times killed, by test_sightings.py."""

from __future__ import annotations

import sys
from dataclasses import replace
from hashlib import sha256
from typing import Any

from models import photos, picture

from fiveshot.recognizer import PhotoRecord, Recognizer, SeenPhoto, keep_sighting, name_sightings
from fiveshot.values import Prediction, SightingLimits

UNKNOWN = Prediction("", None, None, (), None, None)


def sighted(name: str, number: int, original: bytes | None = None) -> PhotoRecord:
    """Return a photo without a name."""
    data = picture() if original is None else original
    digest = sha256(f"{name} {number}".encode()).hexdigest()
    return PhotoRecord(digest, photos(name, 1, seed=number)[0], picture(), data, name=f"{name} {number}")


def keep(
    model: Recognizer,
    name: str,
    number: int,
    *,
    original: bytes | None = None,
    prediction: Prediction = UNKNOWN,
    limits: SightingLimits = SightingLimits(),  # noqa: B008  # a frozen value
    made_by: str = "a" * 64,
    **given: Any,
) -> str:
    """Keep one sighting."""
    photo = sighted(name, number, original)
    about = {"seen": "2026-05-01T10:00:00.000+00:00", "source": "camera"} | given
    seen = SeenPhoto(photo, replace(prediction, photo=photo.name), made_by)
    return keep_sighting(model, seen, limits, **about)


def main() -> None:
    """Keep sightings, saying the id of each when it is kept; with ``name``, name each, too, and say so again."""
    path, count, *then = sys.argv[1:]
    with Recognizer.open(path, timeout=60) as model:
        for number in range(int(count)):
            id = keep(model, "heron", number)
            print(id, flush=True)
            if then == ["name"]:
                name_sightings(model, id, "heron")
                print(id, flush=True)


if __name__ == "__main__":
    main()

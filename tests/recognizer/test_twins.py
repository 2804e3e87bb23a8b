from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fiveshot import Recognizer
from fiveshot.recognizer import PhotoRecord, correct_seen
from fiveshot.recognizer.advice.insight import DuplicateIndex, StoredPhotos
from fiveshot.recognizer.names import NONE
from fiveshot.recognizer.store.contents import Twin

WIDTH = 320


def rows(seed: int, count: int = 5) -> np.ndarray:
    """Features with a common part, as those of a backbone have."""
    rng = np.random.default_rng(seed)
    return (1 + 0.5 * rng.normal(size=(count, WIDTH))).astype(np.float32)


def digest(number: int) -> str:
    return f"{number:064x}"


def asked(features: np.ndarray, first: int = 10_000) -> list[PhotoRecord]:
    return [PhotoRecord(digest(first + n), row, name=f"{n}.jpg") for n, row in enumerate(features)]


@pytest.fixture
def birds(make: Callable[..., Recognizer]) -> Recognizer:
    model = make(width=WIDTH, head="ncm")
    for number in range(12):
        shas = [digest(10 * number + n) for n in range(5)]
        model.learn_features(f"bird {number}", rows(number), sha256s=shas)
    return model


def twins(model: Recognizer, duplicates: DuplicateIndex, photos: list[PhotoRecord]) -> list[Twin | None]:
    """Asked by the few numbers; and by all features of all photos, which must give the same."""
    contents = model.refresh().contents
    with model.live.folder.reading() as connection:
        found = StoredPhotos(contents, duplicates, connection).twins(photos)
    plain = contents.photos.twins(photos)
    assert [one and (one.label, one.same_file) for one in found] == [
        one and (one.label, one.same_file) for one in plain
    ]
    return found


def test_photos_that_show_the_same_are_found(birds: Recognizer) -> None:
    rng, duplicates = np.random.default_rng(7), DuplicateIndex()
    near = rows(3)[1:2] + 0.02 * rng.normal(size=(1, WIDTH)).astype(np.float32)
    unlike = rows(3)[1:2] + 0.1 * rng.normal(size=(1, WIDTH)).astype(np.float32)
    scaled = 3 * rows(11)[4:]
    found = twins(birds, duplicates, asked(np.concatenate([near, unlike, scaled, rows(99, 1)])))
    assert [one and one.label for one in found] == ["bird 3", None, "bird 11", None]


def test_the_same_file_is_found_whatever_it_looks_like(birds: Recognizer) -> None:
    (found,) = twins(birds, DuplicateIndex(), asked(rows(50, 1), first=42))
    assert found == Twin("bird 4", same_file=True)


def test_what_changes_meanwhile_is_followed(birds: Recognizer) -> None:
    duplicates, photos = DuplicateIndex(), asked(np.concatenate([rows(2)[:1], rows(60)[:1], rows(5)[:1]]))
    assert [one and one.label for one in twins(birds, duplicates, photos)] == ["bird 2", None, "bird 5"]
    birds.learn_features("late", rows(60))
    birds.forget("bird 2")
    birds.rename("bird 5", "other bird")
    assert [one and one.label for one in twins(birds, duplicates, photos)] == [None, "late", "other bird"]
    for _ in range(2):
        birds.undo()
    assert [one and one.label for one in twins(birds, duplicates, photos)] == ["bird 2", "late", "bird 5"]
    (moved,) = (p.id for p in birds.photos("bird 2") if p.sha256 == digest(20))
    birds.move([moved], to="bird 0")
    assert [one and one.label for one in twins(birds, duplicates, photos)] == ["bird 0", "late", "bird 5"]
    birds.forget("late", for_good=True)
    assert [one and one.label for one in twins(birds, duplicates, photos)] == ["bird 0", None, "bird 5"]


def test_photos_of_none_of_the_classes_are_not_twins(birds: Recognizer) -> None:
    duplicates, photos = DuplicateIndex(), asked(rows(70, 1))
    correct_seen(birds, photos, NONE)
    assert birds.show().negatives == 1
    assert twins(birds, duplicates, photos) == [None]

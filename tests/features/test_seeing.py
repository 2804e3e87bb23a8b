"""Photos become vectors in two steps, in order, from the same pixels wherever the network runs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

from fiveshot.backbones import BackboneSpec, Embedder, NotFiniteError, Preprocessing
from fiveshot.data import (
    ArraySource,
    BadImage,
    Box,
    BytesSource,
    Decoders,
    FileSource,
    ImageSource,
    Photo,
    Reduced,
    decode,
)
from fiveshot.features import (
    Keep,
    PhotoVector,
    Seen,
    SeenBatch,
    bad_photos,
    decode_photos,
    see_batches,
    see_photos,
    seeing,
)
from fiveshot.features.seeing import even_batches

RANGES = [(0, 2), (2, 3), (3, 5), (5, 6)]


@dataclass(eq=False)
class MeanColors:
    """A network that says which colors it sees, and keeps the pixels it was given."""

    device: str
    name: str = "mean colors"
    width: int = 3
    precision: str = "float32"
    weights_hash: str = "a" * 64
    adapter_hash: None = None
    seen: list[np.ndarray] = field(default_factory=list)

    def ready(self) -> str:
        return "NumPy"

    def forward(self, images: np.ndarray) -> np.ndarray:
        self.seen.append(images)
        return images.mean(axis=(2, 3), dtype=np.float32)


@pytest.fixture
def mixed(tmp_path: Path) -> list[ImageSource]:
    """A usual photo, one on its side, one in another format, a broken one, one cut short, and an array."""
    names = ["usual.jpg", "turned.jpg", "other.png", "broken.jpg", "short.jpg"]
    rng = np.random.default_rng(0)
    turned = Image.Exif()
    turned[274] = 6
    for name in names:
        picture = Image.fromarray(rng.integers(0, 256, (8, 10, 3), np.uint8)).resize((160, 120))
        picture.save(tmp_path / name, exif=turned if name == "turned.jpg" else Image.Exif())
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xd9")
    (tmp_path / "short.jpg").write_bytes((tmp_path / "short.jpg").read_bytes()[:-200])
    array = ArraySource(rng.integers(0, 256, (32, 32, 3), np.uint8), "array")
    return [*(FileSource(tmp_path / name, name) for name in names), array]


def embedder(network: MeanColors) -> Embedder:
    return Embedder(BackboneSpec(), Preprocessing(size=64, resize=72, views=2), network)


def batches(images: list[ImageSource]) -> list[list[Photo]]:
    return [[Photo(image) for image in images[start:stop]] for start, stop in RANGES]


def run(images: list[ImageSource], network: MeanColors, workers: int) -> list[SeenBatch]:
    return list(see_batches(embedder(network), batches(images), workers=workers))


def test_a_network_on_a_gpu_gets_the_pixels_of_a_cpu(mixed: list[ImageSource]) -> None:
    ours, theirs = MeanColors("cuda:0"), MeanColors("cpu")
    run(mixed, ours, workers=1)
    run(mixed, theirs, workers=1)
    assert len(ours.seen) == len(theirs.seen) == 3, "nothing of the third range can be decoded"
    for one, other in zip(ours.seen, theirs.seen, strict=True):
        np.testing.assert_array_equal(one, other)


def test_vectors_are_those_of_each_photo_spelled_out(mixed: list[ImageSource]) -> None:
    found = [one for batch in run(mixed, MeanColors("cpu"), workers=2) for one in batch.found]
    preprocessing = embedder(MeanColors("cpu")).preprocessing
    for image, one in zip(mixed, found, strict=True):
        if isinstance(one, PhotoVector):
            squares = preprocessing.pixels(decode(image))  # (2, 3, 64, 64)
            expected = squares.astype(np.float64).mean(axis=(2, 3)).mean(axis=0)
            np.testing.assert_allclose(one.vector, expected, rtol=1e-5)
            assert (one.photo.name, one.sha256) == (image.name, hashlib.sha256(image.read()).hexdigest())


def test_batches_come_in_order_with_what_could_not_be_decoded(mixed: list[ImageSource]) -> None:
    found = run(mixed, MeanColors("cuda:0"), workers=4)
    assert [len(one.found) for one in found] == [stop - start for start, stop in RANGES]
    bad = [isinstance(one, BadImage) for batch in found for one in batch.found]
    assert bad == [False, False, False, True, True, False]
    assert [one.name for one in found[2].found] == ["broken.jpg", "short.jpg"]


def test_the_network_does_not_run_where_no_photo_is_good(mixed: list[ImageSource]) -> None:
    network = MeanColors("cpu")
    (batch,) = see_batches(embedder(network), [[Photo(image) for image in mixed[3:5]]])
    assert [one.name for one in batch.found] == ["broken.jpg", "short.jpg"]
    assert network.seen == []


def test_bad_photos_are_listed_without_the_network(mixed: list[ImageSource]) -> None:
    found = bad_photos([Photo(image) for image in mixed], Preprocessing(size=64, resize=72), workers=2)
    assert {at: one.name for at, one in found.items()} == {3: "broken.jpg", 4: "short.jpg"}


def test_few_photos_are_spread_over_the_workers() -> None:
    photos = [Photo(BytesSource(b"", str(number))) for number in range(21)]
    found = list(even_batches(photos, 8, workers=2))
    assert [len(batch) for batch in found] == [8, 8, 3, 2]
    assert [photo for batch in found for photo in batch] == photos
    assert [len(batch) for batch in even_batches(photos[:3], 8, workers=2)] == [2, 1]


def test_photos_are_asked_for_as_they_are_needed(
    mixed: list[ImageSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many photos come, those of a few batches are in memory."""
    monkeypatch.setattr(seeing, "default_workers", lambda: 2)
    given: list[int] = []

    def endless() -> Iterator[Photo]:
        while True:
            given.append(1)
            yield Photo(mixed[5])

    with closing(see_photos(embedder(MeanColors("cpu")), endless())) as found:
        first = next(found)
    assert len(first) == 8
    assert len(given) <= 6 * 8


def test_an_error_in_one_thread_keeps_nobody_waiting(
    mixed: list[ImageSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_decoders() -> None:
        raise RuntimeError("no decoder")

    monkeypatch.setattr(seeing, "decoders", no_decoders)
    with pytest.raises(RuntimeError, match="no decoder"):
        run(mixed, MeanColors("cpu"), workers=2)


def test_a_vector_that_is_not_finite_is_an_error_with_the_name_of_its_photo(mixed: list[ImageSource]) -> None:
    network = MeanColors("cpu")
    network.forward = lambda images: np.where(np.arange(len(images))[:, None] >= 2, np.nan, np.ones((1, 3)))
    with pytest.raises(NotFiniteError, match=r"the vector of turned\.jpg holds NaN"):
        run(mixed, network, workers=1)


@pytest.mark.parametrize("original", [None, "file", "copy"])
def test_what_is_kept_of_a_photo(mixed: list[ImageSource], original: Literal["file", "copy"] | None) -> None:
    source, keep = mixed[1], Keep(thumbnail=True, original=original)  # turned by its metadata
    photos = [Photo(source), Photo(source, Box(10, 0, 40, 60))]
    whole, part = decode_photos(photos, Preprocessing(size=64, resize=72), keep)
    assert isinstance(whole, Seen)
    assert isinstance(part, Seen)
    for one, size in ((whole, (120, 160)), (part, (40, 60))):
        assert one.thumbnail is not None
        assert max(picture(one.thumbnail).size) == min(128, max(size))
        if original is None:
            assert one.original is None
        elif original == "file" and one is whole:
            assert one.original == source.read()
        else:
            assert picture(one.original).size == size
            assert not picture(one.original).getexif()
    assert part.sha256 == hashlib.sha256(f"{whole.sha256} 10,0,40,60".encode()).hexdigest()


def picture(data: bytes | None) -> Image.Image:
    return Image.open(io.BytesIO(data or b""))


def test_boxes_of_a_photo_are_asked_for_together(
    mixed: list[ImageSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Noted(Decoders):
        def cut(self, source: Any, boxes: Any, *given: Any, **limits: Any) -> list[Reduced]:
            asked.append(len(boxes))
            return super().cut(source, boxes, *given, **limits)

    boxes = [Box(number, number, 30, 20) for number in range(40)]
    photos = [*(Photo(mixed[0], box) for box in boxes), Photo(mixed[2], boxes[0]), Photo(mixed[0])]
    preprocessing = Preprocessing(size=64, resize=72)
    with Noted(2) as pool:
        monkeypatch.setattr(seeing, "decoders", lambda: pool)
        found = decode_photos(photos, preprocessing)
    assert asked == [40, 1]
    for photo, one in zip(photos, found, strict=True):
        assert isinstance(one, Seen)
        np.testing.assert_array_equal(one.pixels, preprocessing.pixels(photo.image()))

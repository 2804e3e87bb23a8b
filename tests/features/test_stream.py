"""Batches of photos become vectors in order, from the same pixels wherever the network runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fiveshot.backbones import BackboneSpec, Embedder, Preprocessing
from fiveshot.data import ArraySource, FileSource, ImageSource
from fiveshot.features.stream import BatchStream, ImageBatch

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


def stream(images: list[ImageSource], network: MeanColors, workers: int = 2) -> BatchStream:
    embedder = Embedder(BackboneSpec(), Preprocessing(size=64, resize=72, views=2), network)
    return BatchStream(images, embedder, workers=workers, dtype=np.float32)


def run(images: list[ImageSource], network: MeanColors, workers: int) -> list[ImageBatch]:
    return list(stream(images, network, workers).run(RANGES))


def test_a_network_on_a_gpu_gets_the_pixels_of_a_cpu(mixed: list[ImageSource]) -> None:
    ours, theirs = MeanColors("cuda:0"), MeanColors("cpu")
    found, expected = run(mixed, ours, workers=1), run(mixed, theirs, workers=1)
    assert len(ours.seen) == len(theirs.seen) == 3, "nothing of the third range can be decoded"
    for one, other in zip(ours.seen, theirs.seen, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors)


def test_batches_come_in_order_with_what_could_not_be_decoded(mixed: list[ImageSource]) -> None:
    found = run(mixed, MeanColors("cuda:0"), workers=4)
    assert [(one.start, one.stop) for one in found] == RANGES
    assert [one.kept.tolist() for one in found] == [[0, 1], [2], [], [5]]
    assert [(at, bad.name) for one in found for at, bad in one.bad] == [(3, "broken.jpg"), (4, "short.jpg")]


def test_no_vectors_are_made_where_photos_are_only_decoded(mixed: list[ImageSource]) -> None:
    network = MeanColors("cuda:0")
    decoding = stream(mixed, network)
    decoding.decode_only.set()
    assert [one.vectors for one in decoding.run(RANGES)] == [None] * 4
    assert network.seen == []

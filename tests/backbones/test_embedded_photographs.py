"""The embedded ViT on real photographs, against features stored when it was made."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fiveshot.backbones import BackboneSpec, load_embedder

DATA = Path(__file__).parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not (DATA / "cub200" / "test.tar").is_file(), reason="CUB-200 is not on this machine"),
]


def test_features_of_small_files_resemble_those_of_the_originals():
    stored = np.load(DATA / "vit" / "cub200-features.npz")
    order = _test_images()
    chosen = np.arange(0, len(order), len(order) // 16)[:16]
    embedder = load_embedder(BackboneSpec(tokens="cls", views=1))  # as the stored ones were made
    with tarfile.open(DATA / "cub200" / "test.tar") as archive:
        photographs = [Image.open(io.BytesIO(archive.extractfile(f"test/{order[i]}.webp").read())) for i in chosen]
    pixels = np.stack([embedder.pixels(photograph) for photograph in photographs])
    ours = torch.nn.functional.normalize(torch.from_numpy(embedder.features(pixels)))
    theirs = torch.nn.functional.normalize(torch.from_numpy(stored["test_x"][chosen]).float())
    cosine = ours @ theirs.T  # the stored ones come from larger originals: alike, not equal
    assert cosine.diagonal().mean() > 0.9
    assert cosine.diagonal().min() > 0.7
    assert torch.equal(cosine.argmax(dim=1), torch.arange(len(chosen)))


def _test_images() -> list[str]:
    """Names without ending, in the order of the official list, which is that of the stored features."""
    tests = {line.split()[0] for line in _lines("train_test_split.txt") if line.split()[1] == "0"}
    images = (line.split() for line in _lines("images.txt"))
    return [path.removesuffix(".jpg") for number, path in images if number in tests]


def _lines(name: str) -> list[str]:
    return (DATA / "cub200" / "meta" / name).read_text().splitlines()

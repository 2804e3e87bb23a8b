from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_vit import TINY

from fiveshot.backbones import BackboneSpec, Embedder, load_embedder

SPLITS = {"train": 3, "test": 2}  # images of each class
CLASSES = ("ani", "rook", "wren")


@pytest.fixture(scope="session")
def tiny(tiny_file: Path) -> Embedder:
    return load_embedder(BackboneSpec(TINY, weights=tiny_file, device="cpu", runtime="torch"))


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """15 small JPEGs of three classes, with a training and a test split, all different."""
    return draw_photographs(tmp_path / "birds")


@pytest.fixture
def few_photographs(tmp_path: Path) -> Path:
    """9 of them, for the embedded network, which takes its time."""
    return draw_photographs(tmp_path / "few", {"train": 2, "test": 1})


def draw_photographs(folder: Path, splits: dict[str, int] = SPLITS) -> Path:
    rng = np.random.default_rng(7)
    for split, count in splits.items():
        for name in CLASSES:
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                draw(folder / split / name / f"{number}.jpg", rng)
    return folder


def draw(path: Path, rng: np.random.Generator) -> None:
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
    coarse.resize((200, 150), Image.Resampling.BICUBIC).save(path, quality=92)


@pytest.fixture
def redraw() -> Callable[[Path], None]:
    """Replace a photograph by another one."""
    return lambda path: draw(path, np.random.default_rng(99))

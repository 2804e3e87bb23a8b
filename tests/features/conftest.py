from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from fiveshot.backbones import BackboneSpec, Embedder, load_embedder

TINY = "test_vit.r160_in1k"
SPLITS = {"train": 3, "test": 2}  # images of each class
CLASSES = ("ani", "rook", "wren")


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of timm's tiny test ViT, made up: no hub is needed to load it from here."""
    generator = torch.Generator().manual_seed(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = timm.create_model(TINY).state_dict()
    for key, tensor in state.items():
        state[key] = tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(state, path)
    return path


@pytest.fixture(scope="session")
def tiny(tiny_weights: Path) -> Embedder:
    return load_embedder(BackboneSpec(TINY, weights=tiny_weights, device="cpu", runtime="torch"))


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """15 small JPEGs of three classes, with a training and a test split, all different."""
    return draw_photographs(tmp_path / "birds")


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

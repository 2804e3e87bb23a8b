from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import timm
import torch

from fiveshot.backbones import Backbone, Preprocessing
from fiveshot.data import ArraySource, ImageSplit
from fiveshot.tuning import TuneRecipe

SIDE = 32


def tiny_backbone() -> Backbone:
    """Return timm's tiny test ViT for small images, with weights that are the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        vit = timm.create_model("test_vit", img_size=SIDE, num_classes=0)
        for parameter in vit.parameters():  # timm's own start is so small that all images look alike
            parameter.data += 0.1 * torch.randn_like(parameter)
    return Backbone(vit.requires_grad_(False).eval(), "test_vit", Preprocessing(size=SIDE, resize=36))


def coloured_split(n_classes: int = 4, per_class: int = 8, *, seed: int = 0, noise: float = 40) -> ImageSplit:
    """Return noisy images of different sizes; a class has its own colour."""
    rng = np.random.default_rng(seed)
    colours = rng.integers(40, 216, (n_classes, 3))
    images, labels = [], []
    for label in range(n_classes):
        for number in range(per_class):
            height, width = rng.integers(28, 60, size=2)
            pixels = colours[label] + rng.normal(0, noise, (height, width, 3))
            array = np.clip(pixels, 0, 255).astype(np.uint8)
            images.append(ArraySource(array, f"train/{label}/{number}"))
            labels.append(label)
    return ImageSplit(tuple(images), np.array(labels))


@pytest.fixture
def backbone() -> Backbone:
    return tiny_backbone()


@pytest.fixture
def make_backbone() -> Callable[[], Backbone]:
    return tiny_backbone


@pytest.fixture
def split() -> ImageSplit:
    return coloured_split()


@pytest.fixture
def make_split() -> Callable[..., ImageSplit]:
    return coloured_split


@pytest.fixture
def quick() -> TuneRecipe:
    """A recipe that learns the coloured images in seconds."""
    return TuneRecipe(lr=5e-3, batch_size=8, epochs=3, bottleneck=8, seed=1)

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_vit import TINY

from fiveshot.backbones import Backbone, BackboneSpec, load_backbone

REAL = Path(__file__).resolve().parents[3] / "shared" / "data"  # the real material beside the checkout


@pytest.fixture
def tiny(tiny_file: Path) -> Backbone:
    return load_backbone(BackboneSpec(TINY, weights=tiny_file))


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 3, 160, 160, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="session")
def drawings() -> list[Image.Image]:
    """Four pictures of different sizes in smooth colors."""
    rng = np.random.default_rng(0)
    coarse = (Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)) for _ in range(4))
    sizes = ((300, 200), (180, 260), (224, 224), (640, 480))
    return [picture.resize(size, Image.Resampling.BICUBIC) for picture, size in zip(coarse, sizes, strict=True)]


@pytest.fixture(scope="session")
def photographs() -> list[Image.Image]:
    """Eight of the general photographs."""
    archive = real_file("general-photos.tar")
    with tarfile.open(archive) as tar:
        files = [member for member in tar.getmembers() if member.isfile()][::125]
        return [Image.open(io.BytesIO(tar.extractfile(file).read())).convert("RGB") for file in files]


@pytest.fixture(scope="session")
def float32_weights() -> Path:
    """The weights that the embedded ones were rounded from."""
    return real_file("networks/tiny_vit_5m_224.dist_in22k.safetensors")


def real_file(name: str) -> Path:
    if not (REAL / name).is_file():
        pytest.skip(f"{name} is not beside the checkout")
    return REAL / name

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_vit import TINY

from fiveshot.backbones import Backbone, BackboneSpec, load_backbone


@pytest.fixture
def tiny(tiny_file: Path) -> Backbone:
    return load_backbone(BackboneSpec(TINY, weights=tiny_file))


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 3, 160, 160, generator=torch.Generator().manual_seed(5))

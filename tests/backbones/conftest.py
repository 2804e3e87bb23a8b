from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from fiveshot.backbones import Backbone, BackboneSpec, load_backbone

TINY = "test_vit.r160_in1k"


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of timm's tiny test ViT, made up: no hub is needed to load it from here."""
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(made_up_weights(TINY, seed=1), path)
    return path


@pytest.fixture
def tiny(tiny_file: Path) -> Backbone:
    return load_backbone(BackboneSpec(TINY, weights=tiny_file))


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 3, 160, 160, generator=torch.Generator().manual_seed(5))


def made_up_weights(name: str, *, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = timm.create_model(name).state_dict()
    for key, tensor in state.items():
        if tensor.is_floating_point() and not key.endswith("running_var"):
            state[key] = tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
    return state

"""timm's tiny test ViT with made-up weights: no hub is needed to load it from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TINY = "test_vit.r160_in1k"


def made_up_weights(*, seed: int) -> dict[str, Any]:
    """Return weights, the same every time: timm's own start is so small that all images look alike."""
    import timm
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = timm.create_model(TINY).state_dict()
    return {name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator) for name, tensor in state.items()}


def write_weights(path: Path, *, seed: int = 1) -> Path:
    from safetensors.torch import save_file

    save_file(made_up_weights(seed=seed), path)
    return path

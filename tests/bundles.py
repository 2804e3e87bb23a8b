"""Bundles made here: small networks of ``transformers`` with random weights and the image sizes of real ones."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from processors import PROCESSORS
from torch import nn

WIDTH, PROJECTED = 32, 24
_SMALL = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@dataclass(frozen=True)
class Made:
    """A network and the folder of its bundle."""

    folder: Path
    model: nn.Module
    outputs: tuple[str, ...]

    def torch_outputs(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Return what torch gives for normalized images (n, 3, side, side)."""
        with torch.no_grad():
            given = self.model(torch.from_numpy(images))
        return {name: given[name].numpy() for name in self.outputs}


def _networks() -> dict[str, tuple[nn.Module, tuple[str, ...]]]:
    t = transformers
    hidden = ("last_hidden_state",)
    return {
        "vit": (t.ViTModel(t.ViTConfig(**_SMALL, patch_size=32), add_pooling_layer=False), hidden),
        "dinov2": (
            t.Dinov2Model(
                t.Dinov2Config(
                    hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=518,
                    patch_size=14,
                )
            ),
            hidden,
        ),
        "clip": (
            t.CLIPVisionModelWithProjection(
                t.CLIPVisionConfig(**_SMALL, image_size=224, patch_size=32, projection_dim=PROJECTED)
            ),
            ("image_embeds", "last_hidden_state"),
        ),
        "siglip": (
            t.SiglipVisionModel(t.SiglipVisionConfig(**_SMALL, image_size=224, patch_size=16)),
            ("last_hidden_state", "pooler_output"),
        ),
        "dinov3": (
            t.DINOv3ViTModel(t.DINOv3ViTConfig(**_SMALL, patch_size=16, num_register_tokens=4)),
            ("last_hidden_state", "pooler_output"),
        ),
        "swin": (
            t.SwinModel(t.SwinConfig(embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 4], window_size=7)),
            ("last_hidden_state", "pooler_output"),
        ),
        "convnext": (
            t.ConvNextModel(t.ConvNextConfig(hidden_sizes=[8, 16, 24, WIDTH], depths=[1, 1, 2, 1])),
            ("last_hidden_state", "pooler_output"),
        ),
    }  # fmt: skip


class _Named(nn.Module):
    def __init__(self, model: nn.Module, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = self.model(pixel_values=pixel_values)
        return tuple(given[name] for name in self.outputs)


def export(model: nn.Module, outputs: tuple[str, ...], file: Path, *, size: int = 224) -> None:
    """Write a network as ONNX in the way of the hub: ``pixel_values`` with free sides."""
    free = {0: "batch_size", 2: "height", 3: "width"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Named(model, outputs).eval(),
            (torch.zeros(2, 3, size, size),),
            str(file),
            dynamo=False,
            opset_version=18,
            input_names=["pixel_values"],
            output_names=list(outputs),
            dynamic_axes={"pixel_values": free, **{name: {0: "batch_size"} for name in outputs}},
        )


def make_bundles(top: Path, *names: str) -> dict[str, Made]:
    """Write bundles of all architectures, or of those that are named, laid out as repositories of the hub are."""
    made = {}
    torch.manual_seed(0)
    for name, (model, outputs) in _networks().items():
        if names and name not in names:
            continue
        with torch.no_grad():
            for parameter in model.parameters():  # the usual start is so small that all photos look alike
                parameter.add_(0.1 * torch.randn(parameter.shape))
        folder = top / name
        (folder / "onnx").mkdir(parents=True)
        model.eval().config.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[name]))
        file = "vision_model.onnx" if name == "clip" else "model.onnx"
        export(model, outputs, folder / "onnx" / file)
        made[name] = Made(folder, model, outputs)
    return made


def single_file(made: Made, path: Path, *, output: str, preprocessing: dict[str, Any], name: str) -> None:
    """Write a bundle as one file, with ``images``, ``features`` and its metadata."""

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made.model

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.model(pixel_values=images)[output]

    size = preprocessing["size"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Features().eval(),
            (torch.zeros(2, 3, size, size),),
            str(path),
            dynamo=False,
            opset_version=18,
            input_names=["images"],
            output_names=["features"],
            dynamic_axes={"images": {0: "n"}, "features": {0: "n"}},
        )
    graph = onnx.load(path)
    values = {
        "fiveshot.backbone": name,
        "fiveshot.preprocessing": json.dumps(preprocessing),
        "fiveshot.license": "apache-2.0",
    }
    onnx.helper.set_model_props(graph, values)
    onnx.save(graph, path)

"""Adapters alone in a small file, bound to the backbone they were trained on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from fiveshot.backbones.adaptformer import adapter_state, adapters, attach_adapters
from fiveshot.backbones.backbone import Backbone
from fiveshot.errors import InputError, StorageError
from fiveshot.storage import read_tensors, write_tensors

KIND = "adapter"
VERSION = 1


def save_adapter(
    path: str | os.PathLike[str], backbone: Backbone, *, meta: Mapping[str, Any] | None = None
) -> None:
    """Write the backbone's adapters, and nothing else of it, to ``path``, atomically.

    ``meta`` is kept with them: JSON values about the training, say.

    >>> import tempfile, timm
    >>> from fiveshot.backbones import Backbone, Preprocessing, attach_adapters, save_adapter
    >>> from fiveshot.storage import read_tensors
    >>> vit = attach_adapters(timm.create_model("test_vit", num_classes=0), seed=0)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=160, resize=160))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_adapter(f"{folder}/birds.safetensors", backbone, meta={"epochs": 15})
    ...     read_tensors(f"{folder}/birds.safetensors", kind="adapter", version=1).meta["training"]
    {'epochs': 15}
    """
    attached = adapters(backbone.model)
    if not attached:
        raise InputError(f"{backbone.name} has no adapters to save; attach_adapters puts them in")
    first = attached[0]
    header = {
        "backbone": backbone.name,
        "weights_hash": backbone.weights_hash,
        "bottleneck": first.down.out_features,
        "scale": first.scale,
        "dropout": first.dropout.p,
        "training": dict(meta or {}),
    }
    write_tensors(path, adapter_state(backbone.model), kind=KIND, version=VERSION, meta=header)


def load_adapter(path: str | os.PathLike[str], backbone: Backbone) -> dict[str, Any]:
    """Put the adapters in the file ``path`` into the backbone, frozen, and return the file's metadata.

    The file must have been made with the same weights, whatever the name they go by.

    >>> from fiveshot.backbones import load_adapter, load_backbone
    >>> from fiveshot.backbones.embedded_adapters import adapter_path
    >>> backbone = load_backbone()
    >>> about = load_adapter(adapter_path("cub200-big"), backbone)
    >>> about["bottleneck"], about["weights_hash"] == backbone.weights_hash
    (64, True)
    """
    file = read_tensors(path, kind=KIND, version=VERSION)
    try:
        origin, bound_to = file.meta["backbone"], file.meta["weights_hash"]
        shape = {key: file.meta[key] for key in ("bottleneck", "scale", "dropout")}
    except KeyError as error:
        raise StorageError(f"{path} lacks {error} in its metadata; get a fresh copy of it") from error
    if bound_to != backbone.weights_hash:
        raise InputError(
            f"{path} was trained on {origin} (weights {bound_to[:12]}) and does not fit "
            f"{backbone.name} (weights {backbone.weights_hash[:12]}); load it with its own backbone"
        )
    found = {name: tuple(tensor.shape) for name, tensor in file.tensors.items()}
    if found != _expected_shapes(backbone.model, shape["bottleneck"]):
        raise StorageError(f"{path} does not hold the adapters that its metadata describes; get a fresh copy")
    attach_adapters(backbone.model, **shape, seed=0)
    tensors = {name: torch.from_numpy(array) for name, array in file.tensors.items()}
    backbone.model.load_state_dict(tensors, strict=False)
    backbone.model.requires_grad_(False).eval()
    return file.meta


def _expected_shapes(vit: Any, bottleneck: int) -> dict[str, tuple[int, ...]]:
    width = vit.embed_dim
    parts = {
        "down.weight": (bottleneck, width),
        "down.bias": (bottleneck,),
        "up.weight": (width, bottleneck),
        "up.bias": (width,),
    }
    blocks = range(len(vit.blocks))
    return {f"blocks.{block}.adapter.{part}": shape for block in blocks for part, shape in parts.items()}

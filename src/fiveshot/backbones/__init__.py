"""Frozen vision transformers and their adapters: photos in, feature vectors out.

The embedded backbone needs no torch. What does is imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fiveshot.backbones._adapter import (
    AdapterFile,
    adapter_path,
    embedded_adapters,
    load_adapter,
    read_adapter,
    save_adapter,
)
from fiveshot.backbones.embedder import Embedder, NotFiniteError, choose_device, default_workers, load_embedder
from fiveshot.backbones.preprocessing import PAPER_PREPROCESSING, Preprocessing, paper_preprocessing
from fiveshot.backbones.spec import DEFAULT, EMBEDDED, PAPER_BACKBONE, RUNTIMES, BackboneSpec, Readout

if TYPE_CHECKING:
    from fiveshot.backbones._adaptformer import (
        AdaptedBlock,
        Adapter,
        adapter_state,
        adapters,
        attach_adapters,
    )
    from fiveshot.backbones._networks import build_embedded, resolve_name
    from fiveshot.backbones.backbone import Backbone, load_backbone, torch_embedder
    from fiveshot.backbones.spec import BackboneInfo, describe_backbone, list_backbones

__all__ = [
    "DEFAULT",
    "EMBEDDED",
    "PAPER_BACKBONE",
    "PAPER_PREPROCESSING",
    "RUNTIMES",
    "AdaptedBlock",
    "Adapter",
    "AdapterFile",
    "Backbone",
    "BackboneInfo",
    "BackboneSpec",
    "Embedder",
    "NotFiniteError",
    "Preprocessing",
    "Readout",
    "adapter_path",
    "adapter_state",
    "adapters",
    "attach_adapters",
    "build_embedded",
    "choose_device",
    "default_workers",
    "describe_backbone",
    "embedded_adapters",
    "list_backbones",
    "load_adapter",
    "load_backbone",
    "load_embedder",
    "paper_preprocessing",
    "read_adapter",
    "resolve_name",
    "save_adapter",
    "torch_embedder",
]

_WITH_TORCH = {
    "_adaptformer": ("AdaptedBlock", "Adapter", "adapter_state", "adapters", "attach_adapters"),
    "backbone": ("Backbone", "load_backbone", "torch_embedder"),
    "spec": ("BackboneInfo", "describe_backbone", "list_backbones"),
    "_networks": ("build_embedded", "resolve_name"),
}


def __getattr__(name: str) -> Any:
    for module, names in _WITH_TORCH.items():
        if name in names:
            from fiveshot.backbones.embedder import TORCH
            from fiveshot.extras import require_extra

            require_extra(*TORCH)
            return getattr(import_module(f"fiveshot.backbones.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Frozen vision transformers and their adapters: photos in, feature vectors out.

The embedded backbone does not need torch. Names that need torch are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.backbones._adapter import (
    AdapterFile,
    adapter_path,
    embedded_adapters,
    load_adapter,
    read_adapter,
    save_adapter,
)
from fiveshot.backbones.embedder import (
    TORCH,
    Embedder,
    NotFiniteError,
    choose_device,
    default_workers,
    load_embedder,
)
from fiveshot.backbones.preprocessing import PAPER_PREPROCESSING, Preprocessing, paper_preprocessing
from fiveshot.backbones.spec import (
    DEFAULT,
    EMBEDDED,
    PAPER_BACKBONE,
    RUNTIMES,
    BackboneInfo,
    BackboneSpec,
    Readout,
    describe_backbone,
    list_backbones,
)
from fiveshot.extras import imported_name, require_extra

if TYPE_CHECKING:
    from fiveshot.backbones._adaptformer import (
        AdaptedBlock,
        Adapter,
        adapter_state,
        adapters,
        attach_adapters,
        detach_adapters,
    )
    from fiveshot.backbones._networks import resolve_name
    from fiveshot.backbones.backbone import Backbone, load_backbone, torch_embedder

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
    "choose_device",
    "default_workers",
    "describe_backbone",
    "detach_adapters",
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

_WITH_TORCH = ("_adaptformer", "_networks", "backbone")


def __getattr__(name: str) -> Any:
    if name in __all__:
        require_extra(*TORCH)
    return imported_name(__name__, _WITH_TORCH, name, __all__)

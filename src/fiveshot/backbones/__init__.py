"""Frozen networks and their adapters: photos in, feature vectors out.

The embedded backbone does not need torch. Names that need torch are imported on first use.
Names in ``__all__`` are for everybody. The others are for the packages of fiveshot above this one.
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
from fiveshot.backbones.backbone_file import BackboneFile, describe_file, export_backbone
from fiveshot.backbones.catalog import BackboneChoice, backbone_choices
from fiveshot.backbones.embedder import TORCH as TORCH
from fiveshot.backbones.embedder import (
    Embedder,
    NotFiniteError,
    choose_device,
    default_workers,
    load_embedder,
)
from fiveshot.backbones.embedder import Vectors as Vectors
from fiveshot.backbones.embedder import fingerprint_of as fingerprint_of
from fiveshot.backbones.embedder import needs_torch as needs_torch
from fiveshot.backbones.preprocessing import PAPER_PREPROCESSING, Preprocessing, paper_preprocessing
from fiveshot.backbones.preprocessing import Pixels as Pixels
from fiveshot.backbones.preprocessing import preprocessing_for as preprocessing_for
from fiveshot.backbones.spec import CURATED as CURATED
from fiveshot.backbones.spec import DEFAULT, EMBEDDED, PAPER_BACKBONE, RUNTIMES, BackboneSpec, Readout
from fiveshot.backbones.spec import is_bundle as is_bundle
from fiveshot.backbones.spec import refuse_bundle as refuse_bundle
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
    from fiveshot.backbones._function import FunctionNetwork as FunctionNetwork
    from fiveshot.backbones._networks import resolve_name
    from fiveshot.backbones.backbone import Backbone, load_backbone, torch_embedder
    from fiveshot.backbones.backbone import checked_device as checked_device
    from fiveshot.backbones.backbone import normal_levels as normal_levels
    from fiveshot.backbones.backbone import normalize_tensor as normalize_tensor
    from fiveshot.backbones.backbone import read_features as read_features
    from fiveshot.backbones.bundles.bundle import BundleNetwork as BundleNetwork
    from fiveshot.backbones.embedded import EmbeddedNetwork as EmbeddedNetwork
    from fiveshot.backbones.export import export_onnx as export_onnx
    from fiveshot.backbones.gpu import quick_vit as quick_vit
    from fiveshot.backbones.spec import BackboneInfo, describe_backbone

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
    "BackboneChoice",
    "BackboneFile",
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
    "backbone_choices",
    "choose_device",
    "default_workers",
    "describe_backbone",
    "describe_file",
    "detach_adapters",
    "embedded_adapters",
    "export_backbone",
    "load_adapter",
    "load_backbone",
    "load_embedder",
    "paper_preprocessing",
    "read_adapter",
    "resolve_name",
    "save_adapter",
    "torch_embedder",
]

_WITH_TORCH = ("spec", "_adaptformer", "_networks", "backbone", "gpu", "export")
# For the packages of fiveshot above this one.
_FOR_PACKAGES = [
    "checked_device",
    "export_onnx",
    "normal_levels",
    "normalize_tensor",
    "quick_vit",
    "read_features",
]
_NETWORKS = {"BundleNetwork": "bundles.bundle", "EmbeddedNetwork": "embedded", "FunctionNetwork": "_function"}


def __getattr__(name: str) -> Any:
    if name in _NETWORKS:
        return imported_name(__name__, (_NETWORKS[name],), name, [name])
    names = [*__all__, *_FOR_PACKAGES]
    if name in names:
        require_extra(*TORCH)
    return imported_name(__name__, _WITH_TORCH, name, names)

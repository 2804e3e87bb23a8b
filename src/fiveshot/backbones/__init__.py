"""Frozen vision transformers and their AdaptFormer adapters: images in, features out."""

from fiveshot.backbones.adapterfile import load_adapter, save_adapter
from fiveshot.backbones.adaptformer import AdaptedBlock, Adapter, adapter_state, adapters, attach_adapters
from fiveshot.backbones.backbone import Backbone, Extractor
from fiveshot.backbones.embedded import EMBEDDED, build_embedded
from fiveshot.backbones.listing import BackboneInfo, describe_backbone, list_backbones
from fiveshot.backbones.loading import DEFAULT, load_backbone
from fiveshot.backbones.names import PAPER_BACKBONE, resolve_name
from fiveshot.backbones.onnx import OnnxBackbone, fastest_cpu
from fiveshot.backbones.paper import PAPER_PREPROCESSING, paper_preprocessing
from fiveshot.backbones.preprocessing import Preprocessing
from fiveshot.backbones.readout import Readout

__all__ = [
    "DEFAULT",
    "EMBEDDED",
    "PAPER_BACKBONE",
    "PAPER_PREPROCESSING",
    "AdaptedBlock",
    "Adapter",
    "Backbone",
    "BackboneInfo",
    "Extractor",
    "OnnxBackbone",
    "Preprocessing",
    "Readout",
    "adapter_state",
    "adapters",
    "attach_adapters",
    "build_embedded",
    "describe_backbone",
    "fastest_cpu",
    "list_backbones",
    "load_adapter",
    "load_backbone",
    "paper_preprocessing",
    "resolve_name",
    "save_adapter",
]

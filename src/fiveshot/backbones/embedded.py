"""The ViT that comes with the package, built from timm's own parts; facts in weights/MODEL_CARD.md."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from fiveshot.backbones.checkpoint import read_state
from fiveshot.errors import InputError
from fiveshot.extras import import_extra

EMBEDDED = "vit_hybrid_small_patch16_224.fiveshot"
"""Name of the backbone that comes with the package, weights included.

>>> from fiveshot.backbones import EMBEDDED, load_backbone
>>> load_backbone(EMBEDDED).width
384
"""
EMBEDDED_FILE = Path(__file__).parent / "weights" / "vit_hybrid_small_patch16_224.safetensors"

# The fields timm's own models carry, so that resolve_model_data_config and friends work here too.
_CONFIG = {
    "architecture": "vit_hybrid_small_patch16_224",
    "tag": "fiveshot",
    "input_size": (3, 224, 224),
    "fixed_input_size": True,
    "interpolation": "bicubic",
    "crop_pct": 224 / 256,
    "crop_mode": "center",
    "mean": (0.5, 0.5, 0.5),
    "std": (0.5, 0.5, 0.5),
    "num_classes": 1000,
    "first_conv": "patch_embed.backbone.conv_stem",
    "classifier": "head",
    "license": "apache-2.0",
}


def build_embedded(*, num_classes: int = 1000) -> Any:
    """Return the embedded architecture with fresh weights: a ViT over the stride-16 map of EfficientNet-lite2.

    ``num_classes`` is that of its classifier; 0 leaves it out.

    >>> import torch
    >>> with torch.device("meta"):  # the shapes alone, without memory
    ...     vit = build_embedded(num_classes=10)
    >>> len(vit.blocks), vit.head
    (8, Linear(in_features=384, out_features=10, bias=True))
    """
    timm = import_extra("timm")
    vision_transformer = import_extra("timm.models.vision_transformer")
    stem = timm.create_model("tf_efficientnet_lite2", features_only=True, out_indices=(3,))
    stem.blocks = stem.blocks[:5]  # the stride-16 map leaves the fifth stage; the rest is never run
    vit = vision_transformer.VisionTransformer(
        img_size=224,
        patch_size=1,
        embed_dim=384,
        depth=8,
        num_heads=6,
        num_classes=num_classes,
        # The map's size is stated because timm would otherwise run the stem once to find it.
        embed_layer=partial(import_extra("timm.layers").HybridEmbed, backbone=stem, feature_size=14),
    )
    vit.pretrained_cfg = vit.default_cfg = dict(_CONFIG)
    return vit


def load_embedded(weights: str | os.PathLike[str] = EMBEDDED_FILE) -> Any:
    """Return the architecture without classifier, in float32, every tensor from the file."""
    state = {name: tensor for name, tensor in read_state(weights).items() if not name.startswith("head.")}
    model = build_embedded(num_classes=0)
    counters = {name for name in model.state_dict() if name.endswith("num_batches_tracked")}
    wanted = {name: t.shape for name, t in model.state_dict().items() if name not in counters}
    found = {name: t.shape for name, t in state.items() if name not in counters}
    if found != wanted:
        lacking = sum(found.get(name) != shape for name, shape in wanted.items())
        raise InputError(
            f"{weights} does not fit {EMBEDDED}: {lacking} tensors missing or of another shape, "
            f"{len(found.keys() - wanted.keys())} unexpected"
        )
    model.load_state_dict(state, strict=False)  # the counters, which nothing reads, may be left out
    return model

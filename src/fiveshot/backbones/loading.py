"""Load a backbone by name: the embedded one, or any of timm's from the hub or a local file."""

from __future__ import annotations

from typing import Any

import torch

from fiveshot.backbones.adapterfile import load_adapter
from fiveshot.backbones.backbone import Backbone
from fiveshot.backbones.checkpoint import timm_from_file, without_classifier
from fiveshot.backbones.embedded import EMBEDDED, EMBEDDED_FILE, load_embedded
from fiveshot.backbones.embedded_adapters import adapter_path
from fiveshot.backbones.hub import cached_weights, require_hub, unreachable
from fiveshot.backbones.names import resolve_name
from fiveshot.backbones.paper import paper_preprocessing
from fiveshot.backbones.preprocessing import Preprocessing, weights_preprocessing
from fiveshot.backbones.readout import CLS, Readout
from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.storage import FilePath

DEFAULT = EMBEDDED
"""Name of the backbone that is used where none is given: the embedded one, which needs no download.

>>> from fiveshot.backbones import DEFAULT, EMBEDDED
>>> DEFAULT == EMBEDDED
True
"""


def load_backbone(
    name: str = DEFAULT,
    *,
    weights: FilePath | None = None,
    adapter: FilePath | None = None,
    preprocessing: Preprocessing | str | None = None,
    readout: Readout = CLS,
    device: str | torch.device = "cpu",
) -> Backbone:
    """Return a frozen backbone without classifier, in float32 and eval mode.

    ``weights`` is a local file for the named architecture, for machines without a hub. ``adapter`` is an
    adapter file, or the name of one that comes with the package. ``preprocessing`` is the weights' own (None
    or ``weights``), the paper's (``paper``, ``paper:cifar100``, ...), or a value.

    >>> backbone = load_backbone()
    >>> backbone.name, backbone.width, backbone.preprocessing.resize
    ('vit_hybrid_small_patch16_224.fiveshot', 384, 256)
    >>> backbone.features(torch.zeros(2, 3, 224, 224)).shape
    torch.Size([2, 384])
    """
    where = checked_device(device)
    name = resolve_name(name)
    model = load_embedded(weights or EMBEDDED_FILE) if name == EMBEDDED else _timm(name, weights)
    model = model.float().requires_grad_(False).eval().to(where, memory_format=torch.channels_last)
    backbone = Backbone(model, name, _preprocessing(preprocessing, model, name), readout)
    if adapter is not None:
        load_adapter(adapter_path(adapter), backbone)
    return backbone


def _timm(name: str, weights: FilePath | None) -> Any:
    if weights is not None:
        return timm_from_file(name, weights)
    timm = import_extra("timm")
    config = timm.models.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise InputError(f"timm has no pre-trained weights for {name}; pass weights=FILE (--weights FILE)")
    cached = cached_weights(config)
    if cached is not None:
        return timm_from_file(name, cached)
    require_hub(name, config)
    try:
        return without_classifier(timm.create_model(name, pretrained=True))
    except Exception as error:  # whatever the hub's client raises: it has no common base
        raise unreachable(name, config, type(error).__name__) from error


def _preprocessing(wanted: Preprocessing | str | None, model: Any, name: str) -> Preprocessing:
    if isinstance(wanted, Preprocessing):
        return wanted
    if wanted is None or wanted == "weights":
        return weights_preprocessing(model, name=name)
    return paper_preprocessing(wanted)


def checked_device(device: str | torch.device) -> torch.device:
    """Return a device that this machine has, or say which to choose; ``auto`` is a GPU where there is one."""
    cuda = torch.cuda.is_available()
    if device == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        where = torch.device(device)
    except RuntimeError as error:
        choices = "auto, cpu, cuda or cuda:0" if cuda else "auto or cpu; this machine has no CUDA device"
        raise InputError(f"no device {device!r}; choose {choices}") from error
    if where.type == "cuda" and not cuda:
        raise InputError("no CUDA device is available; choose auto or cpu")
    return where

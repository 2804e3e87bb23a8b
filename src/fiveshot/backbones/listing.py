"""What can be chosen as a backbone, and what each costs: counted, not quoted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from fiveshot.backbones.backbone import feature_width, read_features
from fiveshot.backbones.embedded import EMBEDDED_FILE
from fiveshot.backbones.networks import build_embedded, cached_weights, resolve_name, weights_preprocessing
from fiveshot.backbones.spec import CURATED, EMBEDDED, OWN
from fiveshot.extras import import_extra


@dataclass(frozen=True)
class BackboneInfo:
    """A backbone's name and costs.

    Parameters
    ----------
    name : str
        Exact name.
    parameters : int
        Number of weights, without classifier.
    gmacs : float
        10⁹ multiply-accumulates for the features of one image.
    width : int
        Length of a feature vector.
    input_size : int
        Side of the image that it takes, in pixels.
    local : bool
        Whether the weights are on this machine.
    note : str
        What it is good for.

    Examples
    --------
    >>> from fiveshot.backbones import describe_backbone
    >>> info = describe_backbone("test_vit.r160_in1k")
    >>> info.name, info.input_size, info.width
    ('test_vit.r160_in1k', 160, 64)
    """

    name: str
    parameters: int
    gmacs: float
    width: int
    input_size: int
    local: bool
    note: str = ""


def describe_backbone(name: str) -> BackboneInfo:
    """Count what a backbone costs; no weights are read or fetched.

    Parameters
    ----------
    name : str
        The embedded backbone, or any name of timm's.

    Returns
    -------
    BackboneInfo
        Its name and costs.

    Examples
    --------
    >>> from fiveshot.backbones import describe_backbone
    >>> info = describe_backbone("vit_base_patch16_224.augreg_in21k_ft_in1k")
    >>> info.parameters, round(info.gmacs, 2), info.width
    (85798656, 17.56, 768)
    """
    name = resolve_name(name)
    model = _without_memory(name)
    preprocessing = weights_preprocessing(model, name=name)
    return BackboneInfo(
        name=name,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        gmacs=_multiply_accumulates(model, preprocessing.size) / 1e9,
        width=feature_width(model, OWN),
        input_size=preprocessing.size,
        local=_is_local(name),
        note=CURATED.get(name, ""),
    )


def list_backbones(names: Iterable[str] = tuple(CURATED)) -> list[BackboneInfo]:
    """Count what several backbones cost.

    Parameters
    ----------
    names : iterable of str, optional
        Their names; a short list of well-suited ones unless given.

    Returns
    -------
    list of BackboneInfo
        Their names and costs, in the same order.

    Examples
    --------
    >>> from fiveshot.backbones import list_backbones
    >>> for info in list_backbones(["test_vit.r160_in1k", "vit_hybrid_small_patch16_224.fiveshot"]):
    ...     print(info.width, info.name)
    64 test_vit.r160_in1k
    1664 vit_hybrid_small_patch16_224.fiveshot
    """
    return [describe_backbone(name) for name in names]


def _without_memory(name: str) -> Any:
    with torch.device("meta"):
        if name == EMBEDDED:
            model = build_embedded(num_classes=0)
        else:
            model = import_extra("timm").create_model(name, pretrained=False, num_classes=0)
    return model.eval()


def _multiply_accumulates(model: Any, size: int) -> float:
    images = torch.empty(1, 3, size, size, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        read_features(model, images, OWN)
    operations: int = counter.get_total_flops()
    return operations / 2  # it counts a multiply-accumulate as two operations


def _is_local(name: str) -> bool:
    if name == EMBEDDED:
        return EMBEDDED_FILE.is_file()
    config = import_extra("timm").models.get_pretrained_cfg(name)
    return config is not None and cached_weights(config) is not None

"""A short list of backbones to choose from, with what is known of each before it is downloaded."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fiveshot.backbones.embedder import TORCH, load_embedder
from fiveshot.backbones.spec import CURATED, EMBEDDED, PAPER_BACKBONE, BackboneSpec, describe_backbone, is_bundle
from fiveshot.extras import import_extra, is_installed, require_extra

HUB, HUB_FILES = "timm", ("model.safetensors", "pytorch_model.bin")  # where the short list comes from
BYTES = 4  # of a number in the files on the hub: float32
TIMED = 2  # passes over the five drawn pictures, to measure the time of one


@dataclass(frozen=True)
class BackboneChoice:
    """What helps to choose a backbone.

    Parameters
    ----------
    name : str
        Exact name.
    parameters : int
        Number of weights, without classifier.
    gmacs : float, optional
        10⁹ multiply-accumulates for the features of one image; None if that is not known.
    width : int
        Length of a feature vector.
    input_size : int
        Side of the image that it takes, in pixels.
    download : int
        Bytes to download: four for each number of the network with its classifier. 0 if it comes with the package.
    license : str
        License of the weights; empty if it is not known for certain.
    note : str
        What it is good at.
    needs_torch : bool
        Whether it runs on torch only.
    local : bool, optional
        Whether the weights are on this machine; None if nothing that could fetch them is
        installed.
    milliseconds : float, optional
        Time for one photo on this machine, if it was measured.

    Examples
    --------
    >>> from fiveshot.backbones import backbone_choices
    >>> choice = backbone_choices()[0]
    >>> choice.name, choice.license, choice.download, choice.needs_torch, choice.local
    ('tiny_vit_5m_224.dist_in22k', 'MIT', 0, False, True)
    """

    name: str
    parameters: int
    gmacs: float | None
    width: int
    input_size: int
    download: int
    license: str = ""
    note: str = ""
    needs_torch: bool = True
    local: bool | None = None
    milliseconds: float | None = None


_APACHE = "Apache-2.0"
_DOWNLOADS = {
    "vit_tiny_patch16_224.augreg_in21k_ft_in1k": (5_524_416, 1.2534912, 192, 224, 5_717_416, _APACHE),
    "vit_small_patch16_224.augreg_in21k_ft_in1k": (21_665_664, 4.598498304, 384, 224, 22_050_664, _APACHE),
    "vit_small_patch14_reg4_dinov2.lvd142m": (22_057_344, 46.8828288, 384, 518, 22_057_344, _APACHE),
    "deit3_small_patch16_224.fb_in22k_ft_in1k": (21_674_496, 4.598498304, 384, 224, 22_059_496, _APACHE),
    PAPER_BACKBONE: (85_798_656, 17.563060224, 768, 224, 86_567_656, _APACHE),
    "vit_base_patch16_224.augreg_in21k": (85_798_656, 17.563060224, 768, 224, 102_595_923, _APACHE),
    "vit_base_patch16_clip_224.openai": (85_799_424, 17.563060224, 768, 224, 86_193_152, ""),
    "vit_base_patch14_reg4_dinov2.lvd142m": (86_582_016, 152.115766272, 768, 518, 86_582_016, _APACHE),
    "vit_large_patch16_224.augreg_in21k_ft_in1k": (303_301_632, 61.553688576, 1024, 224, 304_326_632, _APACHE),
}
KNOWN = {
    EMBEDDED: BackboneChoice(
        EMBEDDED, 5_071_764, 1.25485472, 320, 224, 0, "MIT", CURATED[EMBEDDED], needs_torch=False, local=True
    ),
    **{
        name: BackboneChoice(name, parameters, gmacs, width, size, BYTES * numbers, license, CURATED[name])
        for name, (parameters, gmacs, width, size, numbers, license) in _DOWNLOADS.items()
    },
}
"""What is known without timm; tests compare it with timm."""


def backbone_choices(names: Iterable[str] = tuple(KNOWN), *, measure: bool = False) -> list[BackboneChoice]:
    """Return what helps to choose one of several backbones. No weights are fetched.

    Parameters
    ----------
    names : iterable of str, optional
        Their names; by default a short list, for which torch is not needed.
    measure : bool, default False
        Whether to measure the time for one photo, of each backbone that can run on this machine now.

    Returns
    -------
    list of BackboneChoice
        One for each name, in the same order.

    Raises
    ------
    InputError
        When a name is unknown, or is not on the short list and torch is not installed.

    Examples
    --------
    >>> from fiveshot.backbones import backbone_choices
    >>> for choice in backbone_choices(["vit_large_patch16_224.augreg_in21k_ft_in1k", "test_vit.r160_in1k"]):
    ...     print(choice.name, choice.parameters, choice.download)
    vit_large_patch16_224.augreg_in21k_ft_in1k 303301632 1217306528
    test_vit.r160_in1k 306240 ...
    """
    found = [_choice(name) for name in names]
    if not measure:
        return found
    with_torch = is_installed(TORCH[0])
    return [
        replace(one, milliseconds=milliseconds_of(one.name))
        if one.local and (with_torch or not one.needs_torch)
        else one
        for one in found
    ]


def known_license(name: str) -> str:
    """Return the license of a backbone's weights; an empty text if it is not known for certain.

    >>> known_license("vit_base_patch16_dinov3.lvd1689m"), known_license("vit_base_patch16_clip_224.openai")
    ('dinov3-license', '')
    """
    if name in KNOWN:
        return KNOWN[name].license
    config = import_extra("timm.models").get_pretrained_cfg(name)
    said = str(config.license or "") if config is not None else ""
    # timm writes apache-2.0 for all weights of a family, unless it knows better.
    return "" if said == "apache-2.0" else said


def milliseconds_of(name: str) -> float:
    """Return the time for one photo on this machine: from the decoded picture to the vector, the median of ten."""
    from fiveshot.data import drawn_pictures

    embedder, pictures = load_embedder(BackboneSpec(name)), drawn_pictures(seed=0)
    embedder.features(embedder.pixels(pictures[0])[None])  # loads the network
    times = []
    for picture in TIMED * pictures:
        start = time.perf_counter()
        embedder.features(embedder.pixels(picture)[None])
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def _choice(name: str) -> BackboneChoice:
    if name == EMBEDDED:
        return KNOWN[name]
    if name in KNOWN:
        return replace(KNOWN[name], local=_is_local(name) if is_installed("huggingface_hub") else None)
    if is_bundle(name):
        from fiveshot.backbones.bundles.bundle import describe_bundle  # it builds on this module

        return describe_bundle(name)
    require_extra(*TORCH)
    import torch

    info = describe_backbone(name)
    with torch.device("meta"):  # only shapes, no memory
        whole = import_extra("timm").create_model(info.name)
    return BackboneChoice(
        info.name,
        info.parameters,
        info.gmacs,
        info.width,
        info.input_size,
        sum(tensor.numel() * tensor.element_size() for tensor in whole.state_dict().values()),
        known_license(info.name),
        info.note,
        local=info.local,
    )


def _is_local(name: str) -> bool:
    """Tell whether the weights of a network on the short list were downloaded; timm is not needed."""
    lookup = import_extra("huggingface_hub", extra="hub").try_to_load_from_cache
    return any(isinstance(lookup(f"{HUB}/{name}", file), str) for file in HUB_FILES)

"""The specification of a backbone, and a list of backbones with their costs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fiveshot.backbones.preprocessing import Preprocessing, paper_preprocessing
from fiveshot.errors import InputError, is_number, unknown_name
from fiveshot.extras import import_extra
from fiveshot.hub import HUB
from fiveshot.storage import FilePath

EMBEDDED = "tiny_vit_5m_224.dist_in22k"
"""Name of the backbone in the package, which includes its weights: TinyViT-5M under timm's name.

>>> from fiveshot.backbones import EMBEDDED, BackboneSpec, load_embedder
>>> load_embedder(BackboneSpec(EMBEDDED)).width
320
"""
DEFAULT = EMBEDDED
"""Name of the default backbone: the embedded one, which needs no download.

>>> from fiveshot.backbones import DEFAULT, EMBEDDED
>>> DEFAULT == EMBEDDED
True
"""
PAPER_BACKBONE = "vit_base_patch16_224.augreg_in21k_ft_in1k"
"""Exact name of the backbone in the paper's experiments; its weights are fetched from the hub.

>>> from fiveshot.backbones import PAPER_BACKBONE, describe_backbone
>>> describe_backbone(PAPER_BACKBONE).width
768
"""

FUNCTION = "python:"  # before the name of a Python function that computes features: see Embedder.from_callable

# All of these take adapters. Any other timm name works too.
CURATED = {
    EMBEDDED: "everyday photos; small, fast, in the package",
    "vit_tiny_patch16_224.augreg_in21k_ft_in1k": "the paper's recipe in small, for trying",
    "vit_small_patch16_224.augreg_in21k_ft_in1k": "everyday photos",
    "vit_small_patch14_reg4_dinov2.lvd142m": "fine detail; self-supervised, large images",
    "deit3_small_patch16_224.fb_in22k_ft_in1k": "everyday photos; newer recipe",
    PAPER_BACKBONE: "everyday photos; the paper's network",
    "vit_base_patch16_224.augreg_in21k": "the paper's, before fine-tuning on ImageNet-1k",
    "vit_base_patch16_clip_224.openai": "many kinds of pictures; trained with captions",
    "vit_base_patch14_reg4_dinov2.lvd142m": "fine detail; self-supervised, large images",
    "vit_large_patch16_224.augreg_in21k_ft_in1k": "everyday photos; slow",
}

TOKENS = ("own", "cls", "mean", "cls+mean")
RUNTIMES = ("auto", "torch", "onnx", "compiled")
"""What can run a network; ``auto`` is ONNX Runtime on a CPU and torch on a GPU.

``compiled`` is torch on a GPU after half a minute of compiling, which pays off from about a million photos on.

>>> from fiveshot.backbones import RUNTIMES
>>> RUNTIMES
('auto', 'torch', 'onnx', 'compiled')
"""
PRECISIONS = ("float32", "tf32", "bf16")  # of a forward pass; all but the first are for CUDA


@dataclass(frozen=True)
class Readout:
    """Which tokens of the network form a feature vector.

    Parameters
    ----------
    tokens : {"own", "cls", "mean", "cls+mean"}
        ``own`` is the feature that the network's classifier reads: the class token of most ViTs, and the pooled
        map of the embedded network. ``cls`` is the class token after the final norm, ``mean`` the mean over the
        patch tokens after it, ``cls+mean`` both. Only ViTs with a class token have these three.
    last_blocks : int, default 1
        Concatenate the class tokens of this many last blocks, earliest first, each after the final norm. The
        mean always comes from the last block.

    Examples
    --------
    >>> from fiveshot.backbones import Readout
    >>> Readout(tokens="cls+mean", last_blocks=4).vectors
    5
    """

    tokens: str = "own"
    last_blocks: int = 1

    def __post_init__(self) -> None:
        if self.tokens not in TOKENS:
            raise unknown_name("token readout", self.tokens, TOKENS)
        if not is_number(self.last_blocks, whole=True) or self.last_blocks < 1:
            raise InputError(f"last_blocks is {self.last_blocks}", hint="choose 1 (the last block alone) or more")
        if self.tokens in ("own", "mean") and self.last_blocks > 1:
            raise InputError(
                "last_blocks concatenates class tokens", hint="choose tokens 'cls' or 'cls+mean' with it"
            )

    @property
    def vectors(self) -> int:
        """How many vectors of the tokens' width are concatenated."""
        return {"own": 1, "cls": self.last_blocks, "mean": 1, "cls+mean": self.last_blocks + 1}[self.tokens]


OWN = Readout()


def no_class_token(name: str, readout: Readout) -> InputError:
    """Return the error for a readout whose tokens a network does not have."""
    return InputError(
        f"the classifier of {name} reads no class token, so only its own pooled feature is available",
        hint=f"leave out tokens={readout.tokens!r} and last_blocks={readout.last_blocks}",
    )


def is_bundle(name: str) -> bool:
    """Tell whether a name of a backbone means an ONNX bundle: a repository of the hub, a file or a folder.

    >>> is_bundle("hf://onnx-community/dinov2-small"), is_bundle("nets/dinov2"), is_bundle(EMBEDDED)
    (True, True, False)
    """
    is_place = name.startswith(HUB) or "/" in name or os.sep in name or name.endswith(".onnx")
    return is_place or (name != EMBEDDED and Path(name, "config.json").is_file())


def refuse_bundle(name: str) -> None:
    """Refuse an ONNX bundle where a network in torch is needed."""
    if is_bundle(name):
        raise InputError(
            f"{name} is an ONNX bundle; tuning, and whatever else needs its network in torch, cannot use it",
            hint="choose a timm name; to run the tuned network without torch: fiveshot backbone export NAME FILE",
        )


@dataclass(frozen=True)
class BackboneSpec:
    """Everything that decides how photos become feature vectors, in one value that can be stored.

    Parameters
    ----------
    name : str
        The embedded backbone; the file or folder of an ONNX bundle; ``hf://OWNER/NAME`` or
        ``hf://OWNER/NAME@REVISION`` for one on the hub; or any timm name (which needs
        ``pip install 'fiveshot[torch]'``).
    weights : str or path, optional
        A local file with the weights of this architecture, for machines without a hub. For a bundle: where it is
        now.
    adapter : str or path, optional
        An adapter file, or the name of an embedded adapter.
    preprocessing : Preprocessing or str, optional
        None or ``weights`` for that of the weights; ``paper``, ``paper:cifar100``, ... for the paper's; or a
        value.
    tokens, last_blocks
        What is read from the network: see :class:`Readout`.
    views : {1, 2, 4}, optional
        How many views of a photo are averaged: see :class:`Preprocessing`. By default that of the preprocessing:
        two, or one with the paper's.
    device : str, default "auto"
        ``cpu``, ``cuda``, ``cuda:0``, or ``auto`` for a GPU if there is one and the CPU otherwise.
    runtime : {"auto", "torch", "onnx", "compiled"}
        What runs the network; ``auto`` is the fastest on this device. ``compiled`` is torch on a GPU after half a
        minute of compiling.
    precision : {"float32", "tf32", "bf16"}, optional
        Number format of the forward pass. None is bf16 on CUDA and float32 elsewhere.

    Raises
    ------
    InputError
        When a value is not allowed.

    Examples
    --------
    >>> from fiveshot.backbones import BackboneSpec
    >>> spec = BackboneSpec(adapter="cub200-big", views=4)
    >>> BackboneSpec.from_json(spec.to_json()) == spec
    True
    """

    name: str = DEFAULT
    weights: FilePath | None = None
    adapter: FilePath | None = None
    preprocessing: Preprocessing | str | None = None
    tokens: str = "own"
    last_blocks: int = 1
    views: int | None = None
    device: str = "auto"
    runtime: str = "auto"
    precision: str | None = None

    def __post_init__(self) -> None:
        for key in ("name", "device"):
            if not isinstance(getattr(self, key), str):
                raise InputError(f"{key} of a backbone must be a text, not {getattr(self, key)!r}")
        for key in ("weights", "adapter"):
            given = getattr(self, key)
            if not isinstance(given, str | os.PathLike | None):
                raise InputError(f"{key} of a backbone must be a path, not {given!r}")
            if given is not None:
                object.__setattr__(self, key, os.fspath(given))
        if isinstance(self.preprocessing, str) and self.preprocessing != "weights":
            paper_preprocessing(self.preprocessing)
        elif not isinstance(self.preprocessing, Preprocessing | str | None):
            raise InputError(f"preprocessing must be a name or a Preprocessing, not {self.preprocessing!r}")
        if self.runtime not in RUNTIMES:
            raise unknown_name("runtime", self.runtime, RUNTIMES)
        if self.precision is not None and self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)
        Readout(self.tokens, self.last_blocks)
        if self.views is not None:
            Preprocessing(size=1, resize=1, views=self.views)

    def prepared(self, own: Preprocessing) -> Preprocessing:
        """Return the preprocessing to use; ``own`` is the network's.

        >>> BackboneSpec(preprocessing="paper:cars", views=4).prepared(Preprocessing(size=224, resize=224)).views
        4
        """
        wanted = self.preprocessing
        if isinstance(wanted, str):
            wanted = None if wanted == "weights" else paper_preprocessing(wanted)
        chosen = wanted or own
        return chosen if self.views is None else replace(chosen, views=self.views)

    @property
    def readout(self) -> Readout:
        """What is read from the network."""
        return Readout(self.tokens, self.last_blocks)

    def replace(self, **changes: Any) -> BackboneSpec:
        """Return the same backbone with some values changed.

        >>> BackboneSpec().replace(device="cpu").device
        'cpu'
        """
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if isinstance(self.preprocessing, Preprocessing):
            values["preprocessing"] = self.preprocessing.to_json()
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> BackboneSpec:
        """Read what :meth:`to_json` wrote; unknown keys fail."""
        known = {entry.name for entry in fields(cls)}
        for key in values:
            if key not in known:
                raise unknown_name("value of a backbone", key, known)
        given = dict(values)
        if isinstance(given.get("preprocessing"), Mapping):
            given["preprocessing"] = Preprocessing.from_json(given["preprocessing"])
        return cls(**given)


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
    """Return the costs of a backbone; no weights are read or fetched.

    Parameters
    ----------
    name : str
        The embedded backbone, or any timm name.

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
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from fiveshot.backbones._networks import cached_weights, resolve_name, weights_preprocessing
    from fiveshot.backbones.backbone import feature_width, read_features

    name, timm = resolve_name(name), import_extra("timm")
    config = timm.models.get_pretrained_cfg(name)
    with torch.device("meta"):  # only shapes, no memory
        model = timm.create_model(name, num_classes=0)
        size = weights_preprocessing(model, name=name).size
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            read_features(model.eval(), torch.empty(1, 3, size, size), OWN)
    return BackboneInfo(
        name=name,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        gmacs=counter.get_total_flops() / 2 / 1e9,  # it counts a multiply-accumulate as two operations
        width=feature_width(model, OWN),
        input_size=size,
        local=name == EMBEDDED or (config is not None and cached_weights(config) is not None),
        note=CURATED.get(name, ""),
    )

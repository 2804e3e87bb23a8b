"""A frozen network, its preprocessing and its readout: images in, features out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fiveshot.backbones.adaptformer import adapter_state
from fiveshot.backbones.hashing import hash_tensors
from fiveshot.backbones.precision import forward_precision
from fiveshot.backbones.preprocessing import Preprocessing
from fiveshot.backbones.readout import CLS, Readout, check_readout, feature_width, read_features
from fiveshot.errors import InputError


class Extractor(Protocol):
    """What turns images into features: a backbone, or the same backbone on another runtime.

    >>> from fiveshot.backbones import Extractor, load_backbone
    >>> def described(extractor: Extractor) -> str:
    ...     return f"{extractor.name}: {extractor.preprocessing.size} px to {extractor.width} values"
    >>> described(load_backbone())
    'vit_hybrid_small_patch16_224.fiveshot: 224 px to 384 values'
    """

    @property
    def name(self) -> str:
        """Exact name of the backbone."""

    @property
    def preprocessing(self) -> Preprocessing:
        """How images must be prepared."""

    @property
    def width(self) -> int:
        """Length of a feature vector."""

    @property
    def runtime(self) -> str:
        """What runs the forward pass."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides the features."""

    def features(self, images: Tensor) -> Tensor:
        """Return the features (n, width) of preprocessed images (n, 3, size, size)."""


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network whose weights do not change, except for adapters while they are trained.

    ``load_backbone`` makes one by name; a timm network of your own needs its preprocessing:

    >>> import timm, torch
    >>> from fiveshot.backbones import Backbone, Preprocessing
    >>> vit = timm.create_model("test_vit", num_classes=0).eval().requires_grad_(False)
    >>> backbone = Backbone(vit, "mine", Preprocessing(size=160, resize=182))
    >>> backbone.features(torch.zeros(2, 3, 160, 160)).shape
    torch.Size([2, 64])
    """

    model: nn.Module = field(repr=False)
    name: str
    preprocessing: Preprocessing
    readout: Readout = CLS

    def __post_init__(self) -> None:
        """Refuse a readout or an input size that the network cannot take."""
        check_readout(self.model, self.readout, name=self.name)
        wanted = _fixed_input_size(self.model)
        if wanted is not None and wanted != self.preprocessing.size:
            raise InputError(
                f"{self.name} takes {wanted} px images; preprocessing {self.preprocessing.name!r} "
                f"gives {self.preprocessing.size} px"
            )

    @cached_property
    def weights_hash(self) -> str:
        """SHA-256 of the weights, without adapters and batch-norm counters: computed once, on first use."""
        adapted = adapter_state(self.model)
        state = self.model.state_dict()
        return hash_tensors(
            {
                name: tensor
                for name, tensor in state.items()
                if name not in adapted and not name.endswith("num_batches_tracked")
            }
        )

    @property
    def adapter_hash(self) -> str | None:
        """SHA-256 of the adapters' present weights, or None without adapters."""
        state = adapter_state(self.model)
        return hash_tensors(state) if state else None

    @property
    def width(self) -> int:
        """Length of a feature vector."""
        return feature_width(self.model, self.readout)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def runtime(self) -> str:
        """What runs the forward pass."""
        return f"PyTorch {torch.__version__} on {self.device}"

    def identity(self) -> dict[str, Any]:
        """Return, as JSON values, everything that decides the features of an image."""
        prepared = {
            key: value
            for key, value in self.preprocessing.to_json().items()
            if key != "name" and not key.startswith("train_")
        }
        return {
            "name": self.name,
            "weights_hash": self.weights_hash,
            "adapter_hash": self.adapter_hash,
            "preprocessing": prepared,
            "readout": asdict(self.readout),
        }

    @property
    def fingerprint(self) -> str:
        """SHA-256 of ``identity()``: the key for features kept on disk."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()

    def features(self, images: Tensor, *, precision: str = "float32") -> Tensor:
        """Return the float32 features (n, width) of preprocessed images (n, 3, size, size).

        Gradients reach adapters that require them; otherwise nothing is recorded. ``tf32`` and ``bf16`` are
        for CUDA.
        """
        if not len(images):
            return torch.zeros(0, self.width, device=self.device)
        # Channels-last suits convolutional stems; to plain ViTs it makes no difference.
        images = images.to(self.device, memory_format=torch.channels_last, non_blocking=True)
        trains = torch.is_grad_enabled() and any(p.requires_grad for p in self.model.parameters())
        with torch.inference_mode(not trains), forward_precision(precision, self.device):
            features = read_features(self.model, images, self.readout)
        # A copy made outside inference mode is an ordinary tensor again, fit to train a classifier on.
        return features.float() if trains else features.float().clone()


def _fixed_input_size(model: Any) -> int | None:
    embed: Any = getattr(model, "patch_embed", None)
    if getattr(embed, "strict_img_size", False) and getattr(embed, "img_size", None):
        return int(embed.img_size[0])
    return None

"""A network in torch, its preprocessing and its readout: for tuning, for CUDA, and for timm's backbones."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiveshot.backbones._adapter import chosen_adapter, put_adapter
from fiveshot.backbones._adaptformer import adapter_state
from fiveshot.backbones._networks import load_network, resolve_name, weights_preprocessing
from fiveshot.backbones.embedded import onnx_runtime, open_session, require_size, run_session
from fiveshot.backbones.embedder import Embedder, Vectors, check_place, choose_device, hash_arrays
from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.backbones.spec import EMBEDDED, OWN, PRECISIONS, BackboneSpec, Readout, no_class_token, refuse_bundle
from fiveshot.errors import FiveshotError, InputError, unknown_name
from fiveshot.work import one_thread


@dataclass(frozen=True, eq=False)
class Backbone:
    """A torch network with frozen weights; only adapters can be trained.

    :func:`load_backbone` makes one by name; a timm network of your own needs its preprocessing.

    Parameters
    ----------
    model : torch.nn.Module
        A timm network without classifier.
    name : str
        Its name.
    preprocessing : Preprocessing
        How photos are prepared for it.
    readout : Readout, optional
        What is read from it.

    Raises
    ------
    InputError
        When the network does not have this readout, or needs images of another size.

    Examples
    --------
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
    readout: Readout = OWN

    def __post_init__(self) -> None:
        _check_readout(self.model, self.readout, name=self.name)
        embed: Any = getattr(self.model, "patch_embed", None)
        fixed = getattr(embed, "img_size", None) if getattr(embed, "strict_img_size", False) else None
        if fixed and fixed[0] != self.preprocessing.size:
            raise InputError(
                f"{self.name} takes {fixed[0]} px images; preprocessing {self.preprocessing.name!r} "
                f"gives {self.preprocessing.size} px"
            )

    @cached_property
    def weights_hash(self) -> str:
        """SHA-256 of the weights, without adapters and batch-norm counters: computed once, on first use."""
        adapted = adapter_state(self.model)
        state = self.model.state_dict()
        return _hash_tensors(
            {
                name: tensor
                for name, tensor in state.items()
                if name not in adapted and not name.endswith("num_batches_tracked")
            }
        )

    @property
    def adapter_hash(self) -> str | None:
        """SHA-256 of the adapters' current weights, or None without adapters."""
        state = adapter_state(self.model)
        return _hash_tensors(state) if state else None

    @property
    def width(self) -> int:
        """Length of a feature vector."""
        return feature_width(self.model, self.readout)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    def features(self, images: Tensor, *, precision: str = "float32") -> Tensor:
        """Return the float32 features (n, width) of normalized images (n, 3, size, size).

        Gradients reach adapters that require them; otherwise nothing is recorded. ``tf32`` and ``bf16`` are
        for CUDA.
        """
        if not len(images):
            return torch.zeros(0, self.width, device=self.device)
        # Channels-last is faster for convolutional stems; for plain ViTs it makes no difference.
        images = images.to(self.device, memory_format=torch.channels_last, non_blocking=True)
        trains = torch.is_grad_enabled() and any(p.requires_grad for p in self.model.parameters())
        with torch.inference_mode(not trains), forward_precision(precision, self.device):
            features = read_features(self.model, images, self.readout)
        # A copy made outside inference mode is an ordinary tensor, so a classifier can be trained on it.
        return features.float() if trains else features.float().clone()


def load_backbone(spec: BackboneSpec = BackboneSpec()) -> Backbone:  # noqa: B008  # frozen
    """Return a frozen backbone in torch without classifier, in float32 and eval mode.

    Parameters
    ----------
    spec : BackboneSpec, optional
        The backbone; by default the embedded one. Its runtime and precision are not used here.

    Returns
    -------
    Backbone
        The network with its weights, on its device, with its adapter.

    Raises
    ------
    InputError
        When the name or the device is unknown, or a file belongs to another network.
    StorageError
        When a file is missing or damaged, or the weights cannot be fetched.

    Examples
    --------
    >>> import torch
    >>> from fiveshot.backbones import BackboneSpec, load_backbone
    >>> backbone = load_backbone(BackboneSpec(device="cpu"))
    >>> backbone.name, backbone.width, backbone.preprocessing.resize
    ('tiny_vit_5m_224.dist_in22k', 320, 256)
    >>> backbone.features(torch.zeros(2, 3, 224, 224)).shape
    torch.Size([2, 320])
    """
    refuse_bundle(spec.name)
    where = torch.device(choose_device(spec.device))
    name = resolve_name(spec.name)
    model = load_network(name, spec.weights)
    preprocessing = spec.prepared(weights_preprocessing(model, name=name))
    if name == EMBEDDED:
        require_size(preprocessing)
    model = model.float().requires_grad_(False).eval().to(where, memory_format=torch.channels_last)
    backbone = Backbone(model, name, preprocessing, spec.readout)
    chosen = chosen_adapter(spec)
    if chosen is not None:
        adapter, path = chosen
        put_adapter(adapter, backbone, path=path)
    return backbone


def torch_embedder(backbone: Backbone, spec: BackboneSpec | None = None) -> Embedder:
    """Return an embedder for a torch backbone that is already loaded.

    Parameters
    ----------
    backbone : Backbone
        The network. Only the runtime ``torch`` uses later changes of its adapters.
    spec : BackboneSpec, optional
        Gives the runtime and the precision; by default the fastest ones on this machine.

    Returns
    -------
    Embedder
        The embedder.

    Examples
    --------
    >>> import timm
    >>> from fiveshot.backbones import Backbone, BackboneSpec, Preprocessing, torch_embedder
    >>> vit = timm.create_model("test_vit", num_classes=0).eval().requires_grad_(False)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=160, resize=160))
    >>> torch_embedder(backbone).runtime
    'ONNX Runtime ... on cpu, float32'
    >>> torch_embedder(backbone, BackboneSpec(runtime="torch")).runtime
    'PyTorch ... on cpu, float32'
    """
    readout = backbone.readout
    spec = (spec or BackboneSpec()).replace(
        name=backbone.name,
        preprocessing=backbone.preprocessing,
        tokens=readout.tokens,
        last_blocks=readout.last_blocks,
        views=backbone.preprocessing.views,
    )
    check_place(spec, backbone.device.type)
    precision = spec.precision or ("float32" if backbone.device.type != "cuda" else "bf16")
    return Embedder(spec, backbone.preprocessing, TorchNetwork(backbone, spec.runtime, precision))


class TorchNetwork:
    """A torch backbone as the ``Network`` of an embedder, run by torch or, on a CPU, by ONNX Runtime."""

    def __init__(self, backbone: Backbone, runtime: str, precision: str) -> None:
        self.backbone, self.precision = backbone, precision
        self.name, self.width, self.device = backbone.name, backbone.width, str(backbone.device)
        self._wanted = runtime
        self._lock = Lock()
        self._runtime = ""  # once it is ready
        self._session: Any = None
        self._on_gpu: Any = None

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the weights, without adapters."""
        return self.backbone.weights_hash

    @property
    def adapter_hash(self) -> str | None:
        """SHA-256 of the adapters, or None without them."""
        return self.backbone.adapter_hash

    def ready(self) -> str:
        """Export the network to ONNX if that is faster, once, and return the name of the runtime."""
        with self._lock:
            if not self._runtime:
                self._session = self._exported()
                if self.backbone.device.type == "cuda":
                    self._on_gpu = self._recorded()
                own = f"PyTorch {torch.__version__} on {self.backbone.device}"
                self._runtime = own if self._session is None else onnx_runtime()
            return self._runtime

    def forward(self, images: Pixels | Tensor) -> Vectors:
        """Return the features (n, width) of pixels (n, 3, size, size)."""
        preprocessing = self.backbone.preprocessing
        if self._session is not None:
            return run_session(self._session, preprocessing.normalize(np.asarray(images)))
        where = self.backbone.device
        try:
            given = images if isinstance(images, Tensor) else torch.from_numpy(images)
            if self._on_gpu is not None:
                on_gpu: Tensor = self._on_gpu(given)
                return on_gpu.cpu().numpy()
            normalized = normalize_tensor(given.to(where), preprocessing)
            with one_thread():
                return self.backbone.features(normalized).cpu().numpy()
        except torch.cuda.OutOfMemoryError as error:
            raise InputError(
                f"a batch of {len(images)} images does not fit into the memory of {where}",
                hint="choose a smaller batch size (--batch-size)",
            ) from error

    def _recorded(self) -> Any:
        """Return the forward pass on a GPU, from pixels on."""
        from fiveshot.backbones.gpu import RecordedPass, quick_vit

        backbone, readout = self.backbone, self.backbone.readout
        quick = quick_vit(backbone.model, readout) if self.precision == "bf16" else None
        # A copy: a recorded pass needs its weights at a fixed address, even if the backbone moves.
        model, kind = (copy.deepcopy(backbone.model), torch.float32) if quick is None else (quick, torch.bfloat16)
        mean, std = normal_levels(backbone.preprocessing, backbone.device)

        def features(images: Tensor) -> Tensor:
            normalized = ((images.float() - mean) / std).to(kind, memory_format=torch.channels_last)
            return read_features(model, normalized, readout).float()

        forward = torch.compile(features, dynamic=False) if self._wanted == "compiled" else features
        autocast = self.precision if quick is None else "float32"

        def passed(images: Tensor) -> Tensor:
            with torch.inference_mode(), forward_precision(autocast, backbone.device):
                return forward(images)

        return RecordedPass(passed, backbone.device)

    def _exported(self) -> Any:
        """Return a session of ONNX Runtime, or None if torch runs the network."""
        from fiveshot.backbones.export import export_onnx, fits_onnx

        if self.backbone.device.type != "cpu" or self._wanted == "torch":
            return None
        if self._wanted == "auto" and not fits_onnx(self.backbone):
            return None
        try:
            return open_session(export_onnx(self.backbone))
        except FiveshotError:
            raise
        except Exception as error:  # the exporter's errors have no common base
            if self._wanted == "auto":
                return None
            raise InputError(
                f"{self.name} with {self.backbone.preprocessing.size} px images cannot be exported to ONNX "
                f"({type(error).__name__})",
                hint="use the runtime 'torch'",
            ) from error


def normal_levels(preprocessing: Preprocessing, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the gray levels that become 0, and those that are 1 away from it, (3, 1, 1) each, on a device."""
    mean, std = (
        255 * torch.tensor(v, device=device).view(3, 1, 1) for v in (preprocessing.mean, preprocessing.std)
    )
    return mean, std


def normalize_tensor(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Return uint8 images (..., 3, height, width) as normalized float32, on the same device.

    >>> normalize_tensor(torch.full((3, 1, 1), 255, dtype=torch.uint8), Preprocessing(size=1, resize=1)).ravel()
    tensor([1., 1., 1.])
    """
    if images.dtype != torch.uint8:
        raise InputError(f"images of type {images.dtype} cannot be normalized", hint="give uint8, 0..255")
    mean, std = (
        images.new_tensor(values, dtype=torch.float32).view(3, 1, 1)
        for values in (preprocessing.mean, preprocessing.std)
    )
    return (images.to(torch.float32) / 255 - mean) / std


def checked_device(device: str | torch.device) -> torch.device:
    """Return a device of this machine, or raise an error that lists the choices; ``auto`` prefers a GPU."""
    cuda = torch.cuda.is_available()
    if device == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        where = torch.device(device)
    except RuntimeError as error:
        choices = "auto, cpu, cuda or cuda:0" if cuda else "auto or cpu; this machine has no CUDA device"
        raise InputError(f"no device {device!r}", hint=f"choose {choices}") from error
    if where.type == "cuda" and not cuda:
        raise InputError("no CUDA device is available", hint="choose auto or cpu")
    return where


def feature_width(model: Any, readout: Readout) -> int:
    """Return the length of the feature vectors."""
    width: int = getattr(model, "head_hidden_size", None) or model.num_features
    return width * readout.vectors


def read_features(model: Any, images: Tensor, readout: Readout) -> Tensor:
    """Return the features (n, width) of a batch (n, 3, height, width) of normalized images."""
    if readout == OWN:
        feature: Tensor = model.forward_head(model.forward_features(images), pre_logits=True)
        return feature
    blocks = model.forward_intermediates(
        images,
        indices=readout.last_blocks,
        return_prefix_tokens=True,
        norm=True,
        output_fmt="NLC",
        intermediates_only=True,
    )
    parts = [prefix[:, 0] for _, prefix in blocks] if readout.tokens != "mean" else []
    if readout.tokens != "cls":
        patches, _ = blocks[-1]
        parts.append(patches.mean(dim=1))
    return torch.cat(parts, dim=1)


@contextmanager
def forward_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Run the block in ``float32``, or on CUDA with ``tf32`` matrix products or under ``bf16`` autocast.

    >>> with forward_precision("float32", torch.device("cpu")):
    ...     pass
    """
    if precision not in PRECISIONS:
        raise unknown_name("precision", precision, PRECISIONS)
    if precision == "float32":
        yield
        return
    if device.type != "cuda":  # bf16 arithmetic crashes some CPUs outright
        raise InputError(f"precision {precision!r} is for CUDA devices", hint=f"on {device.type} use 'float32'")
    if precision == "bf16":
        with torch.autocast("cuda", dtype=torch.bfloat16):
            yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _hash_tensors(tensors: dict[str, Tensor]) -> str:
    return hash_arrays({name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()})


def _check_readout(model: Any, readout: Readout, *, name: str) -> None:
    """Refuse a readout that this network does not have."""
    if readout == OWN:
        return
    if not _reads_class_token(model):
        raise no_class_token(name, readout)
    if readout.last_blocks > len(model.blocks):
        raise InputError(f"{name} has {len(model.blocks)} blocks; last_blocks is {readout.last_blocks}")


def _reads_class_token(model: Any) -> bool:
    return (
        getattr(model, "global_pool", None) == "token"
        and getattr(model, "cls_token", None) is not None
        and hasattr(model, "forward_intermediates")
    )

"""Run a network faster on a GPU: weights in bf16, no work for unused tokens, recorded passes.

The results equal those of the network itself, up to the rounding to bf16.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from fiveshot.backbones._adaptformer import AdaptedBlock, Adapter, BlockParts
from fiveshot.backbones.spec import OWN, Readout
from fiveshot.extras import import_extra

_log = logging.getLogger(__name__)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
STEP = 64  # larger batches are padded to a multiple of this, smaller ones to a power of two
_WARM_UP = 3  # passes before recording, in which libraries choose their kernels


def quick_vit(
    model: nn.Module, readout: Readout, *, trains: bool = False, dtype: torch.dtype = torch.bfloat16
) -> nn.Module | None:
    """Return a faster copy of a ViT with the same features, or None for another network.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    readout : Readout
        What is read from it.
    trains : bool
        Whether its adapters are trained. The copy then shares them, in their own number format.
    dtype : torch.dtype
        Type to which the weights are rounded. Batch norms keep their own type.

    Returns
    -------
    torch.nn.Module or None
        A copy that takes images of that type; None if the network is not a plain ViT of timm.
    """
    plain = import_extra("timm.models.vision_transformer").VisionTransformer
    if type(model) is not plain:
        return None
    quick: Any = copy.deepcopy(model)
    shared = {name: part for name, part in model.named_modules() if isinstance(part, Adapter)} if trains else {}
    for name, adapter in shared.items():
        quick.set_submodule(name, adapter)
    _round(quick, dtype, kept=list(shared.values()))
    conv = quick.patch_embed.proj
    if isinstance(conv, nn.Conv2d) and 1 < conv.kernel_size[0] == conv.stride[0] and conv.groups == 1:
        quick.patch_embed.proj = PatchProduct(conv)
    if readout == OWN and quick.global_pool == "token" and FirstTokenBlock.fits(quick.blocks[-1]):
        quick.blocks[-1] = FirstTokenBlock(quick.blocks[-1])
    for module in quick.blocks.modules():
        for name, part in module.named_children():
            if isinstance(part, nn.GELU) and part.approximate == "none":
                setattr(module, name, QuickGELU())
    arranged: nn.Module = quick
    return arranged


def _round(model: nn.Module, dtype: torch.dtype, *, kept: list[Adapter]) -> None:
    """Round the weights to a number format, except those of batch norms and of trained adapters."""
    own = {module for adapter in kept for module in adapter.modules()}
    for module in model.modules():
        if isinstance(module, BATCH_NORMS) or module in own:
            continue
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.data.to(dtype)
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point():
                setattr(module, name, buffer.to(dtype))


class PatchProduct(nn.Module):
    """The patch embedding as one matrix product: a convolution whose stride equals its size is one."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.side = conv.kernel_size[0]
        self.weight = nn.Parameter(conv.weight.detach().flatten(1).contiguous(), requires_grad=False)
        self.bias = conv.bias

    def forward(self, images: Tensor) -> Tensor:
        """Return the map (n, width, rows, columns) of images (n, 3, height, width)."""
        n, channels, height, width = images.shape
        rows, columns = height // self.side, width // self.side
        cut = images[:, :, : rows * self.side, : columns * self.side]
        patches = cut.reshape(n, channels, rows, self.side, columns, self.side).permute(0, 2, 4, 1, 3, 5)
        return F.linear(patches.reshape(n, rows, columns, -1), self.weight, self.bias).permute(0, 3, 1, 2)


class QuickGELU(nn.Module):
    """GELU that, when compiled, takes only as long as a GPU needs to read its input."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x · Φ(x)."""
        return gelu_by_sigmoid(x) if torch.compiler.is_compiling() else F.gelu(x)


def gelu_by_sigmoid(x: Tensor) -> Tensor:
    """Return x · Φ(x), exact to 4e-6 (its derivative to 2e-5); rounding to bf16 is a thousand times coarser.

    Φ is approximated by the logistic function of an odd polynomial, with coefficients that minimize the largest
    error.

    >>> x = torch.linspace(-6, 6, 9)
    >>> torch.allclose(gelu_by_sigmoid(x), F.gelu(x), rtol=0, atol=4e-6)
    True
    """
    y = x.float()
    z = y * y
    odd = y * (1.5956563 + z * (0.072937574 + z * (-2.4971769e-4 + z * (-6.1163185e-5 + z * 2.2382352e-6))))
    return (y * torch.sigmoid(odd)).to(x.dtype)


class FirstTokenBlock(BlockParts):
    """The last block of a ViT for its first token only: the other tokens are attended to, but not updated."""

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.adapter = getattr(block, "adapter", None)

    @staticmethod
    def fits(block: Any) -> bool:
        """Tell whether a block is a usual timm block, with or without an adapter."""
        kinds = import_extra("timm.models.vision_transformer")
        usual = isinstance(block, AdaptedBlock) or type(block) is kinds.Block
        return usual and type(block.attn) is kinds.Attention and getattr(block.attn, "gate", None) is None

    def forward(self, x: Tensor) -> Tensor:
        """Return the first token (n, 1, width) after the block."""
        first = x[:, :1] + self.drop_path1(self.ls1(self._attended(self.norm1(x))))
        carried: Tensor = first + self.drop_path2(self.ls2(self.mlp(self.norm2(first))))
        return carried if self.adapter is None else carried + self.adapter(first)

    def _attended(self, x: Tensor) -> Tensor:
        attn: Any = self.attn
        n, tokens, _ = x.shape
        width = attn.qkv.out_features // 3
        weight, bias = attn.qkv.weight, attn.qkv.bias
        query = F.linear(x[:, :1], weight[:width], None if bias is None else bias[:width])
        others = F.linear(x, weight[width:], None if bias is None else bias[width:])
        q = attn.q_norm(query.view(n, 1, attn.num_heads, -1).transpose(1, 2))
        k, v = others.view(n, tokens, 2, attn.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, attn.k_norm(k), v)
        projected: Tensor = attn.proj(attn.norm(mixed.transpose(1, 2).reshape(n, 1, width)))
        return projected


@dataclass(frozen=True, eq=False)
class _Recording:
    graph: torch.cuda.CUDAGraph
    images: Tensor
    features: Tensor


class RecordedPass:
    """A forward pass that is recorded once for each batch size and replayed, without gaps between kernels.

    Threads may share it. All passes run on one stream, one after the other.

    Parameters
    ----------
    forward : callable
        Takes images of uint8 (n, 3, side, side) on the device and returns features (n, width).
    device : torch.device
        A GPU.
    """

    def __init__(self, forward: Callable[[Tensor], Tensor], device: torch.device) -> None:
        self._forward, self._device = forward, device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._recordings: dict[torch.Size, _Recording | None] = {}
        self._lock = Lock()

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features, on the device; this call does not wait for them."""
        asks: Any = torch.cuda.current_stream(self._device)
        with self._lock, torch.cuda.device(self._device):
            self._stream.wait_stream(asks)
            with torch.cuda.stream(self._stream):
                features = self._replayed(images)
            asks.wait_stream(self._stream)
        return features

    def _replayed(self, images: Tensor) -> Tensor:
        shape = torch.Size((filled(len(images)), *images.shape[1:]))
        if shape not in self._recordings:
            self._recordings[shape] = self._recorded(shape)
        recording = self._recordings[shape]
        if recording is None:
            return self._forward(images.to(self._device))
        recording.images[: len(images)].copy_(images, non_blocking=True)
        recording.graph.replay()
        return recording.features[: len(images)].clone()

    def _recorded(self, shape: torch.Size) -> _Recording | None:
        images = torch.zeros(shape, dtype=torch.uint8, device=self._device)
        for _ in range(_WARM_UP):
            self._forward(images)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                features = self._forward(images)
        except RuntimeError as error:
            _log.warning("the forward pass cannot be recorded (%s); continuing without recording", error)
            return None
        return _Recording(graph, images, features)


def filled(count: int) -> int:
    """Return the size to which a batch of ``count`` images is padded.

    >>> [filled(n) for n in (1, 3, 64, 65, 128, 130)]
    [1, 4, 64, 128, 128, 192]
    """
    return 1 << (count - 1).bit_length() if count <= STEP else -(-count // STEP) * STEP

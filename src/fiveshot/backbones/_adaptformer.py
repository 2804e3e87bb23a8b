"""AdaptFormer (NeurIPS 2022): a small bottleneck parallel to the MLP of every attention block of a frozen network.

    x ← x + Attention(LN₁(x))
    x ← x + MLP(LN₂(x)) + s · Up(Dropout(ReLU(Down(x))))

The adapter reads the residual stream after attention, *before* the second norm, and has no norm of its own. timm's
plain ViTs and TinyViTs take adapters. A TinyViT has a convolution between attention and MLP, and its MLP begins
with the norm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from fiveshot.errors import InputError
from fiveshot.extras import import_extra

ADAPTED_NETWORKS = "choose one of timm's plain vision transformers (vit_*, deit_*, deit3_*) or tiny_vit_*"


class Adapter(nn.Module):
    """Width to bottleneck and back, times a fixed scale; untrained, its output is exactly zero.

    Parameters
    ----------
    width : int
        Width of the residual stream.
    bottleneck : int
        Width in between.
    scale : float
        Factor of the output.
    dropout : float
        Share of the bottleneck that is dropped in training.
    generator : torch.Generator
        Draws ``down`` Kaiming-uniform; ``up`` and both biases start at zero.

    Examples
    --------
    >>> import torch
    >>> from fiveshot.backbones import Adapter
    >>> drawn = torch.Generator().manual_seed(0)
    >>> adapter = Adapter(width=64, bottleneck=8, scale=0.1, dropout=0.1, generator=drawn)
    >>> adapter(torch.ones(2, 101, 64)).abs().max().item()
    0.0
    """

    def __init__(
        self, width: int, *, bottleneck: int, scale: float, dropout: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        # Created on the meta device: otherwise nn.Linear draws its first weights from the global generator.
        self.down = nn.Linear(width, bottleneck, device="meta").to_empty(device="cpu")
        self.up = nn.Linear(bottleneck, width, device="meta").to_empty(device="cpu")
        self.dropout = nn.Dropout(dropout)
        self.scale = scale
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5), generator=generator)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is added to the residual stream ``x`` (n, tokens, width)."""
        return _linear(self.up, self.dropout(_linear(self.down, x).relu())) * self.scale


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply a layer in the number format of its input; trained weights may have higher precision."""
    if layer.weight.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
    applied: Tensor = layer(x)
    return applied


class AdaptedMlp(nn.Module):
    """The MLP of a TinyViT block, which begins with its norm, and a parallel adapter; names stay the same."""

    def __init__(self, mlp: Any, adapter: Adapter) -> None:
        super().__init__()
        self.norm, self.fc1, self.act, self.fc2 = mlp.norm, mlp.fc1, mlp.act, mlp.fc2
        self.adapter = adapter
        self.replaced = (mlp,)  # in a tuple, so that torch does not register it as a submodule

    def forward(self, x: Tensor) -> Tensor:
        """Return what is added to the residual stream ``x`` (n, tokens, width)."""
        added: Tensor = self.fc2(self.act(self.fc1(self.norm(x)))) + self.adapter(x)
        return added


class BlockParts(nn.Module):
    """The parts of a timm ViT block under their own names, so that the backbone's state dict keeps its keys."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.norm1, self.attn = block.norm1, block.attn
        self.ls1, self.drop_path1 = block.ls1, block.drop_path1
        self.norm2, self.mlp = block.norm2, block.mlp
        self.ls2, self.drop_path2 = block.ls2, block.drop_path2


class AdaptedBlock(BlockParts):
    """A timm ViT block with an adapter parallel to its MLP; :func:`attach_adapters` replaces every block by one.

    Parameters
    ----------
    block : timm.models.vision_transformer.Block
        The block.
    adapter : Adapter
        Its adapter.

    Examples
    --------
    >>> import timm
    >>> from fiveshot.backbones import AdaptedBlock, attach_adapters
    >>> vit = attach_adapters(timm.create_model("test_vit"), bottleneck=8, seed=0)
    >>> block = vit.blocks[0]
    >>> isinstance(block, AdaptedBlock), block.adapter.down
    (True, Linear(in_features=64, out_features=8, bias=True))
    """

    def __init__(self, block: Any, adapter: Adapter) -> None:
        super().__init__(block)
        self.adapter = adapter
        self.replaced = (block,)  # in a tuple, so that torch does not register it as a submodule

    def forward(self, x: Tensor, **attention: Any) -> Tensor:
        """Run attention, then the MLP and the adapter in parallel (n, tokens, width)."""
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x), **attention)))
        adapted: Tensor = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x)))) + self.adapter(x)
        return adapted


def attach_adapters(
    vit: Any,
    bottleneck: int = 64,
    scale: float = 0.1,
    dropout: float = 0.1,
    *,
    seed: int | np.random.Generator,
) -> Any:
    """Put an adapter into every attention block of a ViT or TinyViT of timm's, in place, and freeze the rest.

    Only the adapters require gradients. To train them, leave the network in eval mode and put only the
    :func:`adapters` into training mode: batch norms (of a TinyViT) change in training mode.

    Parameters
    ----------
    vit : timm.models.VisionTransformer or timm.models.TinyVit
        The network; it is changed in place.
    bottleneck, scale, dropout
        Those of every :class:`Adapter`.
    seed : int or numpy.random.Generator
        Seed for their weights.

    Returns
    -------
    timm.models.VisionTransformer or timm.models.TinyVit
        The same network.

    Raises
    ------
    InputError
        When it is neither, or has adapters already.

    Examples
    --------
    >>> import timm
    >>> from fiveshot.backbones import attach_adapters
    >>> vit = attach_adapters(timm.create_model("test_vit"), bottleneck=8, seed=0)
    >>> sum(p.numel() for p in vit.parameters() if p.requires_grad)  # 6 blocks of width 64
    6576
    """
    if adapters(vit):
        raise InputError("this network already has adapters; load the backbone again")
    if bottleneck < 1 or not 0 <= dropout < 1:
        raise InputError(f"an adapter needs bottleneck ≥ 1 and 0 ≤ dropout < 1, not {bottleneck} and {dropout}")
    places = adapter_places(vit)
    generator = torch.Generator().manual_seed(seed if isinstance(seed, int) else int(seed.integers(2**63 - 1)))
    like = next(vit.parameters())
    vit.requires_grad_(False)
    for name, width in places.items():
        adapter = Adapter(width, bottleneck=bottleneck, scale=scale, dropout=dropout, generator=generator)
        adapter = adapter.to(like.device, like.dtype)
        part = vit.get_submodule(name)
        adapted = AdaptedMlp(part, adapter) if name.endswith(".mlp") else AdaptedBlock(part, adapter)
        vit.set_submodule(name, adapted.train(vit.training))
    return vit


def detach_adapters(vit: Any) -> None:
    """Remove the adapters from a network, in place, and leave it frozen and in eval mode.

    >>> import timm
    >>> vit = attach_adapters(timm.create_model("test_vit"), bottleneck=8, seed=0)
    >>> detach_adapters(vit)
    >>> adapters(vit)
    []
    """
    for name, part in list(vit.named_modules()):
        if isinstance(part, AdaptedBlock | AdaptedMlp):
            vit.set_submodule(name, part.replaced[0])
    vit.requires_grad_(False).eval()


def adapter_places(vit: nn.Module) -> dict[str, int]:
    """Return where adapters go, and the width of the network there: plain blocks, or the MLPs of a TinyViT.

    >>> import timm
    >>> places = adapter_places(timm.create_model("test_vit"))
    >>> list(places)[:2], places["blocks.0"]
    (['blocks.0', 'blocks.1'], 64)
    """
    blocks, tiny = import_extra("timm.models.vision_transformer"), import_extra("timm.models.tiny_vit")
    if isinstance(vit, tiny.TinyVit):
        return {
            f"{name}.mlp": block.dim for name, block in vit.named_modules() if isinstance(block, tiny.TinyVitBlock)
        }
    found = getattr(vit, "blocks", None)
    if not isinstance(found, nn.Sequential) or not hasattr(vit, "embed_dim"):
        raise InputError(f"{type(vit).__name__} cannot have adapters", hint=ADAPTED_NETWORKS)
    for block in found:
        plain = isinstance(block, blocks.Block) and type(block).forward is blocks.Block.forward
        if not isinstance(block, AdaptedBlock) and not plain:
            raise InputError(f"blocks of type {type(block).__name__} cannot have adapters", hint=ADAPTED_NETWORKS)
    width: Any = vit.embed_dim
    return {f"blocks.{index}": int(width) for index in range(len(found))}


def adapter_state(vit: nn.Module) -> dict[str, Tensor]:
    """Return the adapters' tensors under their names in the whole network.

    Parameters
    ----------
    vit : torch.nn.Module
        The network.

    Returns
    -------
    dict of str to Tensor
        The tensors; empty without adapters.

    Examples
    --------
    >>> import timm
    >>> from fiveshot.backbones import adapter_state, attach_adapters
    >>> vit = attach_adapters(timm.create_model("test_vit"), bottleneck=8, seed=0)
    >>> list(adapter_state(vit))[:2]
    ['blocks.0.adapter.down.weight', 'blocks.0.adapter.down.bias']
    """
    return {name: tensor for name, tensor in vit.state_dict().items() if ".adapter." in name}


def adapters(vit: nn.Module) -> list[Adapter]:
    """Return the adapters of a network.

    Parameters
    ----------
    vit : torch.nn.Module
        The network.

    Returns
    -------
    list of Adapter
        One for each block, in their order; empty without adapters.

    Examples
    --------
    >>> import timm
    >>> from fiveshot.backbones import adapters, attach_adapters
    >>> vit = attach_adapters(timm.create_model("test_vit"), scale=0.1, seed=0)
    >>> [adapter.scale for adapter in adapters(vit)]
    [0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    """
    return [module for module in vit.modules() if isinstance(module, Adapter)]

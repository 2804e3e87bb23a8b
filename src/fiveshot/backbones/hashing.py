"""One SHA-256 for a set of named tensors: which weights are these?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over names, types, shapes and bytes, in the order of the names.

    The device and the memory layout (channels-last or not) do not matter; the element type does.

    >>> a, b = torch.ones(2), torch.zeros(1)
    >>> hash_tensors({"a": a, "b": b}) == hash_tensors({"b": b, "a": a}) != hash_tensors({"a": b, "b": a})
    True
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        content = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(content.numpy().data)
    return digest.hexdigest()

"""Number formats of a forward pass: float32 anywhere, faster ones on CUDA only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fiveshot.errors import InputError, unknown_name

PRECISIONS = ("float32", "tf32", "bf16")


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
        raise InputError(f"precision {precision!r} is for CUDA devices; on {device.type} use 'float32'")
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

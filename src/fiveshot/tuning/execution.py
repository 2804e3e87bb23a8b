"""How a run is computed: number formats, compilation, where images are transformed. It decides speed, not aims."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch

from fiveshot.backbones import Backbone
from fiveshot.backbones.loading import checked_device
from fiveshot.errors import InputError, unknown_name

Precision = Literal["auto", "float32", "tf32", "bf16"]
Data = Literal["auto", "device", "workers"]
# Compiling takes about a minute; a run must be long enough to earn that back.
COMPILE_FROM_IMAGES = 400_000


@dataclass(frozen=True)
class Execution:
    """How to compute. ``auto`` means bf16 on CUDA and float32 elsewhere, and images on the device if they fit.

    ``data="device"`` decodes all images once, keeps them on the device and crops them there;
    ``data="workers"`` transforms every view on the CPU. ``cuda_graph`` (on CUDA unless refused) replays the
    recorded training step, several times faster for small networks. ``compile=None`` compiles long runs on CUDA.

    >>> import torch
    >>> from fiveshot.tuning import Execution
    >>> on_cpu = Execution(workers=2).resolved(torch.device("cpu"), images=1000)
    >>> on_cpu.precision, on_cpu.data, on_cpu.workers
    ('float32', 'workers', 2)
    """

    precision: Precision = "auto"
    compile: bool | None = None
    cuda_graph: bool | None = None
    deterministic: bool = True  # on CUDA, at a small price; CPUs are anyway
    data: Data = "auto"
    workers: int | None = None  # processes that decode; None: one per core, at most 16; on a CPU device 0
    device_budget: int | None = None  # bytes of images kept on the device; None: half of its free memory
    short_side: float = 1.15  # of the crop's side: how large decoded images are kept on the device; 0: as they are

    def __post_init__(self) -> None:
        """Refuse unknown names."""
        for name, choices in (("precision", Precision), ("data", Data)):
            if getattr(self, name) not in get_args(choices):
                raise unknown_name(name, getattr(self, name), get_args(choices))
        if self.short_side and self.short_side < 1:
            raise InputError(f"short_side={self.short_side} must be 0 (as it is) or 1 and more of the crop's side")

    def resolved(self, device: torch.device, *, images: int) -> Execution:
        """Return the execution with every automatic choice made for a device and a number of images shown."""
        cuda = device.type == "cuda"
        precision = ("bf16" if cuda else "float32") if self.precision == "auto" else self.precision
        if not cuda and precision != "float32":  # bf16 arithmetic crashes some CPUs outright
            raise InputError(f"precision {precision!r} is for CUDA devices; on {device.type} use float32")
        workers = min(os.cpu_count() or 1, 16) if cuda else 0
        return replace(
            self,
            precision=precision,
            compile=(cuda and images >= COMPILE_FROM_IMAGES) if self.compile is None else self.compile,
            cuda_graph=cuda and self.cuda_graph is not False,
            workers=workers if self.workers is None else self.workers,
            data=("device" if cuda else "workers") if self.data == "auto" else self.data,
        )


@contextmanager
def arithmetic(execution: Execution, device: torch.device) -> Iterator[None]:
    """Set number formats and determinism for a run on CUDA, and put them back afterwards."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    strict = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fill, cudnn = memory.fill_uninitialized_memory, torch.backends.cudnn.deterministic
    exact = execution.precision == "float32"
    torch.set_float32_matmul_precision("highest" if exact else "high")
    torch.backends.cudnn.allow_tf32 = not exact
    try:
        with warnings.catch_warnings(), torch.cuda.device(device):
            warnings.filterwarnings("ignore", message=".*capturable=True.*")  # before a step is recorded
            if execution.deterministic:
                warnings.filterwarnings("ignore", message=".*deterministic.*")
                torch.use_deterministic_algorithms(True, warn_only=True)
                memory.fill_uninitialized_memory = False
                torch.backends.cudnn.deterministic = True
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
        torch.use_deterministic_algorithms(strict[0], warn_only=strict[1])
        memory.fill_uninitialized_memory = fill
        torch.backends.cudnn.deterministic = cudnn


def autocast(execution: Execution, device: torch.device) -> Any:
    """Return the context of a forward pass."""
    return torch.autocast("cuda", dtype=torch.bfloat16) if execution.precision == "bf16" else nullcontext()


def place(backbone: Backbone, device: str | torch.device | None) -> torch.device:
    """Move the backbone to a device and return it; None leaves it where it is."""
    if device is None:
        return backbone.device
    where = checked_device(device)
    if where != backbone.device:
        backbone.model.to(where)
    return backbone.device

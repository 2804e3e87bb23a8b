"""How a run is computed: devices, number formats, random numbers, processes. This affects mainly the speed."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch

from fiveshot.backbones import Backbone, checked_device
from fiveshot.core.ranges import OneOf, check_values
from fiveshot.errors import InputError
from fiveshot.extras import import_extra

_log = logging.getLogger(__name__)
Precision = Literal["auto", "float32", "tf32", "bf16"]
Data = Literal["auto", "device", "workers"]
# Compiling takes about a minute; it pays off only in long runs.
COMPILE_FROM_IMAGES = 400_000


@dataclass(frozen=True)
class Execution:
    """How to run the computation.

    Parameters
    ----------
    precision : {"auto", "float32", "tf32", "bf16"}
        Number format; ``auto`` is bf16 on CUDA and float32 elsewhere.
    compile : bool, optional
        Whether to compile the network; by default only for long runs on CUDA.
    cuda_graph : bool, optional
        Whether to record and replay the training step, which is several times faster for small networks; by
        default on CUDA.
    deterministic : bool
        Whether CUDA always computes exactly the same result, which is a little slower; CPUs always do.
    data : {"auto", "device", "workers"}
        ``device`` decodes all images once, keeps them on the device and crops them there; ``workers`` makes every
        view on the CPU; ``auto`` keeps them on a CUDA device if they fit.
    workers : int, optional
        Photos that are decoded in parallel; by default one for each core.
    device_budget : int, optional
        Bytes for images on the device; by default half of its free memory.
    short_side : float
        Short side of the decoded images on the device, in multiples of the crop's side; 0 does not scale them.

    Examples
    --------
    >>> import torch
    >>> from fiveshot.tuning import Execution
    >>> on_cpu = Execution(workers=2).resolved(torch.device("cpu"), images=1000)
    >>> on_cpu.precision, on_cpu.data, on_cpu.workers
    ('float32', 'workers', 2)
    """

    precision: Precision = "auto"
    compile: bool | None = None
    cuda_graph: bool | None = None
    deterministic: bool = True
    data: Data = "auto"
    workers: int | None = None
    device_budget: int | None = None
    short_side: float = 1.15

    def __post_init__(self) -> None:
        """Refuse unknown names."""
        check_values(self, {"precision": OneOf(get_args(Precision)), "data": OneOf(get_args(Data))})
        if self.short_side and self.short_side < 1:
            raise InputError(f"short_side={self.short_side} must be 0 (no scaling) or at least 1")
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers is {self.workers}", hint="choose 1 or more")

    def resolved(self, device: torch.device, *, images: int) -> Execution:
        """Return the execution with all automatic choices made, for a device and a number of shown images."""
        cuda = device.type == "cuda"
        precision = ("bf16" if cuda else "float32") if self.precision == "auto" else self.precision
        if not cuda and precision != "float32":  # bf16 arithmetic crashes some CPUs outright
            raise InputError(f"precision {precision!r} is for CUDA devices", hint=f"on {device.type} use float32")
        return replace(
            self,
            precision=precision,
            compile=(cuda and images >= COMPILE_FROM_IMAGES) if self.compile is None else self.compile,
            cuda_graph=cuda and self.cuda_graph is not False,
            data=("device" if cuda else "workers") if self.data == "auto" else self.data,
        )


def log_without_compiling(error: Exception) -> None:
    """Log that the run continues without compiled code; an error with another cause comes again without it."""
    _log.warning("the compiled code failed (%s); continuing without it", type(error).__name__)


@contextmanager
def arithmetic(execution: Execution, device: torch.device) -> Iterator[None]:
    """Set number formats and determinism for a run on CUDA, and restore them afterwards."""
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


def place(backbone: Backbone, device: str | torch.device | None) -> torch.device:
    """Move the backbone to a device and return it; None leaves it where it is."""
    if device is not None:
        backbone.model.to(checked_device(device))
    return backbone.device


@contextmanager
def own_randomness(seeds: Sequence[int], device: torch.device) -> Iterator[None]:
    """Seed the global generators for dropout inside the block, and restore them afterwards.

    >>> cpu = torch.device("cpu")
    >>> def draw():
    ...     with own_randomness((1, 2), cpu):
    ...         return torch.rand(())
    >>> draw() == draw()
    tensor(True)
    """
    seed = int(np.random.SeedSequence(list(seeds)).generate_state(1)[0])
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        yield


def started_by_launcher() -> bool:
    """Tell whether ``accelerate launch`` or ``torchrun`` started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def make_accelerator(*, cpu: bool = False) -> Any:
    """Return an accelerator for ``tune``, which handles number formats itself."""
    accelerate = import_extra("accelerate", extra="accelerate")
    # Only the frozen parts have buffers, and these are the same in every process.
    sharing = import_extra("accelerate.utils", extra="accelerate").DistributedDataParallelKwargs(
        broadcast_buffers=False
    )
    return accelerate.Accelerator(cpu=cpu, mixed_precision="no", kwargs_handlers=[sharing])

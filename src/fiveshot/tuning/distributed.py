"""Several GPUs, or several processes on CPUs, through Hugging Face accelerate."""

from __future__ import annotations

import os
from typing import Any

from fiveshot.extras import import_extra


def started_by_launcher() -> bool:
    """Tell whether ``accelerate launch`` or ``torchrun`` started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def make_accelerator(*, cpu: bool = False) -> Any:
    """Return an accelerator for ``tune``, which does number formats itself."""
    accelerate = import_extra("accelerate", extra="accelerate")
    # The frozen parts hold the only buffers, and those are the same everywhere.
    sharing = import_extra("accelerate.utils", extra="accelerate").DistributedDataParallelKwargs(
        broadcast_buffers=False
    )
    return accelerate.Accelerator(cpu=cpu, mixed_precision="no", kwargs_handlers=[sharing])

"""Random numbers for what knows the global generators only, without a trace of them left behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def own_randomness(seeds: Sequence[int], device: torch.device) -> Iterator[None]:
    """Let dropout draw from the seeds while the block runs, and put the global generators back afterwards.

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

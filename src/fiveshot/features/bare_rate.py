"""How fast the forward pass is with nothing else to do: what an extraction is measured against."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fiveshot.backbones import Embedder, default_workers


def bare_rate(
    embedder: Embedder, *, batch_size: int | None = None, workers: int | None = None, seconds: float = 3.0
) -> float:
    """Return images per second of forward passes over a batch that is ready.

    As many run at a time as in an extraction with as many ``workers``, for so many ``seconds``, after one each
    to warm up.

    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.features import bare_rate
    >>> bare_rate(load_embedder(), batch_size=1, workers=1, seconds=0.1) > 0
    True
    """
    size = embedder.preprocessing.size
    count = embedder.batch_size if batch_size is None else batch_size
    streams = embedder.streams(default_workers() if workers is None else workers)
    noise = np.random.default_rng(0).integers(0, 256, (count, 3, size, size), np.uint8)

    def passes(until: float) -> int:
        done = 0
        while done == 0 or time.perf_counter() < until:
            embedder.features(noise)
            done += 1
        return done

    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(passes, [0.0] * streams))
        began = time.perf_counter()
        done = sum(pool.map(passes, [began + seconds] * streams))
        return done * count / (time.perf_counter() - began)

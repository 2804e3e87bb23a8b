"""How fast the forward pass is with nothing else to do: what an extraction is measured against."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import torch

from fiveshot.backbones import Extractor
from fiveshot.features.batch_stream import default_batch_size, default_workers, device_of, forward_streams
from fiveshot.features.runner import one_thread


def bare_rate(
    extractor: Extractor, *, batch_size: int | None = None, workers: int | None = None, seconds: float = 3.0
) -> float:
    """Return images per second of forward passes over a batch that is ready.

    As many run at a time as in an extraction with as many ``workers``, for so many ``seconds``, after one each
    to warm up.

    >>> from fiveshot.features import bare_rate, load_runner
    >>> runner = load_runner(device="cpu", runtime="torch")
    >>> bare_rate(runner, batch_size=1, workers=1, seconds=0.1) > 0
    True
    """
    size = extractor.preprocessing.size
    count = default_batch_size(extractor) if batch_size is None else batch_size
    streams = forward_streams(extractor, default_workers() if workers is None else workers)
    noise = torch.randint(
        256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    images = extractor.preprocessing.normalise(noise.to(device_of(extractor)))

    def passes(until: float) -> int:
        done = 0
        while done == 0 or time.perf_counter() < until:
            extractor.features(images).cpu()
            done += 1
        return done

    with one_thread(), ThreadPoolExecutor(streams) as pool:
        list(pool.map(passes, [0.0] * streams))
        began = time.perf_counter()
        done = sum(pool.map(passes, [began + seconds] * streams))
        return done * count / (time.perf_counter() - began)

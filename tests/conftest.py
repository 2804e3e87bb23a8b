from __future__ import annotations

import gc
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hypothesis import settings

from fiveshot.backbones import embedded

sys.path.append(str(Path(__file__).parent))  # for what tests of several folders share

# jsonschema would compile the grammar of a format that no schema here has, for seconds, in every process.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

gc.disable()  # until all tests are collected: until then nothing becomes garbage, and looking for it takes seconds

# Small matrices are slower on several threads, and the same run everywhere is worth more than fresh examples.
torch.set_num_threads(1)
settings.register_profile("fiveshot", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("fiveshot")


def share_the_embedded_network() -> None:
    """Read the weights that come with the package once in a process, and open each of its graphs once.

    Hundreds of tests open models of the embedded backbone; each would take as long as recognizing two photos.
    """
    read, hash_arrays, open_session = embedded.read_weights, embedded.hash_arrays, embedded.open_session

    @cache
    def weights() -> embedded.Arrays:
        return read(embedded.EMBEDDED_FILE)

    @cache
    def digest() -> str:
        return hash_arrays(weights())

    @cache
    def session(graph: bytes) -> Any:
        return open_session(graph, weights())

    def shared(arrays: Any) -> bool:
        return weights.cache_info().currsize > 0 and arrays is weights()

    embedded.read_weights = lambda path: weights() if path == embedded.EMBEDDED_FILE else read(path)
    embedded.hash_arrays = lambda arrays: digest() if shared(arrays) else hash_arrays(arrays)
    embedded.open_session = lambda graph, given=None: (
        session(graph) if shared(given) else open_session(graph, given)
    )


share_the_embedded_network()


def pytest_collection_finish() -> None:
    gc.freeze()  # modules and tests stay; nobody has to look through them again
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()

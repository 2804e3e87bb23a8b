"""Networks that a process reads, exports and runs once for all of its tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache, wraps
from hashlib import sha256
from typing import Any

import numpy as np
import timm.layers.weight_init
import torch

from fiveshot.backbones import _networks, backbone, embedded, export
from fiveshot.backbones.embedder import hash_arrays

Vectors = list[np.ndarray]


class RememberedSession:
    """A session that remembers what it gave: tests recognize the same drawn photos hundreds of times."""

    remembers = True  # tests of the network itself switch it off

    def __init__(self, session: Any) -> None:
        self.session = session
        self.found: dict[bytes, Vectors] = {}

    def run(self, names: Any, given: Mapping[str, np.ndarray]) -> Vectors:
        """Return what the session gives, in arrays of the caller's own."""
        if not self.remembers or names is not None:
            return self.session.run(names, given)
        digest = sha256()
        for name in sorted(given):
            digest.update(f"{name} {given[name].shape}".encode())
            digest.update(np.ascontiguousarray(given[name]).data)
        key = digest.digest()
        if key not in self.found:
            self.found[key] = self.session.run(None, given)
        return [array.copy() for array in self.found[key]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


def share_networks() -> None:
    """Read the weights that come with the package once in a process, and open each graph once.

    Hundreds of tests open models; each would take as long as recognizing two photos, and twice that where the
    network is exported from torch first.
    """
    read, hash_weights, open_session = embedded.read_weights, embedded.hash_arrays, embedded.open_session
    export_onnx, exported = export.export_onnx, dict[tuple[Any, ...], bytes]()

    @cache
    def weights() -> embedded.Arrays:
        return read(embedded.EMBEDDED_FILE)

    @cache
    def digest() -> str:
        return hash_weights(weights())

    @cache
    def session(graph: bytes) -> RememberedSession:
        return RememberedSession(open_session(graph, weights()))

    @cache
    def session_of_its_own_weights(graph: bytes) -> Any:
        return open_session(graph)

    def shared(arrays: Any) -> bool:
        return weights.cache_info().currsize > 0 and arrays is weights()

    def open_once(graph: bytes, given: Any = None) -> Any:
        if given is None:
            return session_of_its_own_weights(graph)
        return session(graph) if shared(given) else open_session(graph, given)

    def export_once(network: backbone.Backbone) -> bytes:
        state = {name: tensor.numpy() for name, tensor in network.model.state_dict().items()}
        key = (network.name, network.preprocessing.size, network.readout, hash_arrays(state))
        if key not in exported:
            exported[key] = export_onnx(network)
        return exported[key]

    embedded.read_weights = lambda path: weights() if path == embedded.EMBEDDED_FILE else read(path)
    _networks.read_weights = embedded.read_weights
    embedded.hash_arrays = lambda arrays: digest() if shared(arrays) else hash_weights(arrays)
    embedded.open_session = backbone.open_session = open_once
    export.export_onnx = export_once


class _Loading(threading.local):
    """Whether this thread loads a network."""

    now = False


def draw_no_weights_to_load_others() -> None:
    """Have networks whose weights come from a file draw none before: drawing takes longer than all the rest."""
    loading, load_network = _Loading(), backbone.load_network

    def unless_loading(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        @wraps(draw)
        def fill(tensor: torch.Tensor, *given: Any, **options: Any) -> torch.Tensor:
            return tensor if loading.now else draw(tensor, *given, **options)

        return fill

    def load(name: str, weights: Any) -> Any:
        loading.now = True
        try:
            return load_network(name, weights)
        finally:
            loading.now = False

    for name in ("kaiming_uniform_", "uniform_", "normal_"):
        setattr(torch.nn.init, name, unless_loading(getattr(torch.nn.init, name)))
    timm.layers.weight_init._trunc_normal_ = unless_loading(timm.layers.weight_init._trunc_normal_)
    backbone.load_network = load

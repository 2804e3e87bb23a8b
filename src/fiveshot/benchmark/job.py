"""A job: one head under one protocol on one set of features, fixed completely before it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fiveshot.benchmark.protocol import Protocol
from fiveshot.benchmark.protocol_head import protocol_head
from fiveshot.data.sessions import read_session_lists
from fiveshot.errors import InputError
from fiveshot.features import FeatureSet, embedded_features, embedded_packs, load_features
from fiveshot.heads import RECIPES, FewShotHead
from fiveshot.heads.files import plain_parameters
from fiveshot.heads.recipes import Flavour
from fiveshot.heads.registry import source_digest
from fiveshot.heads.tuned_head import plain_head
from fiveshot.plugins import load_plugin, plugin_files

EMBEDDED = "embedded:"
Adapter = Literal["none", "tuned"]


@dataclass(frozen=True)
class Job:
    """What to run: a method under a protocol on some features.

    ``features`` is a file, or ``embedded:NAME`` for a pack of the package. ``method`` and ``flavour`` name a
    recipe, of which ``parameters`` change single values; what they leave open is as ``protocol_head`` has it.

    >>> from fiveshot.benchmark import Job, get_protocol
    >>> job = Job(get_protocol("cub200/big"), "ranpac", "embedded:cub200", parameters={"n_projections": 500})
    >>> job.head().n_projections
    500
    >>> job.folder
    'cub200-big/ranpac/seed0-...'
    """

    protocol: Protocol
    method: str
    features: str
    flavour: Flavour = "paper"
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    sessions: str | None = None  # a folder of official session lists, instead of the protocol's own
    plugins: tuple[str, ...] = field(default_factory=plugin_files, compare=False)  # where the method may come from

    def head(self) -> FewShotHead:
        """Return the unfitted head."""
        if self.method not in RECIPES:  # in another process than the one that made the job
            for file in self.plugins:
                load_plugin(file)
        return protocol_head(self.method, self.protocol, self.flavour, self.parameters)

    def config(self) -> dict[str, Any]:
        """Return everything that decides the numbers, as JSON values."""
        return run_config(
            self.protocol,
            self.method,
            self.head(),
            flavour=self.flavour,
            features=features_fingerprint(self.features),
            sessions=None if self.sessions is None else lists_fingerprint(Path(self.sessions)),
        )

    @property
    def identity(self) -> str:
        """Short name of the configuration: the same job, the same name."""
        text = json.dumps(self.config(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def folder(self) -> str:
        """Where the run is kept below the output folder."""
        protocol = self.protocol.name.replace("/", "-")
        method = self.method if self.flavour == "paper" else f"{self.method}.{self.flavour}"
        return f"{protocol}/{method.replace('*', '-star')}/seed{self.protocol.shot_seed}-{self.identity}"


def run_config(
    protocol: Protocol,
    method: str,
    head: FewShotHead,
    *,
    features: str,
    flavour: Flavour = "paper",
    sessions: str | None = None,
) -> dict[str, Any]:
    """Return everything that decides a run's numbers; ``features`` and ``sessions`` are fingerprints."""
    return {
        "protocol": asdict(protocol),
        "sessions": sessions,
        "method": method,
        "flavour": flavour,
        "head": head_config(head),
        "features": features,
    }


def head_config(head: FewShotHead) -> dict[str, Any]:
    """Return what decides a head's numbers; for a class from outside this package also a digest of its file."""
    config = {"class": type(head).__name__, "parameters": plain_parameters(head)}
    source = source_digest(type(plain_head(head)))
    return config if source is None else {**config, "source": source}


def open_features(source: str) -> FeatureSet:
    """Open a feature file or an embedded pack (``embedded:NAME``); the few last ones stay open until they change.

    >>> from fiveshot.benchmark import open_features
    >>> open_features("embedded:cub200")
    FeatureSet('cub200': 5994 training and 5794 test vectors of 384 float16, 200 classes)
    """
    return _opened(source, *_mark(source))


def features_fingerprint(source: str) -> str:
    """Return the fingerprint of the features in a file or an embedded pack."""
    return _fingerprint(source, *_mark(source))


@lru_cache(maxsize=4)
def _opened(source: str, _changed: int, _size: int) -> FeatureSet:
    if source.startswith(EMBEDDED):
        return embedded_features(source.removeprefix(EMBEDDED))
    return load_features(source)


@lru_cache(maxsize=16)
def _fingerprint(source: str, changed: int, size: int) -> str:
    return fingerprint(_opened(source, changed, size))


def _mark(source: str) -> tuple[int, int]:
    """Return what changes when a file is written again: when that was, and its size."""
    try:
        status = Path(source).stat()
    except OSError:  # a pack of the package, or nothing: opening it says so
        return 0, 0
    return status.st_mtime_ns, status.st_size


def lists_fingerprint(folder: Path) -> str:
    """Return a hash over the session lists in a folder, wherever that is."""
    listed = json.dumps(read_session_lists(folder).train)
    return f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}"


def fingerprint(features: FeatureSet) -> str:
    """Return a hash over vectors, labels and class names."""
    digest = hashlib.sha256(json.dumps(features.class_names).encode())
    for array in (features.train_x, features.train_y, features.test_x, features.test_y):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def embedded_source(dataset: str) -> str | None:
    """Return the embedded features of a dataset, if there are any.

    >>> from fiveshot.benchmark import embedded_source
    >>> embedded_source("cub200"), embedded_source("cars")
    ('embedded:cub200', None)
    """
    return EMBEDDED + dataset if dataset in embedded_packs() else None


def adapted_source(protocol: Protocol, adapter: Adapter) -> str:
    """Return embedded features of the same photographs without an adapter, or with the one of a protocol.

    >>> from fiveshot.benchmark import get_protocol
    >>> adapted_source(get_protocol("cub200/big"), "tuned")
    'embedded:cub200-160px-big'
    """
    plain = f"{protocol.dataset}-160px"
    wanted = plain if adapter == "none" else f"{plain}-{protocol.name.partition('/')[2]}"
    if wanted not in embedded_packs():
        raise InputError(
            f"no embedded features for {protocol.name} with --adapter {adapter}; tune one with 'fiveshot tune', "
            "extract with 'fiveshot extract --adapter FILE', and give the result with --features"
        )
    return EMBEDDED + wanted

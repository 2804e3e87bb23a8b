"""ONNX bundles: a network's graph with what says how to prepare photos for it, run by ONNX Runtime without torch.

A bundle is a folder with the files that repositories of the hub have (``config.json``,
``preprocessor_config.json`` and a graph), or one ``.onnx`` file with all of that in its metadata. It may come from
anywhere: it is checked before it is run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from fiveshot.backbones.bundles.files import CONFIG, BundleFiles, bundle_files, check_bytes
from fiveshot.backbones.bundles.graph import EXPORT, Graph, damaged, feature_graph, read_graph, with_weights
from fiveshot.backbones.bundles.processor import WAY_OUT, read_processor
from fiveshot.backbones.bundles.reading import FEATURES, Reading, choose_reading
from fiveshot.backbones.catalog import BackboneChoice
from fiveshot.backbones.embedded import IMAGES_AT_ONCE, onnx_runtime, open_session
from fiveshot.backbones.embedder import Embedder, Vectors
from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.backbones.spec import BackboneSpec
from fiveshot.errors import InputError, StorageError, one_line
from fiveshot.hub import HUB

PROCESSORS = ("preprocessor_config.json", "processor_config.json")
NAME, PREPROCESSING, LICENSE = (
    "fiveshot.backbone",
    "fiveshot.preprocessing",
    "fiveshot.license",
)  # in a single file
REASON = 200  # characters of the runtime's own message to show
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.+-]+")


@dataclass(frozen=True)
class Bundle:
    """A checked bundle, ready to be loaded.

    Parameters
    ----------
    name : str
        What a model remembers: ``hf://OWNER/NAME@COMMIT/FILE``, or a name that ends in ``.onnx``.
    place : str
        The local file or folder; empty for one on the hub.
    graph : Path
        The file of the graph.
    beside : mapping of str to Path
        Files with its weights, by the names in the graph.
    facts : Graph
        What the graph takes and gives.
    preprocessing : Preprocessing
        How it wants its photos.
    reading : Reading
        What is read from it.
    sha256 : str
        Hash of the graph's files and of what is read.
    license : str
        The license of the weights, if the bundle says it.
    """

    name: str
    place: str
    graph: Path
    beside: Mapping[str, Path] = field(hash=False)
    facts: Graph
    preprocessing: Preprocessing
    reading: Reading
    sha256: str
    license: str = ""

    def content(self) -> bytes:
        """Return the graph with all its weights; refuse files that changed since they were checked."""
        graph, beside = _read_all(self.graph, self.beside)
        if _hash(graph, beside, self.reading) != self.sha256:
            raise StorageError(f"{self.graph} changed while it was in use", hint="load the backbone again")
        return with_weights(graph, beside, self.graph.name)


class BundleNetwork:
    """The graph of a bundle on ONNX Runtime; a :class:`Network` of an embedder."""

    device = "cpu"
    precision = "float32"
    adapter_hash = None

    def __init__(self, bundle: Bundle, preprocessing: Preprocessing) -> None:
        """Take a checked bundle; the graph is loaded on first use."""
        self.bundle = bundle
        self._preprocessing = preprocessing
        self._lock = Lock()
        self._session: Any = None
        self._width = bundle.reading.width

    @property
    def name(self) -> str:
        """What a model remembers of the bundle."""
        return self.bundle.name

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the graph's files and of what is read."""
        return self.bundle.sha256

    @property
    def width(self) -> int:
        """Length of a feature vector; a graph that does not say it is run once."""
        if self._width is None:
            self.ready()
            shape = self._preprocessing.shape[1:]
            self._width = self.forward(np.zeros((1, *shape), np.uint8)).shape[1]
        return self._width

    def ready(self) -> str:
        """Open the session, once, and return the name of the runtime."""
        with self._lock:
            if self._session is None:
                try:
                    self._session = open_session(self.bundle.content())
                except (InputError, StorageError):
                    raise
                except Exception as error:  # the runtime's errors have no common base
                    raise self._failed("cannot load", error, "update onnxruntime, choose another file") from error
        return onnx_runtime()

    def forward(self, images: Pixels) -> Vectors:
        """Return the features (n, width) of pixels (n, 3, size, size)."""
        facts, reading = self.bundle.facts, self.bundle.reading
        given = self._preprocessing.normalize(images).astype(np.float16 if facts.half else np.float32, copy=False)
        step = 1 if facts.mixes else IMAGES_AT_ONCE
        try:
            parts = [
                self._session.run([reading.output], {facts.image: given[start : start + step]})[0]
                for start in range(0, len(given), step)
            ]
            found = reading.vectors(np.concatenate(parts))
        except InputError:
            raise
        except Exception as error:  # the runtime's errors have no common base
            what = f"cannot give {images.shape[-1]} px images to"
            way_out = "choose another file or a preprocessing of another size"
            raise self._failed(what, error, way_out) from error
        wanted = (len(images), self._width or found.shape[1])
        if found.shape != wanted:
            raise InputError(
                f"{self.name} gives vectors of shape {found.shape}, and its graph promises {wanted}",
                hint="get a fresh copy of it, or choose another network",
                code="bad_bundle",
            )
        return found

    def feature_graph(self) -> bytes:
        """Return the graph from ``images`` (n, 3, size, size) to ``features`` (n, width)."""
        return feature_graph(self.bundle.content(), self.bundle.facts, self.bundle.reading)

    def _failed(self, what: str, error: Exception, way_out: str) -> InputError:
        reason = str(error).strip()
        shown = reason if len(reason) <= REASON else f"...{reason[-REASON:]}"  # the reason is at the end
        return InputError(
            f"ONNX Runtime {what} {self.name} ({one_line(shown)})",
            hint=f"{way_out}, or {EXPORT}",
            code="bad_bundle",
        )


def bundle_embedder(spec: BackboneSpec) -> Embedder:
    """Return the embedder of a bundle; its graph is checked now and loaded with the first photos.

    Parameters
    ----------
    spec : BackboneSpec
        Its name is that of a bundle.

    Returns
    -------
    Embedder
        Its specification names the revision, or the place, of the bundle.
    """
    bundle = load_bundle(spec)
    preprocessing = spec.prepared(bundle.preprocessing)
    side = bundle.facts.size
    if side is not None and preprocessing.size != side:
        raise InputError(
            f"{bundle.name} takes {side} px images; its preprocessing gives {preprocessing.size} px",
            hint=f"choose a preprocessing of size {side}",
            code="bad_bundle",
        )
    fixed = spec.replace(name=bundle.name, weights=bundle.place or None, device="cpu")
    return Embedder(fixed, preprocessing, BundleNetwork(bundle, preprocessing))


def describe_bundle(name: str) -> BackboneChoice:
    """Return what helps to choose a bundle; its note says what is read from the graph.

    Parameters
    ----------
    name : str
        The name of a bundle. Its graph is fetched if it is on the hub.

    Returns
    -------
    BackboneChoice
        Its values.
    """
    bundle = load_bundle(BackboneSpec(name))
    size = 0 if bundle.place else sum(path.stat().st_size for path in (bundle.graph, *bundle.beside.values()))
    return BackboneChoice(
        bundle.name if name.startswith(HUB) else name,
        bundle.facts.parameters,
        None,
        BundleNetwork(bundle, bundle.preprocessing).width,
        bundle.preprocessing.size,
        size,
        bundle.license,
        f"read: {bundle.reading}",
        needs_torch=False,
        local=True,
    )


def load_bundle(spec: BackboneSpec) -> Bundle:
    """Find a bundle, check its graph, and read how it is used.

    Parameters
    ----------
    spec : BackboneSpec
        The name of the bundle, what is read from it, and the preprocessing if it is not the bundle's own.

    Returns
    -------
    Bundle
        The checked bundle.

    Raises
    ------
    InputError
        When a file is damaged or not allowed, or when the network is not one for features of photos.
    StorageError
        When files are missing, or the hub does not answer.
    """
    _check_values(spec)
    files = bundle_files(spec.name, spec.weights)
    path = files.graph()
    content = path.read_bytes()
    facts = read_graph(content, path.name)
    beside = {name: files.beside(path, name) for name in facts.beside}
    check_bytes(sum(one.stat().st_size for one in (path, *beside.values())), files.shown)
    is_single = PREPROCESSING in facts.properties
    config = {} if is_single else files.read_json(CONFIG) or {}
    reading = choose_reading(facts.outputs, config, spec.tokens)
    own = spec.preprocessing if isinstance(spec.preprocessing, Preprocessing) else None
    if own is None:
        own = _from_metadata(facts, path.name) if is_single else _from_files(files, config)
    digest = _hash(*_read_all(path, beside), reading)
    called = facts.properties.get(NAME) or str(
        config.get("_name_or_path") or config.get("model_type") or path.stem
    )
    name = files.name or _file_name(called)
    said = facts.properties.get(LICENSE, "") or files.license or str(config.get("license", ""))
    return Bundle(name, files.place, path, beside, facts, own, reading, digest, one_line(said, 100))


def _check_values(spec: BackboneSpec) -> None:
    """Refuse what only a network on torch can do."""
    if spec.adapter is not None:
        hint = "export the backbone with its adapter: fiveshot backbone export NAME FILE --adapter FILE"
        raise InputError("an ONNX bundle takes no adapter", hint=hint)
    if spec.last_blocks != 1:
        raise InputError("an ONNX bundle gives only its last block", hint="leave out last_blocks (--last-blocks)")
    if spec.runtime not in ("auto", "onnx"):
        raise InputError(f"ONNX Runtime runs a bundle, not {spec.runtime!r}", hint="use the runtime 'auto'")
    if spec.device not in ("auto", "cpu"):
        raise InputError(
            f"a bundle runs on the CPU, not on {spec.device!r}", hint="use device 'cpu', or a timm name"
        )
    if spec.precision not in (None, "float32"):
        raise InputError(f"precision {spec.precision!r} is for CUDA devices", hint="use 'float32'")


def _from_metadata(facts: Graph, where: str) -> Preprocessing:
    try:
        values = json.loads(facts.properties[PREPROCESSING])
        return Preprocessing.from_json(values)
    except (InputError, TypeError, ValueError, RecursionError, AttributeError) as error:
        raise damaged(where, f"its preprocessing cannot be read: {one_line(error, 200)}") from error


def _from_files(files: BundleFiles, config: Mapping[str, Any]) -> Preprocessing:
    for name in PROCESSORS:
        found = files.read_json(name)
        if found is not None:
            inner = found.get("image_processor")
            given = inner if name != PROCESSORS[0] and isinstance(inner, Mapping) else found
            return read_processor(given, str(config.get("model_type", "")))
    hint = f"copy that of its repository beside it, or {WAY_OUT}"
    raise StorageError(f"{files.shown} has no {PROCESSORS[0]}", hint=hint, code="bad_bundle")


def _read_all(graph: Path, beside: Mapping[str, Path]) -> tuple[bytes, dict[str, bytes]]:
    return graph.read_bytes(), {name: path.read_bytes() for name, path in beside.items()}


def _hash(graph: bytes, beside: Mapping[str, bytes], reading: Reading) -> str:
    """Return the SHA-256 of the graph; with files beside it, or a rule of reading, that of all of it."""
    own = sha256(graph)
    if reading.output == FEATURES and not beside:
        return own.hexdigest()  # as sha256sum prints it
    parts = [f"{name}\n{sha256(data).hexdigest()}\n" for name, data in sorted(beside.items())]
    own.update("".join([*parts, f"{reading.output} {reading.part} {reading.prefix}\n"]).encode())
    return own.hexdigest()


def _file_name(called: str) -> str:
    """Return the name of a local bundle, which ends in .onnx and holds only plain characters.

    >>> _file_name("facebook/dinov2-small"), _file_name("../.. ")
    ('dinov2-small.onnx', 'network.onnx')
    """
    last = called.replace("\\", "/").rstrip("/").rpartition("/")[2].removesuffix(".onnx")
    plain = _NOT_IN_NAMES.sub("_", last)[:100].strip("._-+")
    return f"{plain or 'network'}.onnx"

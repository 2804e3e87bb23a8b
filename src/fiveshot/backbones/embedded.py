"""The ViT that comes with the package, run by ONNX Runtime without torch; facts in weights/MODEL_CARD.md.

The weights are stored once, in half precision. The graphs hold the structure alone: ``python -m
fiveshot.backbones.export`` makes them from the torch module, and they get the weights when they are loaded: as
they are, or in 8 bits.

In 8 bits a weight matrix W (k, n) becomes whole numbers from −64 to 64 and a scale for each column. What it is
multiplied with is rounded to 8 bits when it comes, with one scale for all of it, so that

    X W ≈ (whole numbers of X · whole numbers of W) · scale of X · scales of W.

Sums of whole numbers are exact: the result is the same on every processor, in whatever order it adds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fiveshot.backbones._adapter import AdapterFile, adapter_path, read_adapter
from fiveshot.backbones.embedder import Vectors, hash_arrays
from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.backbones.spec import EMBEDDED, BackboneSpec, Readout
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.storage import FilePath

FOLDER = Path(__file__).parent / "weights"
EMBEDDED_FILE = FOLDER / "vit_hybrid_small_patch16_224.safetensors"
SIZE, WIDTH, BLOCKS = 224, 384, 8
OWN_WIDTH = WIDTH + 1280  # class token and pooled map
AT_ONCE = 2  # images of a pass on a CPU: sixteen take a fifth longer, each
PREPROCESSING = Preprocessing(size=SIZE, resize=256, views=2, name="weights")

Arrays = dict[str, NDArray[Any]]
# A byte has room for 127. Processors without instructions for 8 bits add two products in 16 bits: 2 · 255 · 64
# fits there, and 2 · 255 · 127 does not.
LARGEST = 64
_WHOLE, _SCALES = ".int8", ".scales"  # after the name of a weight matrix: the two that take its place
_EXTERNAL = 1  # TensorProto.EXTERNAL: the values come when the graph is loaded


class EmbeddedNetwork:
    """The embedded backbone on ONNX Runtime, with an adapter or without; a :class:`Network` of an embedder."""

    def __init__(self, spec: BackboneSpec, preprocessing: Preprocessing) -> None:
        """Check what was asked for; weights are read when they are needed."""
        self._preprocessing, self._readout = preprocessing, spec.readout
        self._int8 = spec.runtime == "int8"
        self._file = EMBEDDED_FILE if spec.weights is None else Path(spec.weights)
        self._lock = Lock()
        self._arrays: Arrays | None = None  # read, and not yet in a session
        self._hash: str | None = None
        self._session: Any = None
        if preprocessing.size != SIZE:
            raise InputError(
                f"{EMBEDDED} takes {SIZE} px images; preprocessing {preprocessing.name!r} "
                f"gives {preprocessing.size} px"
            )
        if spec.last_blocks > BLOCKS:
            raise InputError(f"{EMBEDDED} has {BLOCKS} blocks; last_blocks is {spec.last_blocks}")
        if spec.weights is not None and not self._file.is_file():
            raise StorageError(f"no such file: {self._file}")
        self._adapter: AdapterFile | None = None
        if spec.adapter is not None:
            path = adapter_path(spec.adapter)
            self._adapter = read_adapter(path)
            self._adapter.require(self.weights_hash, name=EMBEDDED, path=path)
            self._adapter.require_shapes(BLOCKS, WIDTH, path=path)
        self._inputs = {} if self._adapter is None else adapter_inputs(self._adapter)

    name = EMBEDDED
    device = "cpu"

    @property
    def precision(self) -> str:
        """Number format of the matrix products."""
        return "int8" if self._int8 else "float32"

    @property
    def width(self) -> int:
        """Length of a feature vector."""
        return OWN_WIDTH if self._readout.tokens == "own" else WIDTH * self._readout.vectors

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the weights as float32, without adapters."""
        with self._lock:
            if self._hash is None:
                self._arrays, self._hash = AHEAD.read(self._file)
            return self._hash

    @property
    def adapter_hash(self) -> str | None:
        """SHA-256 of the adapter, or None without one."""
        return None if self._adapter is None else self._adapter.hash

    def ready(self) -> str:
        """Open the session, once, and say what runs the forward pass."""
        with self._lock:
            if self._session is None:
                self._session = open_session(self._structure(), self._weights(self._arrays))
                self._arrays = None  # they are the session's now
        return onnx_runtime()

    def graph(self) -> tuple[bytes, Arrays]:
        """Return the structure as ONNX, and what goes into it: the weights and the adapter, by their names."""
        return self._structure(), self._weights(None) | self._inputs

    def forward(self, images: Pixels) -> Vectors:
        """Return the features (n, width) of pixels (n, 3, size, size)."""
        given = {"images": self._preprocessing.normalize(images), **self._inputs}
        class_tokens, patch_mean, own = run_session(self._session, given, alone=self._int8)
        if self._readout.tokens == "own":
            vectors: Vectors = own
            return vectors
        return read_tokens(class_tokens, patch_mean, self._readout)

    def _structure(self) -> bytes:
        return graph_file(adapted=self._adapter is not None, int8=self._int8).read_bytes()

    def _weights(self, arrays: Arrays | None) -> Arrays:
        arrays = read_weights(self._file) if arrays is None else arrays
        if not self._int8:
            return arrays
        return quantized_weights(arrays, [name for name, array in arrays.items() if array.ndim == 2])


class ReadAhead:
    """The weights that come with the package, read and hashed in a thread while others import and wait.

    They are for the first network that needs them: afterwards nothing of them is kept here.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._begun: Future[tuple[Arrays, str]] | None = None

    def begin(self) -> None:
        """Begin to read; this does not wait."""
        pool = ThreadPoolExecutor(1)
        with self._lock:
            self._begun = pool.submit(_read_and_hash, EMBEDDED_FILE)
        pool.shutdown(wait=False)

    def read(self, path: Path) -> tuple[Arrays, str]:
        """Return the weights of a file and their hash: those that are being read, or read now."""
        begun = None
        if path == EMBEDDED_FILE:
            with self._lock:
                begun, self._begun = self._begun, None
        return _read_and_hash(path) if begun is None else begun.result()


AHEAD = ReadAhead()


def _read_and_hash(path: Path) -> tuple[Arrays, str]:
    arrays = read_weights(path)
    return arrays, hash_arrays(arrays)


def graph_file(*, adapted: bool, int8: bool) -> Path:
    """Return where the structure is: with places for an adapter or without, its products in 8 bits or not.

    >>> graph_file(adapted=True, int8=False).name
    'adapted.onnx'
    """
    return FOLDER / f"{'adapted' if adapted else 'plain'}{'-int8' if int8 else ''}.onnx"


def read_weights(path: FilePath) -> Arrays:
    """Return the weights of the embedded architecture in a file as float32, without classifier and counters."""
    path = Path(path)
    if path.suffix == ".safetensors":
        arrays = _read_safetensors(path)
    else:
        from fiveshot.backbones._networks import read_state

        arrays = {name: tensor.float().numpy() for name, tensor in read_state(path).items()}
    found = {name: array.shape for name, array in arrays.items() if _is_weight(name)}
    wanted = _expected_shapes()
    if found != wanted:
        lacking = sum(found.get(name) != shape for name, shape in wanted.items())
        raise InputError(
            f"{path} does not fit {EMBEDDED}: {lacking} tensors missing or of another shape, "
            f"{len(found.keys() - wanted.keys())} unexpected"
        )
    return {name: arrays[name] for name in found}


def adapter_inputs(adapter: AdapterFile) -> Arrays:
    """Return an adapter as the adapted graph takes it: all blocks stacked, transposed, the scale multiplied in."""
    down, down_bias, up, up_bias = (
        np.stack([adapter.tensors[f"blocks.{block}.adapter.{part}"] for block in range(BLOCKS)])
        for part in ("down.weight", "down.bias", "up.weight", "up.bias")
    )
    scale = np.float32(adapter.scale)
    return {
        "down": np.ascontiguousarray(down.transpose(0, 2, 1)),  # (blocks, width, bottleneck)
        "down_bias": down_bias,  # (blocks, bottleneck)
        "up": np.ascontiguousarray(up.transpose(0, 2, 1)) * scale,  # (blocks, bottleneck, width)
        "up_bias": up_bias * scale,  # (blocks, width)
    }


def read_tokens(class_tokens: Vectors, patch_mean: Vectors, readout: Readout) -> Vectors:
    """Return the feature vectors from the class tokens (n, blocks, width) and the mean of the last patches."""
    if readout.tokens == "mean":
        return patch_mean
    tokens: Vectors = class_tokens[:, -readout.last_blocks :].reshape(len(class_tokens), -1)
    return tokens if readout.tokens == "cls" else np.concatenate([tokens, patch_mean], axis=1)


def open_session(graph: bytes, weights: Mapping[str, NDArray[Any]] | None = None) -> Any:
    """Return an ONNX Runtime session for the CPU; ``weights`` are those that the graph only names.

    It uses one thread: several calls of one thread each use the cores better than one call of several
    threads, and leave none of them waiting while another decodes images.
    """
    runtime = import_extra("onnxruntime", extra="")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    # Idle threads must not spin: the cores are shared with those who decode images.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # As the graph is written: what a block gives is read at once, not kept in memory until the end.
    options.execution_order = runtime.ExecutionOrder.PRIORITY_BASED
    if weights is not None:
        values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
    return runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def run_session(session: Any, given: Mapping[str, Vectors], *, alone: bool) -> list[Vectors]:
    """Return what a session gives for ``images`` and other inputs, in passes that stay in a core's cache.

    What is rounded to 8 bits has one scale for all of a pass: there each image is ``alone``, so that none changes
    another.
    """
    images, size = given["images"], 1 if alone else AT_ONCE
    passes = [images[start : start + size] for start in range(0, len(images), size)]
    found = [session.run(None, {**given, "images": part}) for part in passes]
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def onnx_runtime() -> str:
    """Return the name of this runtime with its version."""
    return f"ONNX Runtime {import_extra('onnxruntime', extra='').__version__} on cpu"


def _read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise StorageError(f"no such file: {path}")
    try:
        with safe_open(path, framework="np") as file:
            # Each is converted as it comes, so that the next one is read into the same memory.
            return {
                name: file.get_tensor(name).astype(np.float32, copy=False)
                for name in file.keys()  # noqa: SIM118
                if _is_weight(name)
            }
    except SafetensorError as error:
        raise StorageError(f"{path} is not a safetensors file, or it is truncated ({error})") from error
    except TypeError as error:  # NumPy has no bfloat16
        raise InputError(f"{path} cannot be read ({error})", hint="convert it to float16 or float32") from error


def _expected_shapes() -> dict[str, tuple[int, ...]]:
    with safe_open(EMBEDDED_FILE, framework="np") as file:
        return {
            name: tuple(file.get_slice(name).get_shape())
            for name in file.keys()  # noqa: SIM118
            if _is_weight(name)
        }


def _is_weight(name: str) -> bool:
    """Tell whether a tensor decides features: the classifier and counters of batches do not."""
    return not name.startswith("head.") and not name.endswith("num_batches_tracked")


def quantize(weights: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return whole numbers (k, n) and scales (n,) whose products are nearest to weights (k, n).

    >>> whole, scales = quantize(np.float32([[1.0, -0.5], [0.3, 0.25]]))
    >>> whole.tolist(), (whole * scales).astype(float).round(2).tolist()
    ([[64, -64], [19, 32]], [[1.0, -0.5], [0.3, 0.25]])
    """
    most = np.abs(weights).max(axis=0)
    scales = np.where(most > 0, most / LARGEST, 1).astype(np.float32)
    return np.rint(weights / scales).astype(np.int8), scales


def quantized_weights(weights: Mapping[str, NDArray[Any]], names: Collection[str]) -> Arrays:
    """Return weights as a graph of :func:`quantize_graph` names them; the matrices are (n, k), as torch has them.

    >>> weights = {"fc.weight": np.ones((2, 3), np.float32), "fc.bias": np.zeros(2)}
    >>> found = quantized_weights(weights, ["fc.weight"])
    >>> {name: found[name].shape for name in sorted(found)}
    {'fc.bias': (2,), 'fc.weight.int8': (3, 2), 'fc.weight.scales': (2,)}
    """
    found = {name: array for name, array in weights.items() if name not in names}
    for name in names:
        whole, found[name + _SCALES] = quantize(weights[name].T)
        found[name + _WHOLE] = np.ascontiguousarray(whole)
    return found


def quantize_graph(content: bytes) -> bytes:
    """Return an ONNX graph whose products with weight matrices run in 8 bits; other nodes stay as they are.

    The weights may be in the graph, or named alone: then their quantized ones are named alone, too.
    """
    onnx = import_extra("onnx", extra="onnx")
    model = onnx.load_model_from_string(content)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
    transposed = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] in weights
    }
    nodes, rounded, replaced = list[Any](), set[str](), dict[str, Any]()
    for node in graph.node:
        matrix = node.input[1] if node.op_type == "MatMul" else ""
        name = transposed.get(matrix, matrix)
        if name not in weights:
            nodes.append(node)
            continue
        replaced[name] = (weights[name], name != matrix)
        if node.input[0] not in rounded:
            nodes.append(_rounding(onnx, node.input[0]))
            rounded.add(node.input[0])
        nodes += _product(onnx, node, name)
    _replace(graph.node, [node for node in nodes if node.output[0] not in transposed])
    kept = [tensor for tensor in graph.initializer if tensor.name not in replaced]
    made = [part for tensor, turned in replaced.values() for part in _tensors(onnx, tensor, turned)]
    _replace(graph.initializer, [*kept, *made])
    result: bytes = model.SerializeToString(deterministic=True)
    return result


def _rounding(onnx: Any, name: str) -> Any:
    """Return the node that rounds an array to 8 bits: whole numbers, their scale, and which of them is zero."""
    return onnx.helper.make_node("DynamicQuantizeLinear", [name], [name + _WHOLE, name + ".scale", name + ".zero"])


def _product(onnx: Any, node: Any, weights: str) -> list[Any]:
    """Return the nodes of X W in the order in which ONNX Runtime knows them as one."""
    X, (out,) = node.input[0], node.output
    make = onnx.helper.make_node
    return [
        make("MatMulInteger", [X + _WHOLE, weights + _WHOLE, X + ".zero"], [out + ".whole"]),
        make("Cast", [out + ".whole"], [out + ".sum"], to=onnx.TensorProto.FLOAT),
        make("Mul", [X + ".scale", weights + _SCALES], [out + ".scales"]),
        make("Mul", [out + ".sum", out + ".scales"], [out]),
    ]


def _tensors(onnx: Any, tensor: Any, turned: bool) -> list[Any]:
    """Return the two initializers that take the place of a weight matrix; ``turned`` is one of torch's, (n, k)."""
    names, types = (tensor.name + _WHOLE, tensor.name + _SCALES), (onnx.TensorProto.INT8, onnx.TensorProto.FLOAT)
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        matrix = onnx.numpy_helper.to_array(tensor)
        parts = quantize(matrix.T if turned else matrix)
        return [onnx.numpy_helper.from_array(part, name) for part, name in zip(parts, names, strict=True)]
    k, n = reversed(tensor.dims) if turned else tensor.dims
    made = []
    for name, kind, dims in zip(names, types, ((k, n), (n,)), strict=True):
        made.append(onnx.TensorProto(name=name, data_type=kind, dims=dims, data_location=tensor.data_location))
        made[-1].external_data.extend(tensor.external_data)
    return made


def _replace(repeated: Any, values: list[Any]) -> None:
    del repeated[:]
    repeated.extend(values)

"""The network in the package, run by ONNX Runtime without torch; weights/MODEL_CARD.md describes it.

The weights are stored once, in half precision, under timm's names. The graphs hold only the structure;
``python -m fiveshot.backbones.export`` makes them from timm's network. They get the weights when they are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fiveshot.backbones._adapter import AdapterFile, chosen_adapter, included_adapter, is_of_adapter
from fiveshot.backbones.embedder import Vectors, hash_arrays
from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.backbones.spec import EMBEDDED, OWN, BackboneSpec, no_class_token
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.storage import FilePath

FOLDER = Path(__file__).parent / "weights"
EMBEDDED_FILE = FOLDER / f"{EMBEDDED}.safetensors"
SIZE, WIDTH = 224, 320
# The network's width at each adapter. Adapters are parallel to the MLP of every attention block.
ADAPTER_WIDTHS = {
    f"stages.{stage}.blocks.{block}.mlp": width
    for stage, blocks, width in ((1, 2, 128), (2, 6, 160), (3, 2, 320))
    for block in range(blocks)
}
IMAGES_AT_ONCE = 2  # images in a pass on a CPU; with sixteen, each image takes a fifth longer
PREPROCESSING = Preprocessing(
    size=SIZE,
    resize=256,
    mean=(0.485, 0.456, 0.406),  # of ImageNet
    std=(0.229, 0.224, 0.225),
    views=2,
    name="weights",
)

Arrays = dict[str, NDArray[Any]]


class EmbeddedNetwork:
    """The embedded backbone on ONNX Runtime, with or without an adapter; a :class:`Network` of an embedder."""

    def __init__(self, spec: BackboneSpec, preprocessing: Preprocessing) -> None:
        """Check the arguments; the weights are read on first use."""
        self._preprocessing = preprocessing
        self._file = EMBEDDED_FILE if spec.weights is None else Path(spec.weights)
        self._lock = Lock()
        self._arrays: Arrays | None = None  # read, and not yet in a session
        self._hash: str | None = None
        self._session: Any = None
        if spec.readout != OWN:
            raise no_class_token(EMBEDDED, spec.readout)
        require_size(preprocessing)
        if spec.weights is not None and not self._file.is_file():
            raise StorageError(f"no such file: {self._file}")
        self._adapter: AdapterFile | None = None
        chosen = chosen_adapter(spec)
        if chosen is not None:
            self._adapter, path = chosen
            self._adapter.require(self.weights_hash, name=EMBEDDED, path=path)
            self._adapter.require_places(ADAPTER_WIDTHS, path=path)
        self._inputs = {} if self._adapter is None else adapter_inputs(self._adapter)

    name = EMBEDDED
    device = "cpu"
    precision = "float32"
    width = WIDTH

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the weights as float32, without adapters."""
        with self._lock:
            if self._hash is None:
                self._arrays = read_weights(self._file)
                self._hash = hash_arrays(self._arrays)
            return self._hash

    @property
    def adapter_hash(self) -> str | None:
        """SHA-256 of the adapter, or None without one."""
        return None if self._adapter is None else self._adapter.hash

    def ready(self) -> str:
        """Open the session, once, and return the name of the runtime."""
        with self._lock:
            if self._session is None:
                arrays = read_weights(self._file) if self._arrays is None else self._arrays
                self._session = open_session(self._structure(), arrays)
                self._arrays = None  # the session holds them now
        return onnx_runtime()

    def graph(self) -> tuple[bytes, Arrays]:
        """Return the structure as ONNX, and the weights and the adapter by name."""
        return self._structure(), read_weights(self._file) | self._inputs

    def forward(self, images: Pixels) -> Vectors:
        """Return the features (n, width) of pixels (n, 3, size, size)."""
        return run_session(self._session, self._preprocessing.normalize(images), self._inputs)

    def _structure(self) -> bytes:
        return graph_file(adapted=self._adapter is not None).read_bytes()


def require_size(preprocessing: Preprocessing) -> None:
    """Refuse a preprocessing whose image size differs from that of the graphs, on a GPU too."""
    if preprocessing.size != SIZE:
        raise InputError(
            f"{EMBEDDED} takes {SIZE} px images; preprocessing {preprocessing.name!r} "
            f"gives {preprocessing.size} px",
            hint=f"choose a preprocessing of size {SIZE}",
        )


def graph_file(*, adapted: bool) -> Path:
    """Return the file of the structure, with or without inputs for an adapter.

    >>> graph_file(adapted=True).name
    'adapted.onnx'
    """
    return FOLDER / f"{'adapted' if adapted else 'plain'}.onnx"


def read_weights(path: FilePath) -> Arrays:
    """Read the weights of the embedded architecture as float32, without classifier and counters."""
    path = Path(path)
    if path.suffix == ".safetensors":
        arrays = _read_safetensors(path)
    else:
        from fiveshot.backbones._networks import read_state

        arrays = {name: tensor.float().numpy() for name, tensor in read_state(path).items() if _is_weight(name)}
    if included_adapter(path) is not None:
        arrays = {name: array for name, array in arrays.items() if not is_of_adapter(name)}
    found = {name: array.shape for name, array in arrays.items()}
    wanted = _expected_shapes()
    if found != wanted:
        lacking = sum(found.get(name) != shape for name, shape in wanted.items())
        raise InputError(
            f"{path} does not fit {EMBEDDED}: {lacking} tensors missing or of another shape, "
            f"{len(found.keys() - wanted.keys())} unexpected",
            hint="give a file with the weights of timm's tiny_vit_5m_224, or leave the weights out",
        )
    return arrays


def adapter_inputs(adapter: AdapterFile) -> Arrays:
    """Return an adapter's tensors by name, as inputs of the adapted graph; they include the scale."""
    scale = np.float32(adapter.scale)
    return {name: tensor * scale if ".adapter.up." in name else tensor for name, tensor in adapter.tensors.items()}


def open_session(graph: bytes, weights: Mapping[str, NDArray[Any]] | None = None) -> Any:
    """Return an ONNX Runtime session for the CPU; ``weights`` are the tensors that the graph only names.

    It uses one thread. Several calls with one thread each use the cores better than one call with several
    threads, and no thread waits while another decodes images.
    """
    runtime = import_extra("onnxruntime", extra="")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # no warnings about graphs of others; errors are raised
    # Idle threads must not spin: the decoders need the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Run nodes in the order of the graph: each block's output is used at once and then freed.
    options.execution_order = runtime.ExecutionOrder.PRIORITY_BASED
    if weights is not None:
        values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
    return runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def run_session(session: Any, images: Vectors, inputs: Mapping[str, Vectors] | None = None) -> Vectors:
    """Return the features of normalized images (n, 3, size, size), in passes that fit into a core's cache."""
    parts = [
        session.run(None, {"images": images[start : start + IMAGES_AT_ONCE], **(inputs or {})})[0]
        for start in range(0, len(images), IMAGES_AT_ONCE)
    ]
    features: Vectors = np.concatenate(parts)
    return features


def onnx_runtime() -> str:
    """Return the name of this runtime with its version."""
    return f"ONNX Runtime {import_extra('onnxruntime', extra='').__version__} on cpu"


def _read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise StorageError(f"no such file: {path}")
    try:
        with safe_open(path, framework="np") as file:
            # Convert each tensor at once, so that the next one reuses its memory.
            return {
                name: file.get_tensor(name).astype(np.float32, copy=False)
                for name in file.keys()  # noqa: SIM118
                if _is_weight(name)
            }
    except SafetensorError as error:
        raise StorageError(
            f"{path} is not a safetensors file, or it is truncated ({error})", hint="get a fresh copy of it"
        ) from error
    except TypeError as error:  # NumPy has no bfloat16
        raise InputError(f"{path} cannot be read ({error})", hint="convert it to float16 or float32") from error


def _expected_shapes() -> dict[str, tuple[int, ...]]:
    with safe_open(EMBEDDED_FILE, framework="np") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def _is_weight(name: str) -> bool:
    """Tell whether a tensor affects features: the classifier and the batch counters do not."""
    return not name.startswith("head.fc.") and not name.endswith("num_batches_tracked")

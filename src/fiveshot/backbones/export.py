"""Export torch networks as ONNX graphs: with weights, or only the structure of the embedded network.

``python -m fiveshot.backbones.export`` writes the graphs of the embedded backbone (it also needs ``onnx``).
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiveshot.backbones._adaptformer import attach_adapters
from fiveshot.backbones.backbone import Backbone, load_backbone, read_features
from fiveshot.backbones.embedded import EMBEDDED_FILE, SIZE, graph_file, read_weights
from fiveshot.backbones.spec import BackboneSpec, Readout
from fiveshot.extras import import_extra

OPSET = 18
STANDARD_OUTPUT = 1  # its file descriptor
_PROTOBUF_LIMIT = 2 * 1024**3  # bytes: the most one ONNX file can hold
_IMAGES = {0: "n"}


def fits_onnx(backbone: Backbone) -> bool:
    """Tell whether the weights fit into one ONNX file."""
    size = sum(parameter.numel() * parameter.element_size() for parameter in backbone.model.parameters())
    return size < _PROTOBUF_LIMIT


def export_onnx(backbone: Backbone) -> bytes:
    """Return the forward pass as an ONNX graph: ``images`` (n, 3, size, size) to ``features`` (n, width)."""
    size = backbone.preprocessing.size
    # Two images: the exporter would treat a batch of one as a constant.
    images = torch.zeros(2, 3, size, size, device=backbone.device)
    return _traced(
        _Features(backbone.model, backbone.readout),
        {"images": (images, _IMAGES)},
        {"features": _IMAGES},
    )


def embedded_graph(*, adapted: bool) -> bytes:
    """Return the structure of the embedded backbone as an ONNX graph without weights, always with the same bytes.

    Its output is ``features`` (n, width). The tensors of an adapter are inputs, so its bottleneck may have any
    width. The initializers have the names and shapes of the stored weights; ONNX Runtime folds and fuses them
    when it gets their values.
    """
    backbone = load_backbone(BackboneSpec(device="cpu"))
    if adapted:
        attach_adapters(backbone.model, scale=1.0, seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    for tensor in backbone.model.state_dict().values():
        if tensor.is_floating_point():  # make them differ, because the exporter merges equal tensors
            tensor.uniform_(0.5, 1.5, generator=generator)
    images = {"images": (torch.zeros(2, 3, SIZE, SIZE), _IMAGES)}
    traced = _traced(_Features(backbone.model, backbone.readout), images, {"features": _IMAGES}, fold=False)
    return _folded(_without_weights(traced))


def write_graphs() -> None:
    """Write the structure of the embedded backbone, without and with inputs for an adapter."""
    for adapted in (False, True):
        graph_file(adapted=adapted).write_bytes(embedded_graph(adapted=adapted))


class _Features(nn.Module):
    def __init__(self, model: nn.Module, readout: Readout) -> None:
        super().__init__()
        self.model = model
        self.readout = readout

    def forward(self, images: Tensor) -> Tensor:
        return read_features(self.model, images, self.readout)


def _traced(
    network: nn.Module,
    inputs: dict[str, tuple[Tensor, dict[int, str]]],
    outputs: dict[str, dict[int, str]],
    *,
    fold: bool = True,
) -> bytes:
    """Return a network as an ONNX graph; without ``fold`` its initializers are the module's own tensors."""
    modes = torch.onnx.TrainingMode
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), silent_output():
        # The tracing exporter needs no further library, and its graph is at least as fast as the newer exporter's.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            tuple(tensor for tensor, _ in inputs.values()),
            f"{folder}/graph.onnx",
            dynamo=False,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={**{name: axes for name, (_, axes) in inputs.items()}, **outputs},
            do_constant_folding=fold,
            training=modes.EVAL if fold else modes.PRESERVE,  # EVAL folds batch norms into convolutions
        )
        return Path(folder, "graph.onnx").read_bytes()


def _without_weights(graph: bytes) -> bytes:
    """Return a graph whose initializers have only names and shapes; their values come on loading.

    Adapter tensors become inputs, because their bottleneck may have any width.
    """
    onnx = import_extra("onnx", extra="onnx")
    model = onnx.load_model_from_string(graph)
    prefix = "model."  # of the one attribute that holds the network
    own = {tensor.name for tensor in model.graph.initializer}
    adapter = [tensor for tensor in model.graph.initializer if ".adapter." in tensor.name]
    for tensor in adapter:
        name = tensor.name.removeprefix(prefix)
        # The bottleneck is one side of every adapter matrix, and the length of the bias of "down".
        bottleneck = {"down.weight": 0, "down.bias": 0, "up.weight": 1}.get(name.partition(".adapter.")[2])
        sides = ["bottleneck" if axis == bottleneck else side for axis, side in enumerate(tensor.dims)]
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, sides))
        model.graph.initializer.remove(tensor)
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.name = tensor.name.removeprefix(prefix)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", "given when it is loaded"
    for node in model.graph.node:
        node.ClearField("name")
        node.ClearField("doc_string")
        renamed = [name.removeprefix(prefix) if name in own else name for name in node.input]
        del node.input[:]
        node.input.extend(renamed)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _folded(graph: bytes) -> bytes:
    """Return a graph with constant expressions replaced by their values, such as the padding of convolutions.

    This removes two thirds of the nodes, so a session opens faster. Nodes that depend on weights stay, because the
    weights come later. A node with the same value for two batch sizes is a constant.
    """
    onnx = import_extra("onnx", extra="onnx")
    model = onnx.load_model_from_string(graph)
    traced, outputs = list(model.graph.node), {output.name for output in model.graph.output}
    weighted = {tensor.name for tensor in model.graph.initializer}
    for node in traced:
        if node.op_type != "Shape" and weighted.intersection(node.input):
            weighted.update(node.output)
    names = [name for node in traced for name in node.output if name not in weighted]
    found, others = (_computed(graph, names, images) for images in (2, 3))
    constants = {name: found[name] for name in names if np.array_equal(found[name], others[name])}
    kept, needed = list[Any](), set(outputs)
    for node in reversed(traced):
        if needed.intersection(node.output) and not constants.keys() >= set(node.output):
            kept.insert(0, node)
            needed.update(node.input)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in constants.items() if name in needed
    )
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _computed(graph: bytes, names: list[str], images: int) -> dict[str, Any]:
    """Return the outputs of some nodes of a graph without weights for random images."""
    onnx, runtime = import_extra("onnx", extra="onnx"), import_extra("onnxruntime", extra="")
    model = onnx.load_model_from_string(graph)
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    shapes = {
        tensor.name: [side.dim_value or images for side in tensor.type.tensor_type.shape.dim]
        for tensor in model.graph.input  # where a side is free, so many images, or units of the bottleneck
    }
    rng = np.random.default_rng(images)
    given = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    weights = read_weights(EMBEDDED_FILE)
    values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_external_initializers(list(weights), values)
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, given), strict=True))


@contextmanager
def silent_output() -> Iterator[None]:
    """Discard what this process writes to standard output inside the block, also from C code.

    The ONNX exporter prints its whole graph when it fails, and ``redirect_stdout`` does not reach it.

    >>> import os
    >>> with silent_output():
    ...     _ = os.write(1, b"hundreds of lines")
    """
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept = os.dup(STANDARD_OUTPUT)
    except OSError:  # standard output is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STANDARD_OUTPUT)
        yield
    finally:
        os.dup2(kept, STANDARD_OUTPUT)
        os.close(nowhere)
        os.close(kept)


if __name__ == "__main__":
    write_graphs()

"""Matrix products in 8 bits: weights as whole numbers, and an ONNX graph that multiplies them as such.

A weight matrix W (k, n) becomes whole numbers from −64 to 64 and a scale for each column. What it is multiplied
with is rounded to 8 bits when it comes, with one scale for all of it, so that

    X W ≈ (whole numbers of X · whole numbers of W) · scale of X · scales of W.

Sums of whole numbers are exact: the result is the same on every processor, in whatever order it adds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fiveshot.extras import import_extra

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
# A byte has room for 127. Processors without instructions for 8 bits add two products in 16 bits: 2 · 255 · 64
# fits there, and 2 · 255 · 127 does not.
LARGEST = 64
_WHOLE, _SCALES = ".int8", ".scales"  # after the name of a weight matrix: the two that take its place
_EXTERNAL = 1  # TensorProto.EXTERNAL: the values come when the graph is loaded


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

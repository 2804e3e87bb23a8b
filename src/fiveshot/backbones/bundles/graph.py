"""Check an ONNX graph that may come from anywhere, and turn it into one that gives features.

Nothing in a graph runs code of its own: operators of others are refused, and so are files outside of its folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fiveshot.backbones.bundles.files import check_bytes
from fiveshot.backbones.bundles.reading import Output, Reading
from fiveshot.errors import InputError, counted, some_of
from fiveshot.extras import import_extra

DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")  # of operators that ONNX Runtime itself brings
EXPORT = "write one from a timm name: fiveshot backbone export NAME FILE"
_TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_BY_RANGE = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul")  # they quantize by the range of what they get
_MOST_LISTED = 5


@dataclass(frozen=True)
class Graph:
    """What a graph takes and gives.

    Parameters
    ----------
    image : str
        Name of the only input.
    half : bool
        Whether the input is float16, not float32.
    size : int, optional
        Side of the image that it takes; None: any.
    outputs : tuple of Output
        What it gives.
    properties : mapping
        Its metadata.
    beside : tuple of str
        Files with weights, relative to the graph's folder.
    parameters : int
        Number of weights.
    mixes : bool
        Whether a photo's vector depends on the other photos of a pass: where numbers are quantized by the range
        that they have in that pass.
    """

    image: str
    half: bool
    size: int | None
    outputs: tuple[Output, ...]
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    beside: tuple[str, ...] = ()
    parameters: int = 0
    mixes: bool = False


def read_graph(content: bytes, where: str) -> Graph:
    """Return what a graph takes and gives; refuse one that is damaged or not allowed, or takes something else.

    Parameters
    ----------
    content : bytes
        The ONNX file.
    where : str
        Its name, for errors.

    Returns
    -------
    Graph
        The checked facts.
    """
    model = _parsed(content, where)
    _check_operators(model, where)
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    image, half, size = _image([one for one in graph.input if one.name not in weights], where)
    tensors = list(_tensors(model))
    return Graph(
        image,
        half,
        size,
        tuple(Output(one.name, _shape(one)) for one in graph.output),
        {entry.key: entry.value for entry in model.metadata_props},
        tuple(dict.fromkeys(_location(tensor, where) for tensor in tensors if _is_external(tensor))),
        sum(math.prod(tensor.dims) for tensor in graph.initializer),
        any(node.op_type in _BY_RANGE for node in _nodes(model)),
    )


def with_weights(content: bytes, beside: Mapping[str, bytes], where: str) -> bytes:
    """Return a graph with the weights inside that its files beside it hold."""
    if not beside:
        return content
    model, size = _parsed(content, where), len(content)
    for tensor in _tensors(model):
        if not _is_external(tensor):
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        data = beside[_location(tensor, where)]
        try:
            start = int(entries.get("offset", 0))
            length = int(entries.get("length", len(data) - start))
        except ValueError as error:
            raise damaged(where, "a place of weights is not a number") from error
        if start < 0 or length < 0 or start + length > len(data):
            raise damaged(where, f"weights are missing in {_location(tensor, where)}")
        size += length  # tensors may share their bytes
        check_bytes(size, where)
        tensor.raw_data = data[start : start + length]
        del tensor.external_data[:]
        tensor.ClearField("data_location")
    whole: bytes = model.SerializeToString()
    return whole


def feature_graph(content: bytes, graph: Graph, reading: Reading) -> bytes:
    """Return a graph from ``images`` (n, 3, size, size) to ``features`` (n, width), both float32."""
    onnx = import_extra("onnx", extra="onnx")
    model = _parsed(content, "the graph")
    helper, types, nodes = onnx.helper, onnx.TensorProto, model.graph.node
    weights = {tensor.name for tensor in model.graph.initializer}
    (taken,) = [one for one in model.graph.input if one.name not in weights]
    own = graph.image
    if own == "images" and graph.half:
        own = "fiveshot.read.images"
        for node in nodes:
            node.input[:] = [own if name == "images" else name for name in node.input]
    if own != "images":
        nodes.insert(
            0, helper.make_node("Cast", ["images"], [own], to=types.FLOAT16 if graph.half else types.FLOAT)
        )
    size = graph.size or "side"
    taken.CopyFrom(helper.make_tensor_value_info("images", types.FLOAT, ["n", 3, size, size]))
    value = _read_nodes(onnx, model.graph, reading)
    del model.graph.output[:]
    nodes.append(helper.make_node("Cast", [value], ["features"], to=types.FLOAT))
    model.graph.output.append(
        helper.make_tensor_value_info("features", types.FLOAT, ["n", reading.width or "width"])
    )
    whole: bytes = model.SerializeToString()
    return whole


def damaged(where: str, reason: str) -> InputError:
    """Return the error for a file that cannot be read."""
    return InputError(f"{where} is damaged ({reason})", hint="get a fresh copy of it", code="bad_bundle")


def _read_nodes(onnx: Any, graph: Any, reading: Reading) -> str:
    """Add the nodes that do what ``Reading.vectors`` does, and return the name of the result."""
    helper = onnx.helper
    source = reading.output
    if source == "features":  # the name is needed for the result
        source = "fiveshot.read"
        for one in graph.node:
            one.output[:] = [source if name == "features" else name for name in one.output]

    def constant(name: str, values: list[int]) -> str:
        full = f"fiveshot.read.{name}"
        graph.initializer.append(helper.make_tensor(full, onnx.TensorProto.INT64, [len(values)], values))
        return full

    def node(kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        full = f"fiveshot.read.{name}"
        graph.node.append(helper.make_node(kind, inputs, [full], **attributes))
        return full

    if reading.part == "whole":
        return node("Flatten", [source], "flat", axis=1)
    if reading.part == "map":
        pooled = node("GlobalAveragePool", [source], "pooled")
        return node("Flatten", [pooled], "flat", axis=1)
    axis = constant("axis", [1])
    parts = []
    if reading.part != "mean":
        first = node("Slice", [source, constant("zero", [0]), constant("one", [1]), axis], "first")
        parts.append(node("Flatten", [first], "cls", axis=1))
    if reading.part != "cls":
        bounds = [constant("from", [reading.prefix]), constant("to", [2**31 - 1])]
        patches = node("Slice", [source, *bounds, axis], "patches")
        turned = node("Transpose", [patches], "turned", perm=[0, 2, 1])  # (n, width, patches)
        parts.append(node("Flatten", [node("GlobalAveragePool", [turned], "average")], "mean", axis=1))
    return parts[0] if len(parts) == 1 else node("Concat", parts, "both", axis=1)


def _parsed(content: bytes, where: str) -> Any:
    onnx = import_extra("onnx", extra="onnx")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # the parser's errors have no common base
        raise damaged(where, "it is not an ONNX file, or it is truncated") from error
    if not model.graph.node or not model.graph.output:
        raise damaged(where, "it is not an ONNX file, or it is truncated")
    return model


def _image(inputs: list[Any], where: str) -> tuple[str, bool, int | None]:
    """Return the name of the image input, whether it is float16, and its side."""
    names = [one.name[:60] for one in inputs]
    text = [name for name in names if name in _TEXT_INPUTS]
    if text:
        hint = "choose its file for images (vision_model.onnx), or another network"
        raise InputError(f"{where} takes text ({', '.join(text)})", hint=hint, code="bad_bundle")
    if len(inputs) != 1:
        listed = some_of(names) if names else "none"
        raise InputError(
            f"{where} must take one input, the image; it has {len(inputs)}: {listed}",
            hint="choose a network for feature extraction of photos",
            code="bad_bundle",
        )
    (taken,), types = inputs, import_extra("onnx", extra="onnx").TensorProto
    shape, kind = _shape(taken), taken.type.tensor_type.elem_type
    last = len(shape) == 4 and shape[1] != 3 and shape[3] == 3  # channels come last
    is_image = len(shape) == 4 and shape[1] in (3, None) and not last and kind in (types.FLOAT, types.FLOAT16)
    if not is_image:
        sides = ", ".join("n" if side is None else str(side) for side in shape)
        raise InputError(
            f"{where} takes {names[0]!r} ({sides}), not photos (n, 3, height, width) in float32 or float16",
            hint="choose a network for feature extraction of photos",
            code="bad_bundle",
        )
    if shape[0] is not None:
        raise InputError(
            f"{where} takes exactly {counted(shape[0], 'photo')} at a time",
            hint=f"get one exported with a free batch size, or {EXPORT}",
            code="bad_bundle",
        )
    height, width = shape[2:]
    if height is not None and width is not None and height != width:
        raise InputError(
            f"{where} takes images of {height} x {width} px, and only squares are possible",
            hint="choose another network",
            code="bad_bundle",
        )
    return taken.name, kind == types.FLOAT16, height or width


def _shape(value: Any) -> tuple[int | None, ...]:
    sides = value.type.tensor_type.shape.dim
    return tuple(side.dim_value if side.HasField("dim_value") and side.dim_value > 0 else None for side in sides)


def _check_operators(model: Any, where: str) -> None:
    own = {(function.domain, function.name) for function in model.functions}
    custom = {
        f"{node.domain}.{node.op_type}"[:80]
        for node in _nodes(model)
        if node.domain not in DOMAINS and (node.domain, node.op_type) not in own
    }
    if custom:
        listed = some_of(sorted(custom), _MOST_LISTED)
        raise InputError(
            f"{where} needs operators that do not come with ONNX Runtime: {listed}",
            hint=f"choose another file of this network, or {EXPORT}",
            code="bad_bundle",
        )


def _nodes(model: Any) -> Iterator[Any]:
    """Yield all nodes: of the graph, of graphs inside its nodes, and of the functions that it brings."""
    yield from _nodes_of(model.graph.node)
    for function in model.functions:
        yield from _nodes_of(function.node)


def _nodes_of(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        for graph in _graphs_of(node):
            yield from _nodes_of(graph.node)


def _graphs_of(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _tensors(model: Any) -> Iterator[Any]:
    """Yield all tensors that hold values, wherever they are."""
    yield from _stored(model.graph)
    for node in _nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield from _halves(attribute.sparse_tensor)
            for sparse in attribute.sparse_tensors:
                yield from _halves(sparse)
        for graph in _graphs_of(node):
            yield from _stored(graph)


def _stored(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from _halves(sparse)


def _halves(sparse: Any) -> Iterator[Any]:
    yield sparse.values
    yield sparse.indices


def _is_external(tensor: Any) -> bool:
    external: int = import_extra("onnx", extra="onnx").TensorProto.EXTERNAL
    return bool(tensor.data_location == external or tensor.external_data)


def _location(tensor: Any, where: str) -> str:
    """Return the file that holds a tensor's values; its folder is checked when it is opened."""
    found = [entry.value for entry in tensor.external_data if entry.key == "location"]
    if len(found) != 1 or not found[0]:
        raise damaged(where, "a place of weights has no file")
    return str(found[0])

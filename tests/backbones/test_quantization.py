from __future__ import annotations

import numpy as np
import onnx
import pytest
import timm
from onnx import TensorProto, helper, numpy_helper

from fiveshot.backbones import Backbone, BackboneSpec, Preprocessing, load_embedder, torch_embedder
from fiveshot.backbones.embedded import (
    EMBEDDED_FILE,
    graph_file,
    open_session,
    quantize,
    quantize_graph,
    quantized_weights,
    read_weights,
)


def centered_cosines(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    a, b = (rows - expected.mean(axis=0) for rows in (found, expected))
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    """Pictures that differ: patches of colors, large and small."""
    rng = np.random.default_rng(0)
    sides = (224, 112, 28, 2)
    patches = (rng.integers(0, 256, (2, 3, 224 // side, 224 // side), np.uint8) for side in sides)
    return np.stack(
        [one.repeat(side, axis=2).repeat(side, axis=3) for one, side in zip(patches, sides, strict=True)]
    )


def test_quantized_weights_are_within_half_a_step() -> None:
    weights = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) * [1, 2, 3, 0.01, 100, 0]
    whole, scales = quantize(weights.astype(np.float32))
    assert whole.dtype == np.int8
    assert np.abs(whole).max() == 64
    assert (np.abs(whole * scales - weights) <= scales / 2 * 1.001).all()
    assert (whole[:, 5] == 0).all()


def product_graph(weights: np.ndarray, *, turned: bool) -> bytes:
    """A graph of X W + b, with W or with its transpose as torch keeps it."""
    stored = weights.T if turned else weights
    nodes = [helper.make_node("Transpose", ["W"], ["WT"], perm=[1, 0])] if turned else []
    nodes += [helper.make_node("MatMul", ["X", "WT" if turned else "W"], ["XW"])]
    nodes += [helper.make_node("Add", ["XW", "b"], ["Y"])]
    bias = np.arange(weights.shape[1], dtype=np.float32)
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", weights.shape[0]])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["n", weights.shape[1]])],
        [numpy_helper.from_array(np.ascontiguousarray(stored), "W"), numpy_helper.from_array(bias, "b")],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.mark.parametrize("turned", [False, True])
def test_a_graph_multiplies_whole_numbers(turned: bool) -> None:
    """Spelled out in NumPy: both sides rounded, multiplied in integers, scaled."""
    rng = np.random.default_rng(1)
    weights, X = (rng.normal(size=shape).astype(np.float32) for shape in ((32, 5), (7, 32)))
    content = quantize_graph(product_graph(weights, turned=turned))
    kinds = [node.op_type for node in onnx.load_model_from_string(content).graph.node]
    assert "MatMul" not in kinds
    assert "Transpose" not in kinds
    (found,) = open_session(content).run(None, {"X": X})
    low, high = min(X.min(), 0), max(X.max(), 0)
    step = (high - low) / 255
    zero = np.rint(-low / step)
    rounded = np.clip(np.rint(X / step) + zero, 0, 255) - zero
    whole, scales = quantize(weights)
    expected = (rounded.astype(np.int64) @ whole.astype(np.int64)) * (step * scales) + np.arange(5)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("adapted", [False, True])
def test_the_stored_8_bit_graphs_are_those_of_the_stored_float_ones(adapted: bool) -> None:
    whole, rounded = (graph_file(adapted=adapted, int8=int8).read_bytes() for int8 in (False, True))
    assert quantize_graph(whole) == rounded, "run python -m fiveshot.backbones.export"
    arrays = read_weights(EMBEDDED_FILE)
    given = quantized_weights(arrays, [name for name, array in arrays.items() if array.ndim == 2])
    named = {
        tensor.name: tuple(tensor.dims)
        for tensor in onnx.load_model_from_string(rounded).graph.initializer
        if tensor.data_location == TensorProto.EXTERNAL
    }
    assert named == {name: array.shape for name, array in given.items()}
    assert sum(array.nbytes for array in given.values()) < 0.55 * sum(array.nbytes for array in arrays.values())


@pytest.mark.parametrize("adapter", [None, "cub200-big"])
def test_features_in_8_bits_are_near_those_in_float(adapter: str | None, pixels: np.ndarray) -> None:
    spec = BackboneSpec(adapter=adapter, device="cpu")
    whole, rounded = load_embedder(spec), load_embedder(spec.replace(runtime="int8"))
    features, near = whole.features(pixels), rounded.features(pixels)
    assert centered_cosines(near, features).min() > 0.99
    assert not np.array_equal(near, features)
    assert rounded.runtime.endswith(", int8")


def test_features_in_8_bits_do_not_depend_on_the_other_photos(pixels: np.ndarray) -> None:
    embedder = load_embedder(BackboneSpec(device="cpu", runtime="int8"))
    together = embedder.features(pixels)
    bright = np.concatenate([pixels[:1], np.full_like(pixels[:1], 255)])
    np.testing.assert_array_equal(embedder.features(bright)[:1], together[:1])


def test_8_bits_have_a_fingerprint_of_their_own_and_fit_the_same_model() -> None:
    spec = BackboneSpec(device="cpu")
    whole, rounded = load_embedder(spec), load_embedder(spec.replace(runtime="int8"))
    assert rounded.identity() == whole.identity() | {"precision": "int8"}
    assert rounded.fingerprint != whole.fingerprint
    assert rounded.model_fingerprint == whole.model_fingerprint == whole.fingerprint


def test_a_network_of_timm_runs_in_8_bits() -> None:
    vit = timm.create_model("test_vit", num_classes=0).eval().requires_grad_(False)
    backbone = Backbone(vit, "test_vit", Preprocessing(size=160, resize=160))
    pixels = np.random.default_rng(0).integers(0, 256, (5, 1, 3, 160, 160), np.uint8)
    whole, rounded = (torch_embedder(backbone, BackboneSpec(runtime=name)) for name in ("torch", "int8"))
    assert rounded.runtime.startswith("ONNX Runtime ")
    assert rounded.identity()["precision"] == "int8"
    assert centered_cosines(rounded.features(pixels), whole.features(pixels)).min() > 0.9

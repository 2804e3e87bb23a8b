"""The embedded network on ONNX Runtime against timm's network in torch and the weights before rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import timm
import torch
from PIL import Image
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors

from fiveshot.backbones import (
    BackboneSpec,
    Embedder,
    NotFiniteError,
    adapter_path,
    adapters,
    attach_adapters,
    embedded_adapters,
    load_backbone,
    load_embedder,
    read_adapter,
    save_adapter,
)
from fiveshot.backbones.embedded import ADAPTER_WIDTHS, EMBEDDED_FILE, graph_file, open_session, read_weights
from fiveshot.backbones.export import embedded_graph
from fiveshot.errors import InputError, StorageError

CPU = BackboneSpec(device="cpu")


def timms_network(weights: Path = EMBEDDED_FILE) -> torch.nn.Module:
    """timm's TinyViT with the tensors of a file: nothing of ours."""
    network = timm.create_model("tiny_vit_5m_224", num_classes=0).eval()
    missing, unexpected = network.load_state_dict(load_tensors(weights), strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    return network


def in_torch(network: torch.nn.Module, pixels: np.ndarray) -> np.ndarray:
    """The mean feature over the views of each photo, normalized by ImageNet's statistics."""
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    views = torch.from_numpy(pixels)
    with torch.no_grad():
        features = network(((views / 255 - mean) / std).flatten(0, 1))
    return features.reshape(*views.shape[:2], -1).mean(dim=1).numpy()


def seen(embedder: Embedder, pictures: list[Image.Image]) -> np.ndarray:
    return np.stack([embedder.pixels(picture) for picture in pictures])


def assert_alike(found: np.ndarray, expected: np.ndarray, relative: float = 1e-3) -> None:
    lengths = np.linalg.norm(expected, axis=1)
    assert (np.linalg.norm(found - expected, axis=1) < relative * lengths).all()


def with_active_adapters(bottleneck: int, scale: float, path: Path) -> Path:
    """An adapter for the embedded network, none of whose tensors is zero."""
    backbone = load_backbone(CPU)
    attach_adapters(backbone.model, bottleneck=bottleneck, scale=scale, seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for adapter in adapters(backbone.model):
            for tensor in (adapter.up.weight, adapter.up.bias, adapter.down.bias):
                tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
    save_adapter(path, backbone)
    return path


def test_features_of_drawings_are_those_of_timms_network(drawings: list[Image.Image]) -> None:
    embedder = load_embedder(CPU)
    assert embedder.runtime.startswith("ONNX Runtime ")
    pixels = seen(embedder, drawings)
    assert_alike(embedder.features(pixels), in_torch(timms_network(), pixels))


@pytest.mark.real
def test_features_of_photographs_are_those_of_timms_network(photographs: list[Image.Image]) -> None:
    embedder = load_embedder(CPU)
    pixels = seen(embedder, photographs)
    assert_alike(embedder.features(pixels), in_torch(timms_network(), pixels))


@pytest.mark.real
def test_half_precision_keeps_the_direction_of_the_features(
    photographs: list[Image.Image], float32_weights: Path
) -> None:
    embedder = load_embedder(CPU)
    pixels = seen(embedder, photographs)
    rounded, exact = embedder.features(pixels), in_torch(timms_network(float32_weights), pixels)
    cosines = (rounded * exact).sum(axis=1) / np.linalg.norm(rounded, axis=1) / np.linalg.norm(exact, axis=1)
    assert cosines.min() > 0.9999


@pytest.mark.real
def test_stored_weights_are_the_float32_weights_rounded(float32_weights: Path) -> None:
    exact, stored = load_file(float32_weights), load_file(EMBEDDED_FILE)
    assert stored.keys() == {name for name in exact if not name.endswith("num_batches_tracked")}
    for name, array in stored.items():
        np.testing.assert_array_equal(array, exact[name].astype(np.float16))


@pytest.mark.parametrize(("bottleneck", "scale"), [(1, 1.0), (64, 0.1), (200, 2.0)])
def test_an_adapter_of_any_width_gives_what_it_gives_in_torch(
    bottleneck: int, scale: float, drawings: list[Image.Image], tmp_path: Path
) -> None:
    file = with_active_adapters(bottleneck, scale, tmp_path / "mine.safetensors")
    adapted, plain = load_embedder(CPU.replace(adapter=file)), load_embedder(CPU)
    pixels = seen(plain, drawings)
    found = adapted.features(pixels)
    assert_alike(found, in_torch(load_backbone(CPU.replace(adapter=file)).model, pixels))
    assert np.linalg.norm(found - plain.features(pixels)) > 0.01 * np.linalg.norm(found)  # it does something


@pytest.mark.parametrize("name", embedded_adapters())
def test_every_embedded_adapter_gives_what_it_gives_in_torch(name: str, drawings: list[Image.Image]) -> None:
    embedder, backbone = load_embedder(CPU.replace(adapter=name)), load_backbone(CPU.replace(adapter=name))
    pixels = seen(embedder, drawings)
    assert_alike(embedder.features(pixels), in_torch(backbone.model, pixels))
    assert embedder.identity()["adapter_hash"] == backbone.adapter_hash
    assert sum(tensor.size for tensor in read_adapter(adapter_path(name)).tensors.values()) == 240_064


@pytest.mark.parametrize("views", [1, 2, 4])
def test_features_are_the_mean_over_the_views(views: int, drawings: list[Image.Image]) -> None:
    embedder, one = (load_embedder(CPU.replace(views=n)) for n in (views, 1))
    pixels = embedder.pixels(drawings[0])
    assert pixels.shape == (views, 3, 224, 224)
    each = one.features(pixels[:, None])  # every view as if it were a photo
    assert_alike(embedder.features(pixels[None]), each.mean(axis=0, keepdims=True))
    assert (embedder.fingerprint == one.fingerprint) == (views == 1)


@pytest.mark.parametrize("adapted", [False, True])
def test_the_stored_graphs_are_what_the_torch_network_gives(adapted: bool) -> None:
    stored, made = graph_file(adapted=adapted).read_bytes(), embedded_graph(adapted=adapted)
    if onnx.load_model_from_string(stored).producer_version == onnx.load_model_from_string(made).producer_version:
        assert made == stored, "run python -m fiveshot.backbones.export"
    rng = np.random.default_rng(1)
    given = {"images": rng.normal(size=(2, 3, 224, 224)).astype(np.float32)}
    for place, width in ADAPTER_WIDTHS.items() if adapted else ():
        for part, shape in {
            "down.weight": (5, width),
            "down.bias": 5,
            "up.weight": (width, 5),
            "up.bias": width,
        }.items():
            given[f"{place}.adapter.{part}"] = rng.normal(scale=0.02, size=shape).astype(np.float32)
    weights = read_weights(EMBEDDED_FILE)
    found, expected = (open_session(graph, weights).run(None, given)[0] for graph in (stored, made))
    assert_alike(found, expected)


@pytest.mark.parametrize("adapted", [False, True])
def test_the_stored_graphs_name_the_weights_and_hold_none(adapted: bool) -> None:
    graph = onnx.load_model_from_string(graph_file(adapted=adapted).read_bytes()).graph
    named = {t.name: tuple(t.dims) for t in graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL}
    assert named == {name: array.shape for name, array in read_weights(EMBEDDED_FILE).items()}


def test_weights_that_are_not_numbers_are_noticed(tmp_path: Path) -> None:
    state = load_file(EMBEDDED_FILE)
    state["head.norm.bias"] = np.full_like(state["head.norm.bias"], np.nan)
    save_file(state, tmp_path / "nan.safetensors")
    broken = load_embedder(CPU.replace(weights=tmp_path / "nan.safetensors"))
    with pytest.raises(NotFiniteError, match="weights look damaged") as caught:
        broken.features(np.zeros((2, 2, 3, 224, 224), np.uint8))
    assert (caught.value.row, caught.value.code) == (0, "not_finite")


def test_weights_of_another_network_are_refused_with_the_way_out(tiny_file: Path, tmp_path: Path) -> None:
    said = r"does not fit tiny_vit_5m_224\.dist_in22k: .*; give a file with the weights of timm's tiny_vit_5m_224"
    less = load_file(EMBEDDED_FILE)
    del less["head.norm.bias"]
    save_file(less, tmp_path / "less.safetensors")
    for file in (tiny_file, tmp_path / "less.safetensors"):
        with pytest.raises(InputError, match=said):
            load_embedder(CPU.replace(weights=file)).features(np.zeros((1, 2, 3, 224, 224), np.uint8))
        with pytest.raises(InputError, match=said):
            load_backbone(CPU.replace(weights=file))


def test_a_truncated_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    data = EMBEDDED_FILE.read_bytes()
    for share in (0.0, 0.001, 0.5, 0.999):
        (tmp_path / "cut.safetensors").write_bytes(data[: int(share * len(data))])
        with pytest.raises(StorageError, match=r"cut\.safetensors is not .* truncated .*; get a fresh copy of it"):
            _ = load_embedder(CPU.replace(weights=tmp_path / "cut.safetensors")).fingerprint


def test_an_adapter_of_another_network_is_refused_with_the_way_out(tiny_file: Path, tmp_path: Path) -> None:
    tiny = load_backbone(BackboneSpec("test_vit.r160_in1k", weights=tiny_file, device="cpu"))
    attach_adapters(tiny.model, seed=0)
    save_adapter(tmp_path / "tiny.safetensors", tiny)
    said = r"was trained on test_vit\.r160_in1k .* does not fit tiny_vit_5m_224.*; .* or tune an adapter"
    with pytest.raises(InputError, match=said) as caught:
        load_embedder(CPU.replace(adapter=tmp_path / "tiny.safetensors"))
    assert caught.value.code == "other_backbone"


def test_an_adapter_of_other_weights_is_refused(tmp_path: Path) -> None:
    state = load_file(EMBEDDED_FILE)
    state["head.norm.bias"] = state["head.norm.bias"] + np.float16(1)
    save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="load it with its own backbone") as caught:
        load_embedder(CPU.replace(weights=tmp_path / "other.safetensors", adapter="cub200-big"))
    assert caught.value.code == "other_backbone"

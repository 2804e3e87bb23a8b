"""A backbone in one file computes the same features, and says what it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from tiny_vit import TINY, write_weights

from fiveshot.backbones import (
    EMBEDDED,
    BackboneSpec,
    Preprocessing,
    Readout,
    adapter_path,
    adapters,
    attach_adapters,
    backbone_file,
    describe_file,
    export_backbone,
    load_backbone,
    load_embedder,
    read_adapter,
    save_adapter,
    torch_embedder,
)
from fiveshot.errors import FiveshotError, InputError, StorageError


@pytest.fixture
def adapter(tiny, tmp_path):
    """The file of an adapter for the tiny network that changes its features much."""
    attach_adapters(tiny.model, bottleneck=4, scale=0.3, seed=0)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for one in adapters(tiny.model):
            one.up.weight.copy_(torch.randn(one.up.weight.shape, generator=generator))
    folder = tmp_path / "adapters"
    folder.mkdir()
    save_adapter(folder / "birds.safetensors", tiny)
    return folder / "birds.safetensors"


def features_of_graph(file: Path, images: torch.Tensor) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (found,) = session.run(["features"], {"images": images.numpy()})
    return found


def test_a_graph_holds_the_adapter_and_computes_what_torch_computes(tiny_file, adapter, images, tmp_path):
    spec = BackboneSpec(TINY, weights=tiny_file, adapter=adapter)
    made = export_backbone(spec, tmp_path / "tiny.onnx")
    torch_one = load_backbone(spec)
    wanted = torch_one.features(images).numpy()
    for count in (1, 3):
        found = features_of_graph(tmp_path / "tiny.onnx", images[:count])
        np.testing.assert_allclose(found, wanted[:count], atol=1e-3 * np.abs(wanted).max())
    assert made == describe_file(tmp_path / "tiny.onnx")
    assert (made.kind, made.backbone, made.width, made.precision) == ("onnx", TINY, 64, "float32")
    assert (made.weights_hash, made.adapter) == (torch_one.weights_hash, torch_one.adapter_hash)
    assert made.preprocessing == torch_one.preprocessing
    assert made.bytes == (tmp_path / "tiny.onnx").stat().st_size
    onnx.checker.check_model(str(tmp_path / "tiny.onnx"))


def test_the_metadata_of_a_graph_can_be_read_by_any_program(tiny_file, tmp_path):
    spec = BackboneSpec(TINY, weights=tiny_file, preprocessing=Preprocessing(160, 170, views=4), tokens="cls+mean")
    export_backbone(spec, tmp_path / "tiny.onnx")
    stored = {one.key: one.value for one in onnx.load(tmp_path / "tiny.onnx").metadata_props}
    assert stored["fiveshot.backbone"] == TINY
    assert Preprocessing.from_json(json.loads(stored["fiveshot.preprocessing"])) == spec.preprocessing
    assert json.loads(stored["fiveshot.readout"]) == {"tokens": "cls+mean", "last_blocks": 1}
    assert stored["fiveshot.weights_hash"] == load_backbone(spec).weights_hash
    assert {"fiveshot.adapter", "fiveshot.license"}.isdisjoint(stored)  # none, and not known
    found = describe_file(tmp_path / "tiny.onnx")
    assert (found.readout, found.width, found.adapter, found.license) == (Readout("cls+mean"), 128, None, "")


def test_a_weights_file_brings_its_adapter_along(tiny_file, adapter, images, tmp_path):
    spec = BackboneSpec(TINY, weights=tiny_file, adapter=adapter, device="cpu")
    file = tmp_path / "tiny.safetensors"
    made = export_backbone(spec, file)
    again, wanted = load_backbone(BackboneSpec(TINY, weights=file, device="cpu")), load_backbone(spec)
    assert torch.equal(again.features(images), wanted.features(images))
    assert torch_embedder(again).fingerprint == torch_embedder(wanted).fingerprint
    assert (made.kind, made.width, made.adapter) == ("weights", 64, wanted.adapter_hash)
    # The same adapter may be named as well, another one may not.
    assert load_backbone(spec.replace(weights=file)).adapter_hash == wanted.adapter_hash
    other = load_backbone(BackboneSpec(TINY, weights=tiny_file))
    save_adapter(
        tmp_path / "other.safetensors",
        type(other)(attach_adapters(other.model, bottleneck=2, seed=1), TINY, other.preprocessing),
    )
    with pytest.raises(InputError, match=r"already holds an adapter, and .*other.safetensors is another one"):
        load_backbone(spec.replace(weights=file, adapter=tmp_path / "other.safetensors"))


def test_a_weights_file_of_the_embedded_network_needs_no_torch(tmp_path):
    spec = BackboneSpec(EMBEDDED, adapter="cub200-big", device="cpu")
    export_backbone(spec, tmp_path / "birds.safetensors")
    plain = load_embedder(BackboneSpec(EMBEDDED, weights=tmp_path / "birds.safetensors", device="cpu"))
    assert "ONNX Runtime" in plain.runtime
    assert plain.fingerprint == load_embedder(spec).fingerprint
    assert plain.network.adapter_hash == read_adapter(adapter_path("cub200-big")).hash


def test_half_precision_halves_a_file_and_hardly_changes_features(tiny_file, images, tmp_path):
    spec = BackboneSpec(TINY, weights=tiny_file)
    whole = export_backbone(spec, tmp_path / "whole.onnx")
    half = export_backbone(spec, tmp_path / "half.onnx", half=True)
    assert half.precision == "float16"
    assert half.weights_hash == whole.weights_hash
    assert half.bytes < 0.6 * whole.bytes
    a, b = (features_of_graph(tmp_path / name, images) for name in ("whole.onnx", "half.onnx"))
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert 0.9999 < cosines.min() < 1


def test_weights_that_half_precision_cannot_hold_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    state = load_file(write_weights(tmp_path / "odd.safetensors"))
    state["blocks.3.mlp.fc2.weight"] *= 1e-9  # half precision makes zero of these
    state["blocks.3.mlp.fc1.weight"] *= 1e9
    save_file(state, tmp_path / "odd.safetensors")
    with pytest.raises(InputError, match=r"in half precision the features of .* change too much .*nothing was"):
        export_backbone(BackboneSpec(TINY, weights=tmp_path / "odd.safetensors"), tmp_path / "o.onnx", half=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.safetensors"]


def test_a_file_with_other_features_is_not_written(tiny_file, tmp_path, monkeypatch):
    monkeypatch.setattr(backbone_file, "TOLERANCE", -1.0)  # nothing is equal enough
    for name in ("tiny.onnx", "tiny.safetensors"):
        with pytest.raises(InputError, match=r"other features of .* than torch .*nothing was written"):
            export_backbone(BackboneSpec(TINY, weights=tiny_file), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_only_an_earlier_export_is_replaced(tiny_file, tmp_path):
    spec, target = BackboneSpec(TINY, weights=tiny_file), tmp_path / "tiny.onnx"
    target.write_bytes(b"of somebody else")
    with pytest.raises(StorageError, match=r"exists already and is not an earlier export.*--force"):
        export_backbone(spec, target)
    assert target.read_bytes() == b"of somebody else"
    export_backbone(spec, target, overwrite=True)
    export_backbone(spec.replace(tokens="mean"), target)
    assert describe_file(target).readout == Readout("mean")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.onnx"]


@pytest.mark.parametrize(
    ("name", "changes", "half", "error", "message"),
    [
        ("tiny.bin", {}, False, InputError, r"ends neither in \.onnx nor in \.safetensors"),
        ("nowhere/tiny.onnx", {}, False, StorageError, "the folder .*nowhere does not exist; create it first"),
        ("tiny.safetensors", {}, True, InputError, "only ONNX files can have rounded weights"),
        (
            "tiny.safetensors",
            {"tokens": "mean"},
            False,
            InputError,
            "will hold weights, .* write an .onnx file",
        ),
        ("tiny.onnx", {"name": "other.onnx"}, False, InputError, "is an ONNX bundle, which runs without torch"),
        ("tiny.onnx", {"name": "test_vut"}, False, InputError, "no backbone 'test_vut'; nearest: "),
        ("tiny.onnx", {"adapter": "cub200-big"}, False, InputError, "was trained on tiny_vit_5m.* does not fit"),
        ("tiny.onnx", {"weights": "none.safetensors"}, False, StorageError, "no such file: none.safetensors"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    name, changes, half, error, message, tiny_file, tmp_path
):
    spec = BackboneSpec(TINY, weights=tiny_file).replace(**changes)
    with pytest.raises(error, match=message):
        export_backbone(spec, tmp_path / name, half=half)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_described_without_torch(tiny_file, adapter, tmp_path):
    spec = BackboneSpec(TINY, weights=tiny_file, adapter=adapter)
    for name in ("tiny.onnx", "tiny.safetensors"):
        export_backbone(spec, tmp_path / name)
    code = (
        "import sys\nfrom fiveshot.backbones import describe_file\n"
        "print([describe_file(file).kind for file in sys.argv[1:]], 'torch' in sys.modules)"
    )
    files = [str(tmp_path / "tiny.onnx"), str(tmp_path / "tiny.safetensors"), str(adapter)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *files], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['onnx', 'weights', 'adapter'] False\n"


def test_a_graph_is_a_backbone_by_its_file_name(tiny_file, adapter, drawings, tmp_path):
    """What was exported where torch is gives the same features where it is not."""
    spec = BackboneSpec(TINY, weights=tiny_file, adapter=adapter, runtime="torch", device="cpu")
    export_backbone(spec, tmp_path / "tiny.onnx")
    ours, wanted = (load_embedder(one) for one in (BackboneSpec(str(tmp_path / "tiny.onnx")), spec))
    assert ours.preprocessing == wanted.preprocessing
    pixels = np.stack([wanted.pixels(drawing) for drawing in drawings])
    expected = wanted.features(pixels)
    np.testing.assert_allclose(ours.features(pixels), expected, atol=1e-3 * np.abs(expected).max())


def test_a_folder_of_another_program_is_described(tiny_file, tmp_path):
    export_backbone(BackboneSpec(TINY, weights=tiny_file), tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx")
    del graph.metadata_props[:]
    onnx.save(graph, tmp_path / "model.onnx")
    (tmp_path / "config.json").write_text('{"model_type": "vit", "license": "mit"}')
    processor = {"size": {"height": 160, "width": 160}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    text = json.dumps(processor | {"image_processor_type": "ViTImageProcessor", "resample": 2})
    (tmp_path / "preprocessor_config.json").write_text(text)
    found = describe_file(tmp_path)
    assert (found.kind, found.backbone, found.width, found.license) == ("bundle", "vit.onnx", 64, "mit")
    assert (found.reads, found.bytes) == ("features", (tmp_path / "model.onnx").stat().st_size)
    assert found.preprocessing.size == 160
    assert describe_file(tmp_path / "model.onnx") == found
    graph.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "width"
    onnx.save(graph, tmp_path / "model.onnx")
    assert describe_file(tmp_path).width == 64
    with pytest.raises(StorageError, match="exists"):
        export_backbone(BackboneSpec(TINY, weights=tiny_file), tmp_path / "model.onnx")


def test_damaged_and_other_files_are_not_described(tiny_file, tmp_path):
    spec = BackboneSpec(TINY, weights=tiny_file)
    for name in ("cut.onnx", "cut.safetensors"):
        export_backbone(spec, tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(FiveshotError, match=rf"{name} is .* or it is truncated.*get a fresh copy"):
            describe_file(tmp_path / name)
    with pytest.raises(StorageError, match="was written by another program"):
        describe_file(tiny_file)
    export_backbone(spec, tmp_path / "bare.onnx")
    bare = onnx.load(tmp_path / "bare.onnx")
    del bare.metadata_props[:]
    onnx.save(bare, tmp_path / "bare.onnx")
    with pytest.raises(StorageError, match="has no preprocessor_config"):
        describe_file(tmp_path / "bare.onnx")
    onnx.helper.set_model_props(bare, {"fiveshot.backbone": "x", "fiveshot.preprocessing": "{"})
    onnx.save(bare, tmp_path / "bare.onnx")
    with pytest.raises(InputError, match="its preprocessing cannot be read"):
        describe_file(tmp_path / "bare.onnx")
    prepared = json.dumps(Preprocessing(size=160, resize=160).to_json())
    onnx.helper.set_model_props(bare, {"fiveshot.backbone": "x", "fiveshot.preprocessing": prepared})
    onnx.save(bare, tmp_path / "bare.onnx")
    with pytest.raises(StorageError, match="lacks some of the metadata"):
        describe_file(tmp_path / "bare.onnx")
    with pytest.raises(StorageError, match="give a file that 'fiveshot backbone export' wrote"):
        describe_file(tmp_path / "none.onnx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StorageError, match="empty has no ONNX file"):
        describe_file(tmp_path / "empty")
    with safe_open(tiny_file, framework="np") as file:  # left as it was
        assert file.keys()

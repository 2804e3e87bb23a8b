from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_vit import TINY

from fiveshot.backbones import (
    BackboneSpec,
    adapters,
    attach_adapters,
    load_adapter,
    load_backbone,
    save_adapter,
    torch_embedder,
)
from fiveshot.errors import InputError, StorageError


@pytest.fixture
def tuned(tiny):
    """The tiny backbone with adapters that do something."""
    attach_adapters(tiny.model, bottleneck=4, scale=0.3, dropout=0.2, seed=0)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for adapter in adapters(tiny.model):
            adapter.up.weight.copy_(torch.randn(adapter.up.weight.shape, generator=generator))
    return tiny


def test_a_saved_adapter_gives_the_same_features_on_a_fresh_backbone(tuned, tiny_file, tmp_path, images):
    save_adapter(tmp_path / "a.safetensors", tuned, meta={"epochs": 3})
    loaded = load_backbone(BackboneSpec(TINY, weights=tiny_file, adapter=tmp_path / "a.safetensors"))
    plain = load_backbone(BackboneSpec(TINY, weights=tiny_file))
    assert torch.equal(loaded.features(images), tuned.features(images))
    assert not torch.allclose(loaded.features(images), plain.features(images))
    assert loaded.weights_hash == plain.weights_hash == tuned.weights_hash
    assert loaded.adapter_hash == tuned.adapter_hash is not None
    assert plain.adapter_hash is None
    assert torch_embedder(loaded).fingerprint != torch_embedder(plain).fingerprint
    assert not any(p.requires_grad or p.grad is not None for p in loaded.model.parameters())
    assert not loaded.model.training


def test_the_file_holds_the_adapters_alone(tuned, tmp_path):
    path = tmp_path / "a.safetensors"
    save_adapter(path, tuned, meta={"epochs": 3})
    assert set(load_file(path)) == {
        f"blocks.{i}.adapter.{part}.{kind}"
        for i in range(6)
        for part in ("down", "up")
        for kind in ("weight", "bias")
    }
    parameters = 6 * (2 * 64 * 4 + 64 + 4)
    assert path.stat().st_size < 4 * parameters + 5000
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["fiveshot"])
    assert header["kind"] == "adapter"
    assert header["meta"]["backbone"] == TINY
    assert header["meta"]["weights_hash"] == tuned.weights_hash
    assert header["meta"]["training"] == {"epochs": 3}


def test_metadata_comes_back(tuned, tiny_file, tmp_path):
    save_adapter(tmp_path / "a.safetensors", tuned, meta={"epochs": 3})
    fresh = load_backbone(BackboneSpec(TINY, weights=tiny_file))
    meta = load_adapter(tmp_path / "a.safetensors", fresh)
    assert (meta["bottleneck"], meta["scale"], meta["dropout"]) == (4, 0.3, 0.2)
    assert adapters(fresh.model)[0].scale == 0.3


def test_another_backbone_is_refused_with_both_names(tuned, tmp_path):
    save_adapter(tmp_path / "a.safetensors", tuned)
    embedded = load_backbone()
    said = r"trained on test_vit\.r160_in1k .* tiny_vit_5m_224\.dist_in22k .*; load it with its own backbone"
    with pytest.raises(InputError, match=said):
        load_adapter(tmp_path / "a.safetensors", embedded)
    assert not adapters(embedded.model)


def test_one_changed_weight_is_another_backbone(tuned, tiny_file, tmp_path):
    save_adapter(tmp_path / "a.safetensors", tuned)
    state = load_file(tiny_file)
    state["blocks.2.mlp.fc1.weight"][0, 0] += 1e-3
    save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="does not fit"):
        load_backbone(
            BackboneSpec(TINY, weights=tmp_path / "other.safetensors", adapter=tmp_path / "a.safetensors")
        )


def test_damaged_and_missing_files_are_refused(tuned, tiny_file, tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(StorageError, match="no such file"):
        load_backbone(BackboneSpec(TINY, weights=tiny_file, adapter=path))
    save_adapter(path, tuned)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StorageError, match="truncated"):
        load_backbone(BackboneSpec(TINY, weights=tiny_file, adapter=path))
    with pytest.raises(StorageError, match="written by another program"):
        load_backbone(BackboneSpec(TINY, weights=tiny_file, adapter=tiny_file))


def test_a_file_that_contradicts_its_metadata_leaves_the_backbone_alone(tuned, tiny_file, tmp_path):
    path = tmp_path / "a.safetensors"
    save_adapter(path, tuned)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    del tensors["blocks.5.adapter.up.bias"]
    save_file(tensors, path, metadata=metadata)
    fresh = load_backbone(BackboneSpec(TINY, weights=tiny_file))
    with pytest.raises(StorageError, match="does not hold the adapters"):
        load_adapter(path, fresh)
    assert not adapters(fresh.model)


def test_without_adapters_there_is_nothing_to_save(tiny, tmp_path):
    with pytest.raises(InputError, match="no adapters to save"):
        save_adapter(tmp_path / "a.safetensors", tiny)
    assert not list(tmp_path.iterdir())

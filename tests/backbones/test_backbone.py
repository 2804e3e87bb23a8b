from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import timm
import torch
from tiny_vit import TINY

from fiveshot.backbones import (
    Backbone,
    BackboneSpec,
    Preprocessing,
    attach_adapters,
    load_backbone,
    torch_embedder,
)
from fiveshot.backbones.embedded import EMBEDDED_FILE
from fiveshot.errors import InputError


@pytest.fixture(scope="module")
def embedded() -> Backbone:
    return load_backbone()


def test_the_embedded_network_is_one_of_timms(embedded):
    assert type(embedded.model) is timm.models.TinyVit
    assert {p.dtype for p in embedded.model.parameters()} == {torch.float32}
    assert embedded.model.get_classifier().__class__ is torch.nn.Identity


def test_the_model_card_travels_with_the_weights():
    assert (EMBEDDED_FILE.parent / "MODEL_CARD.md").is_file()


def test_backbones_are_frozen(embedded):
    assert not embedded.model.training
    assert not any(p.requires_grad for p in embedded.model.parameters())


def test_the_hash_is_over_names_types_shapes_and_bytes(tiny):
    digest = hashlib.sha256()
    for name, tensor in sorted(tiny.model.state_dict().items()):
        digest.update(f"{name} torch.float32 {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    assert tiny.weights_hash == digest.hexdigest()


def test_the_hash_is_computed_once_and_adapters_do_not_enter_it(tiny_file):
    backbone, adapted = (load_backbone(BackboneSpec("test_vit.r160_in1k", weights=tiny_file)) for _ in range(2))
    attach_adapters(adapted.model, seed=0)
    assert adapted.weights_hash == backbone.weights_hash
    assert backbone.weights_hash is backbone.weights_hash


def test_the_fingerprint_follows_what_decides_the_features(tiny):
    same = replace(tiny.preprocessing, name="other", train_scale=(0.5, 1.0))
    other = replace(tiny.preprocessing, interpolation="bilinear")
    prints = [
        torch_embedder(replace(tiny, preprocessing=preprocessing or tiny.preprocessing)).fingerprint
        for preprocessing in (None, same, other)
    ]
    assert prints[0] == prints[1] != prints[2]


def test_features_can_train_a_classifier_afterwards(tiny, images):
    features = tiny.features(images)
    classifier = torch.nn.Linear(tiny.width, 2)
    classifier(features).sum().backward()  # inference-mode tensors would refuse this
    assert not features.requires_grad
    assert classifier.weight.grad is not None


def test_gradients_reach_adapters_unless_they_are_switched_off(tiny, images):
    attach_adapters(tiny.model, seed=0)
    features = tiny.features(images)
    features.sum().backward()
    assert tiny.model.blocks[0].adapter.up.weight.grad is not None
    with torch.no_grad():
        quiet = tiny.features(images)
    assert not quiet.requires_grad
    torch.testing.assert_close(quiet, features.detach())


def test_batching_does_not_matter(embedded):
    images = torch.randn(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    whole = embedded.features(images)
    parts = torch.cat([embedded.features(part) for part in images.split(2)])
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-4)


def test_a_wrong_input_size_is_refused(embedded):
    with pytest.raises(InputError, match="takes 224 px images; preprocessing 'custom' gives 160 px"):
        load_backbone(BackboneSpec(preprocessing=Preprocessing(size=160, resize=160)))


def test_fast_formats_are_for_cuda(tiny_file, images):
    tiny = load_backbone(BackboneSpec(TINY, weights=tiny_file, device="cpu"))
    for precision in ("bf16", "tf32"):
        with pytest.raises(InputError, match="is for CUDA devices; on cpu use 'float32'"):
            tiny.features(images, precision=precision)
    with pytest.raises(InputError, match="did you mean 'bf16'"):
        tiny.features(images, precision="bf17")


def test_unknown_and_absent_devices_are_named():
    with pytest.raises(InputError, match="no device 'gpu'"):
        load_backbone(BackboneSpec(device="gpu"))
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA device"):
            load_backbone(BackboneSpec(device="cuda"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_fast_formats_stay_close_on_cuda():
    images = torch.randn(8, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    reference = load_backbone(BackboneSpec(device="cpu")).features(images)
    backbone = load_backbone(BackboneSpec(device="cuda"))
    before = torch.get_float32_matmul_precision()
    for precision in ("float32", "tf32", "bf16"):
        features = backbone.features(images, precision=precision)
        assert features.dtype == torch.float32
        assert torch.cosine_similarity(features.cpu(), reference).min() > 0.99
    assert torch.get_float32_matmul_precision() == before

from __future__ import annotations

import pytest
import timm
import torch
from tiny_vit import TINY

from fiveshot.backbones import Backbone, BackboneSpec, Preprocessing, Readout, load_backbone, torch_embedder
from fiveshot.errors import InputError

SMALL = Preprocessing(size=160, resize=160)


def with_readout(backbone: Backbone, readout: Readout) -> Backbone:
    return Backbone(backbone.model, backbone.name, backbone.preprocessing, readout)


def manual_blocks(vit, images: torch.Tensor) -> list[torch.Tensor]:
    """The final norm of every block's output, by hooks on an ordinary forward pass."""
    outputs: list[torch.Tensor] = []
    hooks = [block.register_forward_hook(lambda _m, _a, out: outputs.append(out)) for block in vit.blocks]
    with torch.no_grad():
        vit.forward_features(images)
        for hook in hooks:
            hook.remove()
        return [vit.norm(out) for out in outputs]


def test_the_own_feature_of_a_vit_is_the_class_token_after_the_final_norm(tiny, images):
    with torch.no_grad():
        expected = tiny.model.forward_features(images)[:, 0]
    torch.testing.assert_close(tiny.features(images), expected)
    assert tiny.width == 64


@pytest.mark.parametrize(
    ("readout", "width"),
    [
        (Readout("mean"), 64),
        (Readout("cls+mean"), 128),
        (Readout("cls", last_blocks=3), 192),
        (Readout("cls+mean", last_blocks=6), 448),
    ],
)
def test_readouts_equal_what_hooks_see(tiny, images, readout, width):
    blocks = manual_blocks(tiny.model, images)
    expected = [] if readout.tokens == "mean" else [out[:, 0] for out in blocks[-readout.last_blocks :]]
    if "mean" in readout.tokens:
        expected.append(blocks[-1][:, 1:].mean(dim=1))
    backbone = with_readout(tiny, readout)
    torch.testing.assert_close(backbone.features(images), torch.cat(expected, dim=1))
    assert backbone.width == width == backbone.features(images).shape[1]


def test_one_forward_pass_gives_them_all(tiny, images):
    calls = []
    tiny.model.patch_embed.register_forward_hook(lambda *_: calls.append(1))
    with_readout(tiny, Readout("cls+mean", last_blocks=4)).features(images)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "name", ["test_resnet", "test_efficientnet", "test_convnext", "test_mambaout", "test_vit2", "test_vit3"]
)
def test_networks_without_class_token_give_their_own_pooled_feature(name, images):
    model = timm.create_model(name, num_classes=0).eval()
    backbone = Backbone(model, name, SMALL)
    with torch.no_grad():
        expected = model(images)
    torch.testing.assert_close(backbone.features(images), expected)
    assert backbone.width == expected.shape[1]
    with pytest.raises(InputError, match=f"the classifier of {name} reads no class token"):
        with_readout(backbone, Readout("cls+mean"))


def test_impossible_readouts_are_refused(tiny):
    with pytest.raises(InputError, match="did you mean 'cls'"):
        Readout("clss")
    with pytest.raises(InputError, match="last_blocks is 0"):
        Readout("cls", last_blocks=0)
    with pytest.raises(InputError, match="concatenates class tokens"):
        Readout("mean", last_blocks=2)
    with pytest.raises(InputError, match="has 6 blocks; last_blocks is 7"):
        with_readout(tiny, Readout("cls", last_blocks=7))


def test_the_readout_is_part_of_the_fingerprint(tiny, tiny_file):
    other = load_backbone(BackboneSpec(TINY, weights=tiny_file, tokens="cls+mean"))
    assert other.weights_hash == tiny.weights_hash
    assert torch_embedder(other).fingerprint != torch_embedder(tiny).fingerprint

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import timm
import torch
from timm.models.vision_transformer import ParallelScalingBlock

from fiveshot.backbones import AdaptedBlock, adapter_state, adapters, attach_adapters, build_embedded
from fiveshot.errors import InputError

VARIANTS = {
    "plain": ("test_vit", {}),
    "layer-scale": ("test_vit2", {}),
    "attention-pooled": ("test_vit3", {}),
    "drop-path": ("test_vit", {"drop_path_rate": 0.3, "init_values": 0.1}),
}


@pytest.fixture(params=VARIANTS)
def vit(request: pytest.FixtureRequest):
    name, options = VARIANTS[request.param]
    torch.manual_seed(0)  # timm draws the weights from the global generator
    return timm.create_model(name, **options).eval()


def train_a_little(vit, images: torch.Tensor) -> None:
    parameters = [p for p in vit.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(parameters, lr=0.5)
    # Not the sum of squares: after the final norm that is constant, and its gradient is rounding.
    direction = torch.randn(vit.num_features, generator=torch.Generator().manual_seed(1))
    vit.train()
    for _ in range(2):  # the first step moves only `up`, because it is zero
        optimiser.zero_grad()
        (vit.forward_features(images) @ direction).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
    vit.eval()


def test_an_untrained_adapter_changes_no_bit(vit, images):
    with torch.no_grad():
        before = vit(images)
        after = attach_adapters(vit, bottleneck=8, seed=0)(images)
    assert torch.equal(before, after)


def test_an_untrained_adapter_changes_no_bit_of_the_embedded_vit():
    vit = build_embedded(num_classes=0).eval()
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(vit(images), attach_adapters(vit, seed=0)(images))


def test_vit_base_trains_exactly_the_papers_number_of_parameters():
    with torch.device("meta"):
        vit = timm.create_model("vit_base_patch16_224")
    attach_adapters(vit, bottleneck=64, seed=0)
    trained = {name: p.numel() for name, p in vit.named_parameters() if p.requires_grad}
    assert sum(trained.values()) == 1_189_632
    assert set(trained) == set(adapter_state(vit))
    assert len(adapters(vit)) == 12


def test_training_moves_every_adapter_and_nothing_else(vit, images):
    attach_adapters(vit, bottleneck=8, seed=0)
    before = copy.deepcopy(vit.state_dict())
    train_a_little(vit, images)
    moved = {name for name, tensor in vit.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == set(adapter_state(vit))


def test_the_adapter_reads_the_residual_stream_before_the_second_norm():
    block = timm.create_model("test_vit2", init_values=0.3).eval().blocks[3]
    vit = attach_adapters(timm.create_model("test_vit2", init_values=0.3).eval(), bottleneck=5, scale=0.7, seed=0)
    adapted = vit.blocks[3]
    adapted.load_state_dict(block.state_dict(), strict=False)
    adapter = adapted.adapter
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    x = torch.randn(2, 7, 64, generator=generator)
    stream = []
    block.norm2.register_forward_pre_hook(lambda _, args: stream.append(args[0]))
    with torch.no_grad():
        plain, out = block(x).double().numpy(), adapted(x).numpy()
    weights = [p.detach().double().numpy() for p in (adapter.down.weight, adapter.down.bias)]
    weights += [p.detach().double().numpy() for p in (adapter.up.weight, adapter.up.bias)]

    def bottleneck(z: np.ndarray) -> np.ndarray:
        return 0.7 * (np.maximum(z @ weights[0].T + weights[1], 0) @ weights[2].T + weights[3])

    read = stream[0].double().numpy()
    np.testing.assert_allclose(out, plain + bottleneck(read), atol=2e-4)
    normed = block.norm2(stream[0]).detach().double().numpy()
    assert np.abs(out - (plain + bottleneck(normed))).max() > 0.1  # what wrapping the MLP would give


def test_initialisation_is_kaiming_uniform_down_and_zero_elsewhere():
    vit = attach_adapters(timm.create_model("test_vit"), bottleneck=64, seed=0)
    down = torch.cat([adapter.down.weight.flatten() for adapter in adapters(vit)])
    bound = 1 / math.sqrt(64)  # sqrt(6 / ((1 + a²) fan_in)) with a = sqrt 5
    assert down.abs().max() <= bound
    assert down.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    for adapter in adapters(vit):
        assert not adapter.down.bias.any()
        assert not adapter.up.weight.any()
        assert not adapter.up.bias.any()


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    vits = [timm.create_model("test_vit") for _ in range(4)]
    before = torch.random.get_rng_state()
    attach_adapters(vits[0], seed=3)
    attach_adapters(vits[1], seed=3)
    attach_adapters(vits[2], seed=4)
    attach_adapters(vits[3], seed=np.random.default_rng(3))
    assert torch.equal(torch.random.get_rng_state(), before)
    first, same, other, drawn = (adapters(vit)[0].down.weight for vit in vits)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert not torch.equal(first, drawn)
    assert not torch.equal(adapters(vits[0])[0].down.weight, adapters(vits[0])[1].down.weight)


def test_batch_norms_of_a_hybrid_stay_frozen_in_training():
    vit = attach_adapters(build_embedded(num_classes=0), bottleneck=8, seed=0)
    for network in (vit, copy.deepcopy(vit)):
        torch.nn.Sequential(network).train()
        statistics = {k: v.clone() for k, v in network.state_dict().items() if "running" in k}
        network.forward_features(torch.randn(1, 3, 224, 224)).sum().backward()
        assert statistics
        assert all(torch.equal(network.state_dict()[k], v) for k, v in statistics.items())
        assert all(adapter.dropout.training for adapter in adapters(network))
    assert vit.train() is vit
    assert not any(module.training for module in vit.eval().modules())


def test_dropout_acts_in_training_only(images):
    vit = attach_adapters(timm.create_model("test_vit"), bottleneck=8, dropout=0.5, seed=0)
    train_a_little(vit, images)
    with torch.no_grad():
        assert torch.equal(vit(images), vit(images))
        vit.train()
        assert not torch.equal(vit(images), vit(images))


def test_timms_own_methods_still_work(images):
    vit = attach_adapters(timm.create_model("test_vit").eval(), bottleneck=8, seed=0)
    train_a_little(vit, images)
    with torch.no_grad():
        final, blocks = vit.forward_intermediates(images, indices=2, output_fmt="NLC")
        assert torch.equal(final, vit.forward_features(images))
        everything = torch.ones(1, 1, final.shape[1], final.shape[1], dtype=torch.bool)
        masked = vit.forward_features(images, attn_mask=everything)
    assert len(blocks) == 2
    torch.testing.assert_close(masked, final)
    vit.reset_classifier(7)
    assert vit(images).shape == (3, 7)
    assert isinstance(vit.blocks[0], AdaptedBlock)


def test_what_is_not_a_plain_vit_is_refused():
    with pytest.raises(InputError, match="ResNet is not a vision transformer"):
        attach_adapters(timm.create_model("test_resnet"), seed=0)
    other = timm.create_model("test_vit", block_fn=ParallelScalingBlock)
    with pytest.raises(InputError, match="type ParallelScalingBlock take no adapter"):
        attach_adapters(other, seed=0)
    vit = attach_adapters(timm.create_model("test_vit"), seed=0)
    with pytest.raises(InputError, match="has adapters already"):
        attach_adapters(vit, seed=0)
    with pytest.raises(InputError, match="bottleneck"):
        attach_adapters(timm.create_model("test_vit"), bottleneck=0, seed=0)

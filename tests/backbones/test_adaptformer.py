from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import timm
import torch
from timm.models.vision_transformer import ParallelScalingBlock

from fiveshot.backbones import AdaptedBlock, adapter_state, adapters, attach_adapters, detach_adapters
from fiveshot.errors import InputError

VARIANTS = {
    "plain": ("test_vit", {}),
    "layer-scale": ("test_vit2", {}),
    "attention-pooled": ("test_vit3", {}),
    "drop-path": ("test_vit", {"drop_path_rate": 0.3, "init_values": 0.1}),
    "tiny-vit": ("tiny_vit_5m_224", {"num_classes": 0}),
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
    for adapter in adapters(vit):
        adapter.train()
    for _ in range(2):  # the first step moves only `up`, because it is zero
        optimiser.zero_grad()
        features = vit.forward_head(vit.forward_features(images), pre_logits=True)
        (features @ direction).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
    vit.eval()


def test_an_untrained_adapter_changes_no_bit(vit, images):
    with torch.no_grad():
        before = vit(images)
        after = attach_adapters(vit, bottleneck=8, seed=0)(images)
    assert torch.equal(before, after)


@pytest.mark.parametrize(
    ("name", "places", "parameters"),
    [("vit_base_patch16_224", 12, 1_189_632), ("tiny_vit_5m_224", 10, 240_064)],  # the first is the paper's
)
def test_adapters_of_64_units_have_a_known_number_of_parameters(name, places, parameters):
    with torch.device("meta"):
        vit = timm.create_model(name)
    attach_adapters(vit, bottleneck=64, seed=0)
    trained = {name: p.numel() for name, p in vit.named_parameters() if p.requires_grad}
    assert sum(trained.values()) == parameters
    assert set(trained) == set(adapter_state(vit))
    assert len(adapters(vit)) == places


def test_attaching_and_detaching_leaves_the_network_as_it_was(vit, images):
    modules, state = dict(vit.named_modules()), copy.deepcopy(vit.state_dict())
    with torch.no_grad():
        before = vit(images)
    attach_adapters(vit, bottleneck=8, seed=0)
    train_a_little(vit, images)
    with torch.no_grad():
        assert not torch.allclose(vit(images), before)
    detach_adapters(vit)
    assert {name: module is modules[name] for name, module in vit.named_modules()} == dict.fromkeys(modules, True)
    assert all(torch.equal(tensor, state[name]) for name, tensor in vit.state_dict().items())
    with torch.no_grad():
        assert torch.equal(vit(images), before)


def test_training_moves_every_adapter_and_nothing_else(vit, images):
    attach_adapters(vit, bottleneck=8, seed=0)
    before = copy.deepcopy(vit.state_dict())
    train_a_little(vit, images)
    moved = {name for name, tensor in vit.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == set(adapter_state(vit))


@pytest.mark.parametrize(
    ("name", "place", "norm", "shape"),
    [
        ("test_vit2", "blocks.3", "norm2", (2, 7, 64)),
        ("tiny_vit_5m_224", "stages.1.blocks.0", "mlp.norm", (2, 7, 7, 128)),
    ],
)
def test_the_adapter_reads_the_residual_stream_before_the_second_norm(name, place, norm, shape):
    """Against the formula in NumPy: the block without adapter, plus the bottleneck of what its norm reads."""
    torch.manual_seed(0)
    plain = timm.create_model(name, num_classes=0).eval()
    vit = attach_adapters(copy.deepcopy(plain), bottleneck=5, scale=0.7, seed=0)
    block, adapted = plain.get_submodule(place), vit.get_submodule(place)
    generator = torch.Generator().manual_seed(1)
    (adapter,) = adapters(adapted)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    x = torch.randn(shape, generator=generator)
    stream = []
    block.get_submodule(norm).register_forward_pre_hook(lambda _, args: stream.append(args[0]))
    with torch.no_grad():
        out, expected = adapted(x).double().numpy(), block(x).double().numpy()
    down, down_bias, up, up_bias = (
        p.detach().double().numpy()
        for p in (adapter.down.weight, adapter.down.bias, adapter.up.weight, adapter.up.bias)
    )

    def bottleneck(z: torch.Tensor) -> np.ndarray:
        hidden = np.maximum(z.detach().double().numpy() @ down.T + down_bias, 0)
        return (0.7 * (hidden @ up.T + up_bias)).reshape(shape)

    np.testing.assert_allclose(out, expected + bottleneck(stream[0]), atol=2e-4)
    normed = block.get_submodule(norm)(stream[0])
    assert np.abs(out - (expected + bottleneck(normed))).max() > 0.1  # what an adapter behind the norm would give


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


def test_dropout_acts_in_training_only(images):
    vit = attach_adapters(timm.create_model("test_vit"), bottleneck=8, dropout=0.5, seed=0)
    train_a_little(vit, images)
    with torch.no_grad():
        assert torch.equal(vit(images), vit(images))
        for adapter in adapters(vit):
            adapter.train()
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


def test_networks_that_take_no_adapters_are_refused():
    with pytest.raises(InputError, match=r"ResNet cannot have adapters; .* tiny_vit_\*"):
        attach_adapters(timm.create_model("test_resnet"), seed=0)
    other = timm.create_model("test_vit", block_fn=ParallelScalingBlock)
    with pytest.raises(InputError, match="type ParallelScalingBlock cannot have adapters"):
        attach_adapters(other, seed=0)
    vit = attach_adapters(timm.create_model("test_vit"), seed=0)
    with pytest.raises(InputError, match="already has adapters"):
        attach_adapters(vit, seed=0)
    with pytest.raises(InputError, match="bottleneck"):
        attach_adapters(timm.create_model("test_vit"), bottleneck=0, seed=0)

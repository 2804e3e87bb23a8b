"""A ViT arranged for a GPU gives the features and the gradients of the ViT itself: tried here on the CPU."""

from __future__ import annotations

import pytest
import torch

from fiveshot.backbones import Readout, adapters, attach_adapters
from fiveshot.backbones.backbone import read_features
from fiveshot.backbones.gpu import FirstTokenBlock, PatchProduct, RecordedPass, filled, gelu_by_sigmoid, quick_vit
from fiveshot.backbones.spec import OWN

timm = pytest.importorskip("timm")
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def images(side: int, n: int = 3) -> torch.Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(0))


def drawn(model: torch.nn.Module) -> torch.nn.Module:
    """Return a network in which nothing is zero or one by birth, not even biases and scales."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("test_vit", {}),
        ("test_vit", {"qkv_bias": False, "qk_norm": True}),
        ("test_vit2", {}),
        ("test_vit", {"global_pool": "avg", "fc_norm": False}),
    ],
)
def test_the_features_are_those_of_the_network(name: str, options: dict[str, object]) -> None:
    model = drawn(timm.create_model(name, num_classes=0, **options))
    given = images(model.patch_embed.img_size[0])
    quick = quick_vit(model, OWN, dtype=torch.float32)
    torch.testing.assert_close(read_features(quick, given, OWN), read_features(model, given, OWN))
    assert isinstance(quick.patch_embed.proj, PatchProduct)
    assert isinstance(quick.blocks[-1], FirstTokenBlock) == (model.global_pool == "token")


def test_other_tokens_are_there_where_they_are_read() -> None:
    model = drawn(timm.create_model("test_vit", num_classes=0))
    readout = Readout(tokens="cls+mean", last_blocks=2)
    quick = quick_vit(model, readout, dtype=torch.float32)
    torch.testing.assert_close(
        read_features(quick, images(160), readout), read_features(model, images(160), readout)
    )


def test_gelu_and_its_derivative_are_close_enough_for_bf16() -> None:
    x = torch.linspace(-60, 60, 240_001, requires_grad=True)
    exact = x.detach().double().requires_grad_()
    ours, theirs = gelu_by_sigmoid(x), torch.nn.functional.gelu(exact)
    (slope,), (exact_slope,) = (torch.autograd.grad(y.sum(), v) for y, v in ((ours, x), (theirs, exact)))
    assert (ours - theirs).abs().max() < 4e-6
    assert (slope - exact_slope).abs().max() < 2e-5


def test_a_network_traced_for_compiling_gives_the_same_features() -> None:
    model = drawn(timm.create_model("test_vit", num_classes=0))
    traced = torch.compile(quick_vit(model, OWN, dtype=torch.float32), backend="eager")
    there = read_features(model, images(160), OWN)
    torch.testing.assert_close(traced(images(160)), there, rtol=1e-4, atol=1e-4)
    assert not torch.equal(traced(images(160)), there)  # it is another formula


@pytest.mark.parametrize("kind", ["ParallelThingsBlock", "ParallelScalingBlock"])
def test_blocks_of_another_kind_stay_and_give_the_same_features(kind: str) -> None:
    block = getattr(timm.models.vision_transformer, kind)
    model = drawn(timm.create_model("test_vit", num_classes=0, block_fn=block))
    quick = quick_vit(model, OWN, dtype=torch.float32)
    assert {type(one) for one in quick.blocks} == {block}
    assert not any(isinstance(one, torch.nn.GELU) for one in quick.modules())
    torch.testing.assert_close(read_features(quick, images(160), OWN), read_features(model, images(160), OWN))


@pytest.mark.parametrize("name", ["test_resnet", "tiny_vit_5m_224"])
def test_a_network_of_another_kind_is_left_alone(name: str) -> None:
    assert quick_vit(timm.create_model(name, num_classes=0), OWN) is None


def test_trained_adapters_are_shared_and_get_the_same_gradients() -> None:
    model = drawn(timm.create_model("test_vit", num_classes=0))
    attach_adapters(model, bottleneck=8, dropout=0.0, seed=0)
    for adapter in adapters(model):
        torch.nn.init.normal_(adapter.up.weight, generator=torch.Generator().manual_seed(2))
    quick = quick_vit(model, OWN, trains=True, dtype=torch.float32)
    assert all(a is b for a, b in zip(adapters(quick), adapters(model), strict=True))
    assert [n for n, p in quick.named_parameters() if p.requires_grad] == [
        n for n, p in model.named_parameters() if p.requires_grad
    ]

    def gradients(network: torch.nn.Module) -> list[torch.Tensor]:
        trained = [p for p in network.parameters() if p.requires_grad]
        return list(torch.autograd.grad(read_features(network, images(160), OWN).square().sum(), trained))

    for ours, theirs in zip(gradients(quick), gradients(model), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_the_network_itself_keeps_its_weights_and_batch_norms_theirs() -> None:
    model = timm.create_model("vit_small_resnet26d_224", num_classes=0).eval()
    before = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    quick = quick_vit(model, OWN, dtype=torch.float64)
    assert {name: tensor.dtype for name, tensor in model.state_dict().items()} == before
    for kind, dtype in ((torch.nn.Linear, torch.float64), (torch.nn.BatchNorm2d, torch.float32)):
        assert {module.weight.dtype for module in quick.modules() if isinstance(module, kind)} == {dtype}


def test_batches_are_filled_up_a_little() -> None:
    assert all(n <= filled(n) < max(2 * n, n + 64) for n in range(1, 1000))
    assert len({filled(n) for n in range(1, 257)}) <= 10


@CUDA
def test_a_recorded_pass_answers_as_the_pass_itself_whatever_the_size() -> None:
    device = torch.device("cuda")
    weight = torch.randn(3 * 8 * 8, 5, device=device)

    def forward(pixels: torch.Tensor) -> torch.Tensor:
        return pixels.flatten(1).float() @ weight

    recorded = RecordedPass(forward, device)
    for n in (1, 3, 64, 70, 3):
        pixels = torch.randint(0, 256, (n, 3, 8, 8), dtype=torch.uint8)
        torch.testing.assert_close(recorded(pixels), forward(pixels.to(device)))

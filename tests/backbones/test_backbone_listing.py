from __future__ import annotations

import pytest
import timm
import torch

from fiveshot.backbones import EMBEDDED, PAPER_BACKBONE, describe_backbone, load_backbone
from fiveshot.backbones.spec import CURATED
from fiveshot.errors import InputError


def vit_gmacs(*, width: int, depth: int, patches: int, patch: int, prefix: int = 1, ratio: float = 4) -> float:
    """Multiply-accumulates of a plain ViT, written out: projections, attention's two products, patches."""
    tokens = patches + prefix
    block = (4 + 2 * ratio) * tokens * width**2 + 2 * tokens**2 * width
    return (depth * block + patches * width * 3 * patch**2) / 1e9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (PAPER_BACKBONE, vit_gmacs(width=768, depth=12, patches=196, patch=16)),
        (
            "vit_small_patch14_reg4_dinov2.lvd142m",
            vit_gmacs(width=384, depth=12, patches=37**2, patch=14, prefix=5),
        ),
        ("test_vit.r160_in1k", vit_gmacs(width=64, depth=6, patches=100, patch=16, ratio=3)),
    ],
)
def test_gmacs_equal_the_sum_written_out(name, expected):
    assert describe_backbone(name).gmacs == pytest.approx(expected, rel=1e-6)


def test_the_embedded_one_is_described_as_it_is_loaded():
    info = describe_backbone(EMBEDDED)
    backbone = load_backbone()
    assert info.parameters == sum(p.numel() for p in backbone.model.parameters()) == 5_071_764
    assert info.width == backbone.width == 320
    assert info.input_size == backbone.preprocessing.size == 224
    assert info.local
    assert 1.0 < info.gmacs < 1.4  # TinyViT's authors count 1.3 G, with those of the classifier


def test_parameters_are_those_of_timm_without_classifier():
    model = timm.create_model("test_vit")
    expected = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("head."))
    assert describe_backbone("test_vit.r160_in1k").parameters == expected


def test_every_curated_name_exists_with_weights():
    for name in CURATED:
        if name != EMBEDDED:
            assert timm.models.get_pretrained_cfg(name).has_weights, name
    assert {EMBEDDED, PAPER_BACKBONE} <= set(CURATED)


def test_any_name_is_described_and_no_weights_are_read():
    before = torch.random.get_rng_state()
    rows = [describe_backbone(name) for name in ("test_vit.r160_in1k", "test_resnet.r160_in1k")]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [(row.name, row.width, row.input_size) for row in rows] == [
        ("test_vit.r160_in1k", 64, 160),
        ("test_resnet.r160_in1k", 96, 160),
    ]
    with pytest.raises(InputError, match="no backbone 'test_vut'"):
        describe_backbone("test_vut")

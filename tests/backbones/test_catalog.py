"""The short list of backbones: what it says without timm is what timm says."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
import timm
import torch
from tiny_vit import TINY

from fiveshot.backbones import EMBEDDED, backbone_choices, describe_backbone
from fiveshot.backbones.catalog import HUB, KNOWN, known_license
from fiveshot.backbones.spec import CURATED


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_is_what_timm_computes(name):
    known, computed = asdict(KNOWN[name]), asdict(describe_backbone(name))
    for key in ("name", "parameters", "width", "input_size", "note"):
        assert known[key] == computed[key], key
    assert math.isclose(known["gmacs"], computed["gmacs"], rel_tol=1e-9)
    if name == EMBEDDED:
        return
    assert timm.models.get_pretrained_cfg(name).hf_hub_id == f"{HUB}/{name}"
    with torch.device("meta"):
        state = timm.create_model(name).state_dict()
    assert known["download"] == sum(4 * math.prod(tensor.shape) for tensor in state.values())


def test_the_list_is_that_of_the_completion():
    assert list(KNOWN) == list(CURATED)
    assert [choice.name for choice in backbone_choices()] == list(CURATED)


def test_a_license_is_given_only_where_it_is_certain():
    assert known_license(EMBEDDED) == "MIT"
    assert known_license("vit_base_patch16_dinov3.lvd1689m") == "dinov3-license"
    for unsure in ("vit_base_patch16_clip_224.openai", TINY):  # timm's entry is only the default of the family
        assert timm.models.get_pretrained_cfg(unsure).license == "apache-2.0"
        assert known_license(unsure) == ""


def test_only_backbones_on_this_machine_are_measured(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    embedded, small, other = backbone_choices([EMBEDDED, list(KNOWN)[2], TINY], measure=True)
    assert embedded.milliseconds is not None
    assert embedded.milliseconds > 0
    assert (small.local, small.milliseconds, other.local, other.milliseconds) == (False, None, False, None)
    assert (other.parameters, other.needs_torch, other.license) == (306_240, True, "")

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fiveshot.backbones import EMBEDDED, load_embedder
from fiveshot.errors import InputError
from fiveshot.features import embedded_features, embedded_packs
from fiveshot.features.feature_set import PACKS

SHARED = Path(__file__).parents[3] / "shared" / "data"
VIT = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
needs_material = pytest.mark.skipif(not SHARED.is_dir(), reason="the real material is not beside the checkout")


@pytest.mark.parametrize(
    ("name", "backbone", "width", "adapted"),
    [
        ("cub200", EMBEDDED, 320, False),
        ("cub200-big", EMBEDDED, 320, True),
        ("cub200-small", EMBEDDED, 320, True),
        ("cub200-vit", VIT, 192, False),
        ("cub200-vit-big", VIT, 192, True),
        ("cub200-vit-small", VIT, 192, True),
    ],
)
def test_packs_have_the_official_counts_and_say_what_they_are(name, backbone, width, adapted):
    pack = embedded_features(name)
    assert (len(pack.train_x), len(pack.test_x), pack.n_features) == (5994, 5794, width)
    assert pack.train_x.dtype == np.float16
    assert np.isfinite(pack.train_x).all()
    assert np.isfinite(pack.test_x).all()
    assert pack.provenance.backbone == backbone
    assert (pack.provenance.adapter is not None) == adapted
    assert pack.class_names[0] == "001.Black_footed_Albatross"
    assert {29, 30} >= set(np.bincount(pack.train_y, minlength=200).tolist())


def test_there_is_no_other_pack():
    names = ("cub200", "cub200-big", "cub200-small", "cub200-vit", "cub200-vit-big", "cub200-vit-small")
    assert embedded_packs() == names


def test_image_names_agree_with_labels():
    pack = embedded_features()
    for names, labels in ((pack.train_names, pack.train_y), (pack.test_names, pack.test_y)):
        assert [name.split("/")[0] for name in names] == [pack.class_names[label] for label in labels]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", embedded_packs())
def test_packs_separate_birds(name):
    pack = embedded_features(name)
    means = np.stack([pack.train_x[pack.train_y == c].mean(0, dtype=np.float64) for c in range(200)])
    centre = means.mean(0)
    unit = [(x - centre) / np.linalg.norm(x - centre, axis=1, keepdims=True) for x in (pack.test_x, means)]
    assert np.mean((unit[0] @ unit[1].T).argmax(1) == pack.test_y) > 0.5  # chance is 0.005


def test_unknown_pack_names_those_present():
    with pytest.raises(InputError, match="no embedded feature pack 'cub'; did you mean 'cub200'"):
        embedded_features("cub")


def test_data_card_tells_provenance_and_terms():
    card = (PACKS / "DATA_CARD.md").read_text(encoding="utf-8")
    made = embedded_features().provenance
    for fact in (made.backbone, made.weights_hash, "research use only"):
        assert fact in card


def _official(name: str) -> dict[str, str]:
    lines = (SHARED / "cub200" / "meta" / name).read_text().splitlines()
    return dict(line.split() for line in lines)


@pytest.mark.real
@needs_material
def test_rows_have_the_order_and_the_names_of_the_official_list():
    names, split = _official("images.txt"), _official("train_test_split.txt")
    for pack in map(embedded_features, embedded_packs()):
        assert pack.train_names == tuple(name for number, name in names.items() if split[number] == "1")
        assert pack.test_names == tuple(name for number, name in names.items() if split[number] == "0")


def test_pack_belongs_to_the_embedded_backbone():
    embedder, made = load_embedder(), embedded_features().provenance
    assert (made.backbone, made.weights_hash) == (embedder.name, embedder.weights_hash)
    assert made.adapter == embedder.identity()["adapter_hash"]
    assert made.readout == embedder.spec.tokens
    assert made.preprocessing.items() <= embedder.preprocessing.to_json().items()

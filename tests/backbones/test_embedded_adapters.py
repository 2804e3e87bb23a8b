from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fiveshot.backbones import load_backbone
from fiveshot.backbones.embedded_adapters import adapter_path, embedded_adapters
from fiveshot.data import decode, open_dataset
from fiveshot.errors import InputError, StorageError
from fiveshot.features import embedded_features


def test_each_embedded_adapter_fits_the_embedded_backbone_and_changes_it() -> None:
    image = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    plain = load_backbone().features(image)
    for name in embedded_adapters():
        adapted = load_backbone(adapter=name)
        assert adapted.adapter_hash
        assert (adapted.features(image) - plain).abs().max() > 1e-3


def test_packs_say_which_adapter_they_were_made_with() -> None:
    for start in ("big", "small"):
        pack = embedded_features(f"cub200-160px-{start}")
        assert pack.provenance.adapter == load_backbone(adapter=f"cub200-{start}").adapter_hash
    assert embedded_features("cub200-160px").provenance.adapter is None


def test_a_name_that_is_no_adapter_suggests_one() -> None:
    with pytest.raises(InputError, match="'cub200-bag'; did you mean 'cub200-big'"):
        adapter_path("cub200-bag")
    with pytest.raises(StorageError, match=r"no such file: nowhere\.safetensors"):
        adapter_path("nowhere.safetensors")


@pytest.mark.real
def test_packs_hold_the_features_of_the_photographs() -> None:
    folder = Path(__file__).parents[3] / "shared" / "data" / "cub200"
    if not folder.is_dir():
        pytest.skip("the photographs are not beside the checkout")
    birds = open_dataset("cub200", folder, seed=0)
    pack = embedded_features("cub200-160px-big")
    assert pack.test_names is not None
    rows = {Path(name).stem: row for row, name in enumerate(pack.test_names)}
    backbone = load_backbone(adapter="cub200-big")
    transform = backbone.preprocessing.transform()
    chosen = [birds.test.images[i] for i in range(0, len(birds.test), 800)]
    vectors = backbone.features(torch.stack([transform(decode(image)) for image in chosen])).numpy()
    stored = pack.test_x[[rows[Path(image.name).stem] for image in chosen]].astype(np.float32)
    cosines = (vectors * stored).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(stored, axis=1)
    assert cosines.min() > 0.99  # the pack was computed in bf16

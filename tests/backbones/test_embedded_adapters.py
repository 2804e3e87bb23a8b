from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fiveshot.backbones import BackboneSpec, adapter_path, embedded_adapters, load_embedder
from fiveshot.data import decode, open_dataset
from fiveshot.errors import InputError, StorageError
from fiveshot.features import embedded_features


def test_each_embedded_adapter_fits_the_embedded_backbone_and_changes_it() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 2, 3, 224, 224), np.uint8)
    plain = load_embedder(BackboneSpec(device="cpu")).features(pixels)
    for name in embedded_adapters():
        adapted = load_embedder(BackboneSpec(adapter=name, device="cpu"))
        assert adapted.identity()["adapter_hash"]
        assert np.abs(adapted.features(pixels) - plain).max() > 1e-3


def test_packs_say_which_adapter_they_were_made_with() -> None:
    for start in ("big", "small"):
        made = embedded_features(f"cub200-{start}").provenance
        embedder = load_embedder(BackboneSpec(adapter=f"cub200-{start}", device="cpu"))
        assert made.adapter == embedder.identity()["adapter_hash"]
        assert made.weights_hash == embedder.weights_hash
    assert embedded_features("cub200").provenance.adapter is None


def test_a_name_that_is_no_adapter_suggests_one_or_a_file() -> None:
    with pytest.raises(InputError, match="no adapter 'cub200-bag'; did you mean 'cub200-big'"):
        adapter_path("cub200-bag")
    with pytest.raises(InputError, match=r"no adapter 'flowers'; choose from .*, or give the file of another"):
        adapter_path("flowers")
    with pytest.raises(StorageError, match=r"no such file: nowhere\.safetensors"):
        adapter_path("nowhere.safetensors")


@pytest.mark.real
def test_packs_hold_the_features_of_the_photographs() -> None:
    folder = Path(__file__).parents[3] / "shared" / "data" / "cub200"
    if not folder.is_dir():
        pytest.skip("the photographs are not beside the checkout")
    birds = open_dataset("cub200", folder, seed=0)
    pack = embedded_features("cub200-big")
    assert pack.test_names is not None
    rows = {Path(name).stem: row for row, name in enumerate(pack.test_names)}
    embedder = load_embedder(BackboneSpec(adapter="cub200-big", device="cpu"))
    chosen = [birds.test.images[i] for i in range(0, len(birds.test), 800)]
    vectors = embedder.features(np.stack([embedder.pixels(decode(image)) for image in chosen]))
    stored = pack.test_x[[rows[Path(image.name).stem] for image in chosen]].astype(np.float32)
    cosines = (vectors * stored).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(stored, axis=1)
    assert cosines.min() > 0.999  # a byte for each number

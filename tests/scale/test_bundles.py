"""A cluster computes vectors with an ONNX bundle, as one machine does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pictures import draw_folder

pytest.importorskip("transformers", reason="the extra 'dev' is not installed")

from bundles import WIDTH, make_bundles

from fiveshot.backbones import BackboneSpec, load_embedder
from fiveshot.errors import InputError
from fiveshot.features import ExtractionSettings, extract, open_labeled_images
from fiveshot.scale import (
    ClusterSettings,
    extract_file,
    open_catalog,
)
from fiveshot.scale._pipeline import placed

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundles(tmp_path_factory.mktemp("bundles"), "vit")["vit"].folder


def test_a_cluster_computes_the_vectors_of_one_machine(bundle: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(bundle.parent)  # workers have another working directory
    spec = BackboneSpec("vit")
    photos = str(draw_folder(tmp_path / "birds", per_class=3, seed=0))
    settings = ClusterSettings(dtype="float32")
    found, _ = extract_file(
        open_catalog(photos, seed=0), tmp_path / "birds.safetensors", spec=spec, settings=settings
    )
    images = open_labeled_images(photos, seed=0)
    expected = extract(images, load_embedder(spec), ExtractionSettings(dtype="float32")).features
    assert found.n_features == WIDTH
    assert found.provenance.weights_hash == expected.provenance.weights_hash
    np.testing.assert_allclose(np.sort(found.train_x, axis=0), np.sort(expected.train_x, axis=0), atol=1e-5)


def test_a_cluster_with_gpus_runs_a_bundle_on_cpus(bundle: Path) -> None:
    here = placed(BackboneSpec(str(bundle)), gpus=True)
    assert (here.device, here.weights) == ("cpu", str(bundle))
    with pytest.raises(InputError, match="runs on the CPU"):
        placed(BackboneSpec(str(bundle), device="cuda"), gpus=True)

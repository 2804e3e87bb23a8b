from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_vit import TINY

from fiveshot.backbones import Backbone, BackboneSpec, adapters, attach_adapters, load_backbone, torch_embedder
from fiveshot.backbones import export as export_module
from fiveshot.errors import InputError


def bytes_like(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 2, 3, 160, 160), np.uint8)


def by_torch(backbone: Backbone, pixels: np.ndarray) -> np.ndarray:
    views = [torch.from_numpy(backbone.preprocessing.normalize(pixels[:, view])) for view in range(2)]
    return sum(backbone.features(view).detach().numpy() for view in views) / 2


def test_adapters_and_readouts_are_exported_too(tiny_file):
    spec = BackboneSpec(TINY, weights=tiny_file, tokens="cls+mean", last_blocks=2, device="cpu")
    backbone = load_backbone(spec)
    attach_adapters(backbone.model, bottleneck=4, scale=1.0, seed=0)
    with torch.no_grad():
        for adapter in adapters(backbone.model):
            adapter.up.weight.fill_(0.3)
    fast = torch_embedder(backbone, BackboneSpec(runtime="onnx"))
    np.testing.assert_allclose(
        fast.features(bytes_like(2)), by_torch(backbone, bytes_like(2)), rtol=1e-5, atol=1e-5
    )
    assert fast.width == 192


@pytest.mark.parametrize("n", [0, 1, 5])
def test_any_batch_size(tiny, n):
    features = torch_embedder(tiny, BackboneSpec(runtime="onnx")).features(bytes_like(n))
    assert features.shape == (n, 64)
    np.testing.assert_allclose(features, by_torch(tiny, bytes_like(n)), rtol=1e-5, atol=1e-5)


def test_a_failed_export_prints_nothing(tiny_file, capfd):
    # 224 px, not the network's 160
    backbone = load_backbone(BackboneSpec(TINY, weights=tiny_file, preprocessing="paper", device="cpu"))
    with pytest.raises(InputError, match="cannot be exported to ONNX"):
        _ = torch_embedder(backbone, BackboneSpec(runtime="onnx")).runtime
    sys.stdout.write("afterwards\n")
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("afterwards\n", "")


def test_the_fastest_is_chosen_and_named(tiny, monkeypatch):
    chosen = torch_embedder(tiny)
    assert chosen.runtime.startswith("ONNX Runtime ")
    monkeypatch.setattr(export_module, "_PROTOBUF_LIMIT", 1000)
    assert torch_embedder(tiny).runtime == f"PyTorch {torch.__version__} on cpu, float32"


def files_left_by_the_import(home: Path, **told: str) -> list[str]:
    """The names of the files below HOME after the import, in an environment with only the given variables.

    The empty environment matters: the runtime keeps quiet by itself where a variable such as CI is set.
    """
    code = "from fiveshot.extras import import_extra; import_extra('onnxruntime', extra='')"
    environment = {"HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path), **told}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_onnx_runtime_leaves_no_device_id_and_reports_nothing(tmp_path):
    if "deviceid" not in files_left_by_the_import(tmp_path / "allowed", ORT_DISABLE_TELEMETRY="0"):
        pytest.skip("this build of ONNX Runtime writes no device id even where it is allowed to")
    assert files_left_by_the_import(tmp_path / "as shipped") == []

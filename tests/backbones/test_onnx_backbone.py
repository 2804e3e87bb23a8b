from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fiveshot.backbones import OnnxBackbone, Readout, adapters, attach_adapters, fastest_cpu, load_backbone
from fiveshot.backbones import onnx as onnx_module
from fiveshot.errors import InputError, StorageError

TINY = "test_vit.r160_in1k"

pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")


def test_the_embedded_vit_gives_the_same_features():
    backbone = load_backbone()
    images = torch.randn(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    fast = OnnxBackbone(backbone)
    torch.testing.assert_close(fast.features(images), backbone.features(images), rtol=1e-5, atol=1e-5)
    assert (fast.width, fast.name, fast.fingerprint) == (384, backbone.name, backbone.fingerprint)


def test_adapters_and_readouts_are_exported_too(tiny_file, images):
    backbone = load_backbone(TINY, weights=tiny_file, readout=Readout("cls+mean", last_blocks=2))
    attach_adapters(backbone.model, bottleneck=4, scale=1.0, seed=0)
    with torch.no_grad():
        for adapter in adapters(backbone.model):
            adapter.up.weight.fill_(0.3)
        expected = backbone.features(images)
    fast = OnnxBackbone(backbone)
    torch.testing.assert_close(fast.features(images), expected, rtol=1e-5, atol=1e-5)
    assert fast.width == 192


@pytest.mark.parametrize("n", [0, 1, 5])
def test_any_batch_size(tiny, n):
    images = torch.randn(n, 3, 160, 160, generator=torch.Generator().manual_seed(0))
    features = OnnxBackbone(tiny).features(images)
    assert features.shape == (n, 64)
    torch.testing.assert_close(features, tiny.features(images), rtol=1e-5, atol=1e-5)


def test_the_export_is_kept_by_weights(tiny, tmp_path, images, monkeypatch):
    OnnxBackbone(tiny, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    monkeypatch.setattr(onnx_module, "export_onnx", lambda *_: pytest.fail("exported again"))
    again = OnnxBackbone(tiny, cache=tmp_path)
    torch.testing.assert_close(again.features(images), tiny.features(images), rtol=1e-5, atol=1e-5)
    monkeypatch.undo()
    attach_adapters(tiny.model, bottleneck=4, seed=0)
    OnnxBackbone(tiny, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert file.name.startswith(TINY)


def test_a_damaged_file_in_the_cache_is_replaced(tiny, tmp_path, images):
    OnnxBackbone(tiny, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    repaired = OnnxBackbone(tiny, cache=tmp_path)
    torch.testing.assert_close(repaired.features(images), tiny.features(images), rtol=1e-5, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_failed_export_leaves_nothing_behind(tiny, tmp_path, monkeypatch):
    def dies(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.onnx, "export", dies)
    with pytest.raises(KeyboardInterrupt):
        OnnxBackbone(tiny, cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_failed_export_prints_nothing(tiny_file, capfd):
    backbone = load_backbone(TINY, weights=tiny_file, preprocessing="paper")  # 224 px, not the network's 160
    with pytest.raises(torch.onnx.errors.OnnxExporterError):
        OnnxBackbone(backbone)
    sys.stdout.write("afterwards\n")
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("afterwards\n", "")


def test_a_missing_cache_folder_is_named(tiny, tmp_path):
    with pytest.raises(StorageError, match=r"no such folder: .*absent"):
        OnnxBackbone(tiny, cache=tmp_path / "absent")


def test_the_fastest_is_chosen_and_named(tiny, images, monkeypatch):
    chosen = fastest_cpu(tiny)
    assert chosen.runtime.startswith("ONNX Runtime ")
    torch.testing.assert_close(chosen.features(images), tiny.features(images), rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(onnx_module, "find_spec", lambda _name: None)
    assert fastest_cpu(tiny) is tiny
    assert tiny.runtime == f"PyTorch {torch.__version__} on cpu"


def test_without_the_runtime_the_error_names_the_extra(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"pip install 'fiveshot\[onnx\]'"):
        OnnxBackbone(tiny)


def files_left_by_the_import(home: Path, **told: str) -> list[str]:
    """The names of the files below HOME after the import, in an environment with nothing but what is told.

    The empty environment matters: the runtime keeps quiet by itself where a variable such as CI is set.
    """
    code = "from fiveshot.extras import import_extra; import_extra('onnxruntime', extra='onnx')"
    environment = {"HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path), **told}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_onnx_runtime_leaves_no_device_id_and_reports_nothing(tmp_path):
    if "deviceid" not in files_left_by_the_import(tmp_path / "allowed", ORT_DISABLE_TELEMETRY="0"):
        pytest.skip("this build of ONNX Runtime writes no device id even where it is allowed to")
    assert files_left_by_the_import(tmp_path / "as shipped") == []

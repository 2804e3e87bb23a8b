from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fiveshot.backbones import (
    EMBEDDED,
    BackboneSpec,
    Preprocessing,
    load_embedder,
    torch_embedder,
)
from fiveshot.backbones import embedder as embedder_module
from fiveshot.errors import FiveshotError, InputError


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (2, 2, 3, 14, 14), np.uint8).repeat(16, axis=3).repeat(16, axis=4)


@pytest.mark.parametrize("adapter", [None, "cub200-small"])
def test_fingerprints_are_the_same_on_every_runtime(adapter: str | None) -> None:
    spec = BackboneSpec(adapter=adapter, device="cpu")
    onnx_run, torch_run = load_embedder(spec), load_embedder(spec.replace(runtime="torch"))
    assert onnx_run.identity() == torch_run.identity()
    assert onnx_run.fingerprint == torch_run.fingerprint
    assert torch_run.runtime.startswith("PyTorch ")


EVERYDAY = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "timm", "torchvision"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Absent())
import numpy as np
from PIL import Image
from fiveshot.backbones import BackboneSpec, load_embedder
for adapter in (None, "cub200-big"):
    embedder = load_embedder(BackboneSpec(adapter=adapter))
    pixels = embedder.pixels(Image.new("RGB", (300, 200), "red"))
    assert embedder.features(pixels[None]).shape == (1, 320)
    assert len(embedder.fingerprint) == 64
"""


def test_the_embedded_backbone_needs_no_torch() -> None:
    subprocess.run([sys.executable, "-c", EVERYDAY], check=True)


MISSING = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "timm", "torchvision"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Absent())
import fiveshot.backbones as backbones
from fiveshot.errors import InputError
for wanted in (
    lambda: backbones.load_embedder(backbones.BackboneSpec("vit_base_patch16_224")),
    lambda: backbones.load_embedder(backbones.BackboneSpec(runtime="torch")),
    lambda: backbones.load_embedder(backbones.BackboneSpec(device="cuda")),
    lambda: backbones.load_backbone,
    lambda: backbones.describe_backbone,
):
    try:
        wanted()
    except InputError as error:
        print(error.code, error.hint)
print([name for name in ("onnxruntime", "PIL", "safetensors.numpy") if name in sys.modules])
"""


def test_what_needs_torch_says_the_one_line_before_anything_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], check=True, capture_output=True, text=True)
    line = "missing_library install it with: pip install 'fiveshot[torch]'"
    assert done.stdout.splitlines() == [line] * 5 + ["[]"]


def test_importing_the_package_loads_no_library_of_images() -> None:
    script = (
        "import sys, fiveshot.backbones; "
        "print([m for m in ('torch', 'timm', 'torchvision', 'PIL', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pixels_of_another_type_or_shape_are_refused() -> None:
    embedder = load_embedder(BackboneSpec(device="cpu"))
    for wrong in (np.zeros((1, 2, 3, 224, 224), np.float32), np.zeros((1, 3, 224, 224), np.uint8)):
        with pytest.raises(InputError, match=r"must be uint8 of shape \(n, 2, 3, 224, 224\)"):
            embedder.features(wrong)
    assert embedder.features(np.zeros((0, 2, 3, 224, 224), np.uint8)).shape == (0, 320)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preprocessing": Preprocessing(size=160, resize=160)}, "takes 224 px images"),
        ({"tokens": "cls"}, "reads no class token.*; leave out tokens='cls'"),
        ({"weights": "nowhere.safetensors"}, "no such file"),
        ({"adapter": "cub200-bag"}, "did you mean 'cub200-big'"),
        ({"precision": "bf16"}, "is for CUDA devices; on cpu use 'float32'"),
    ],
)
def test_what_the_embedded_backbone_cannot_do_is_said_at_once(changes: dict, message: str) -> None:
    with pytest.raises(FiveshotError, match=message):
        load_embedder(BackboneSpec(device="cpu", **changes))


def test_a_spec_survives_json_and_refuses_what_it_does_not_know() -> None:
    spec = BackboneSpec(
        "vit", weights=Path("w.safetensors"), preprocessing=Preprocessing(160, 180), tokens="cls", last_blocks=2
    )
    assert BackboneSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.weights == "w.safetensors"
    with pytest.raises(InputError) as caught:
        BackboneSpec.from_json({"nam": "vit"})
    assert caught.value.code == "unknown_name"
    for wrong in (
        {"name": 3},
        {"weights": 3},
        {"preprocessing": 3},
        {"preprocessing": "papr"},
        {"tokens": "clas"},
        {"runtime": "tensorrt"},
        {"precision": "bf17"},
        {"last_blocks": 1.5},
        {"last_blocks": 2},  # of the class tokens, which must be asked for
        {"views": 3},
    ):
        with pytest.raises(InputError):
            BackboneSpec(**wrong)


def test_a_bare_architecture_is_the_embedded_backbone() -> None:
    assert load_embedder(BackboneSpec(EMBEDDED.partition(".")[0], device="cpu")).name == EMBEDDED


def test_a_machine_without_a_driver_asks_torch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder_module, "_may_have_gpu", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("torch was asked"))
    assert load_embedder().device == "cpu"


def test_threads_may_share_an_embedder(pixels: np.ndarray) -> None:
    from concurrent.futures import ThreadPoolExecutor

    embedder = load_embedder(BackboneSpec(device="cpu"))
    with ThreadPoolExecutor(4) as pool:
        alike = list(pool.map(lambda _: embedder.features(pixels[:1]), range(8)))
    assert all(np.array_equal(alike[0], other) for other in alike)


def test_a_backbone_of_your_own_is_an_embedder_too(tiny, images) -> None:
    embedder = torch_embedder(tiny, BackboneSpec(runtime="torch"))
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (170, 200, 3), np.uint8))
    pixels = embedder.pixels(photo)
    expected = tiny.features(torch.from_numpy(tiny.preprocessing.normalize(pixels))).numpy()
    np.testing.assert_allclose(embedder.features(pixels[None])[0], expected.mean(axis=0), rtol=1e-6)
    assert embedder.weights_hash == tiny.weights_hash


def test_what_is_for_another_device_is_refused() -> None:
    with pytest.raises(InputError, match="compiled") as refused:
        load_embedder(BackboneSpec(device="cpu", runtime="compiled"))
    assert refused.value.hint
    embedder_module.check_place(BackboneSpec(runtime="compiled"), "cuda:0")
    with pytest.raises(InputError, match="for the CPU"):
        embedder_module.check_place(BackboneSpec(runtime="onnx"), "cuda")
